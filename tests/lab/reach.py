"""Which rule says how much on which real source: the highest verdict each reached, as a table for ``docs/proof.md``.

    python -m tests.lab.reach TARGET… [--pair CURRENT BASELINE]…

Targets are captures, laboratory runs, logs and reports; generated recordings are left out by whoever calls it.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from kvscope.authoring import read_whole
from kvscope.diagnose import diagnose
from kvscope.errors import KvscopeError
from kvscope.finding import VERDICT_ORDER
from kvscope.playbook import load_all
from tests.lab.score import read_run


def main() -> None:
    """Print one line a rule."""
    asked = argparse.ArgumentParser(prog="python -m tests.lab.reach")
    asked.add_argument("targets", nargs="+", type=Path)
    args = asked.parse_args()
    rules = load_all()
    best: dict[str, dict[str, str]] = {rule.id: {} for rule in rules}
    for path in args.targets:
        try:
            store, about = read_run(path, pages_alone=False) if (path / "command.json").exists() else read_whole(path)
            found = diagnose(store, rules, about, include_silent=True).findings
        except KvscopeError:
            continue
        for one in found:
            place = f"{about.engine} {'log' if about.kind == 'log' else 'page'}"
            before = best[one.id].get(place, "silent")
            best[one.id][place] = min(before, one.verdict, key=VERDICT_ORDER.index)
    print("| rule | cause | highest verdict, by source |", "|---|---|---|", sep="\n")
    for rule in rules:
        said = {place: verdict for place, verdict in best[rule.id].items() if verdict in ("likely", "possible")}
        told = ", ".join(f"{verdict}: {place}" for place, verdict in sorted(said.items(), key=lambda pair: pair[::-1]))
        print(f"| {rule.id} | {rule.cause.slug} | {told or 'unproven on a real source'} |")


if __name__ == "__main__":
    main()
