"""List, show, check, test, explain, begin or export playbooks.

`list` prints every playbook; `show ID` prints one as written; `check [FILE…]` names every mistake with file, line and
the nearest valid name; `test [ID|FILE…]` replays recordings and compares verdicts; `explain ID TARGET` shows a rule's
checks against a target with the distance to firing; `new FILE` writes one to begin with; `schema` prints the JSON
Schema; `export` writes Prometheus rules or a Grafana dashboard.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvscope.playbook_schema import Playbook

ACTIONS = ("list", "show", "check", "test", "explain", "new", "schema", "export")
GROUP = "rules and monitoring"
EXAMPLES = ("kvscope playbooks explain admission-capped",)


def configure(parser: argparse.ArgumentParser) -> None:
    """An action and what it is done to."""
    from kvscope.commands._options import add_playbooks, add_timing

    parser.add_argument("action", choices=ACTIONS)
    parser.add_argument("names", nargs="*", metavar="ID|FILE|TARGET", help="playbook ids, files, or a target (explain)")
    parser.add_argument("--prometheus", action="store_true", help="export recording and alerting rules")
    parser.add_argument("--grafana", action="store_true", help="export a dashboard")
    parser.add_argument("--engine", default="vllm", help="whose metric names an export uses (vllm)")
    parser.add_argument("--segments", metavar="BASELINE,CURRENT", help="the segments that explain compares")
    parser.add_argument("--format", help="of list and explain: text or json (text)")
    add_timing(parser)
    add_playbooks(parser)


def run(options: argparse.Namespace) -> int:
    """Do what was asked; a mistake in a playbook is exit code 2, a failed test 1."""
    from pathlib import Path

    from kvscope import playbook
    from kvscope.commands._options import settings_of

    extra = settings_of(options).playbooks
    if options.action in _ALONE:
        return _ALONE[options.action](options)
    if options.action == "check" and options.names:
        for name in options.names:
            found = playbook.load_playbook(Path(name))
            print(f"{name}: {found.id} is good")
        return 0
    books = {book.id: book for book in playbook.load_all((Path(extra),) if extra else ())}
    return _WITH_BOOKS[options.action](options, books)


def _list(options: argparse.Namespace, books: dict[str, Playbook]) -> int:
    from kvscope.commands._options import as_json, settings_of, text_or_json

    if text_or_json(settings_of(options)):
        rows = [
            {"id": one.id, "status": one.status, "title": one.title, "cause": one.cause.slug} for one in books.values()
        ]
        print(as_json(rows))
        return 0
    for book in books.values():
        print(f"{book.id:<34} {book.status:<8} {book.title}")
    return 0


def _check(_options: argparse.Namespace, books: dict[str, Playbook]) -> int:
    print(f"{len(books)} playbooks are good")
    return 0


def _show(options: argparse.Namespace, books: dict[str, Playbook]) -> int:
    for name in options.names:
        print(_chosen(name, books).path.read_text(encoding="utf-8"), end="")
    return 0


def _test(options: argparse.Namespace, books: dict[str, Playbook]) -> int:
    from kvscope.authoring import prove
    from kvscope.errors import EXIT_FINDING

    failed = 0
    for name in options.names or list(books):
        for good, line in prove(_chosen(name, books), tuple(books.values())):
            failed += not good
            print(f"{'ok  ' if good else 'FAIL'} {line}")
    return EXIT_FINDING if failed else 0


def _explain(options: argparse.Namespace, books: dict[str, Playbook]) -> int:
    import json
    from contextlib import closing
    from dataclasses import asdict

    from kvscope.authoring import explain, rows
    from kvscope.commands._options import settings_of, text_or_json
    from kvscope.compare import choose
    from kvscope.errors import UsageError
    from kvscope.sources import open_target
    from kvscope.store import Store
    from kvscope.watch import collect, fill, segment_pair

    if len(options.names) != 2:
        raise UsageError("playbooks explain: expected an ID and a TARGET")
    rule, store, settings = _chosen(options.names[0], books), Store(), settings_of(options)
    as_json = text_or_json(settings)
    with closing(open_target(options.names[1], machine=True)) as source:
        fill(store, collect(source, settings))
    segments = segment_pair(options.segments, store)
    if as_json:
        pair = choose(store, rule.compare, *segments)
        told = {"schema": 1, "rule": rule.id, "title": rule.title, "segment": pair.current.name}
        told |= {"baseline": pair.baseline.name if pair.baseline else ""}
        print(json.dumps(told | {"checks": [asdict(row) for row in rows(rule, pair)]}))
        return 0
    print("\n".join(explain(rule, store, *segments)))
    return 0


def _export(options: argparse.Namespace, books: dict[str, Playbook]) -> int:
    from kvscope.errors import UsageError, nearest
    from kvscope.export import render
    from kvscope.sources import maps

    wanted = [name for name in ("prometheus", "grafana") if getattr(options, name)]
    if len(wanted) != 1:
        raise UsageError("playbooks export: expected --prometheus or --grafana")
    engines = {maps.load(name).ENGINE: name for name in maps.names()}
    if options.engine not in engines:
        raise UsageError(
            f"--engine {options.engine!r}{nearest(options.engine, engines)}; there are: {', '.join(engines)}"
        )
    print(render(wanted[0], list(books.values()), engines[options.engine]).rstrip())
    return 0


def _chosen(name: str, books: dict[str, Playbook]) -> Playbook:
    """Return a playbook by id or file."""
    from pathlib import Path

    from kvscope.errors import UsageError, nearest
    from kvscope.playbook import load_playbook

    if name.endswith(".yaml"):
        return load_playbook(Path(name))
    if name not in books:
        raise UsageError(f"no playbook {name!r}{nearest(name, books)}; there are: {', '.join(books)}")
    return books[name]


def _new(options: argparse.Namespace) -> int:
    from pathlib import Path

    from kvscope.authoring import new
    from kvscope.errors import UsageError

    if len(options.names) != 1:
        raise UsageError("playbooks new: expected one FILE, such as my-rule.yaml")
    print(new(Path(options.names[0])))
    return 0


def _schema(_options: argparse.Namespace) -> int:
    import json

    from kvscope.authoring import json_schema

    print(json.dumps(json_schema(), indent=1))
    return 0


_ALONE = {"new": _new, "schema": _schema}
_WITH_BOOKS = {"list": _list, "show": _show, "check": _check, "test": _test, "explain": _explain, "export": _export}
