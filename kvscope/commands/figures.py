"""Write a form for figures that somebody gave you, to fill in and diagnose; or read one back and show what it says.

Names are canonical (`kvscope metrics`), short (ttft, tpot, throughput, kv usage) or from the engine's own page.
"""

from __future__ import annotations

import argparse

GROUP = "plan and measure"
EXAMPLES = ("kvscope figures new figures.yaml", "kvscope figures show figures.yaml", "kvscope diagnose figures.yaml")


def configure(parser: argparse.ArgumentParser) -> None:
    """new FILE, show FILE."""
    from kvscope.commands._options import add_listing

    add_listing(parser)
    parser.add_argument("action", choices=("new", "show"), help="new: write a form; show: what a filled one says")
    parser.add_argument("file", metavar="FILE", nargs="?", default="figures.yaml", help="(default figures.yaml)")
    parser.add_argument("--force", action="store_true", help="replace an existing file")


def run(options: argparse.Namespace) -> int:
    """Write the form, or list each figure under its canonical name."""
    from pathlib import Path

    from kvscope.commands._options import as_json, output, settings_of, text_or_json
    from kvscope.errors import UsageError
    from kvscope.sources.stated import document
    from kvscope.sources.stated.arms import arms
    from kvscope.sources.stated.figure import unknown_notice
    from probes.border import lines_printable

    path = Path(options.file)
    if options.action == "new":
        path = output(options.file, options)
        try:
            path.write_text(document.TEMPLATE, encoding="utf-8")
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror or error}") from error
        print(lines_printable(f"{path}: fill in what you know, then kvscope diagnose {path}"))
        return 0
    stated = document.read(path)
    if text_or_json(settings_of(options)):
        figures = [
            {"arm": one.arm, "metric": one.metric, "value": one.value, "said": one.key} for one in stated.figures
        ]
        print(as_json({"engine": stated.engine, "figures": figures, "settings": dict(stated.settings)}))
        return 0
    before, after = arms(stated.figures)
    print(f"{stated.engine or 'no engine'}: before {before or '-'}, after {after or '-'}")
    for one in stated.figures:
        if one.metric:
            print(f"{one.arm or 'all':24} {one.metric:28} {one.value:12.6g}  ({one.key})")
    for name, value in sorted(stated.settings.items()):
        print(f"{'setting':24} {name:28} {value:12.6g}")
    for line in unknown_notice(stated):
        print(line)
    return 0
