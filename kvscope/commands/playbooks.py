"""List, show or check playbooks.

`list` prints every playbook with its symptom; `show ID` prints one as written; `check [FILE…]` reads playbooks and
names every mistake with file, line and the nearest valid name.
"""

from __future__ import annotations

import argparse


def configure(parser: argparse.ArgumentParser) -> None:
    """list | show ID | check FILE…"""
    from kvscope.commands._options import add_playbooks

    parser.add_argument("action", choices=("list", "show", "check"))
    parser.add_argument("names", nargs="*", metavar="ID|FILE", help="playbook ids (show) or files (check)")
    add_playbooks(parser)


def run(options: argparse.Namespace) -> int:
    """Do what was asked; a mistake in a playbook is exit code 2."""
    from pathlib import Path

    from kvscope import playbook
    from kvscope.commands._options import settings_of
    from kvscope.errors import UsageError, nearest

    extra = settings_of(options).playbooks
    if options.action == "check" and options.names:
        for name in options.names:
            found = playbook.load_playbook(Path(name))
            print(f"{name}: {found.id} is good")
        return 0
    books = {book.id: book for book in playbook.load_all((Path(extra),) if extra else ())}
    if options.action == "list":
        for book in books.values():
            print(f"{book.id:<34} {book.status:<8} {book.title}")
    elif options.action == "check":
        print(f"{len(books)} playbooks are good")
    for name in options.names if options.action == "show" else ():
        if name not in books:
            raise UsageError(f"no playbook {name!r}{nearest(name, books)}; there are: {', '.join(books)}")
        print(books[name].path.read_text(), end="")
    return 0
