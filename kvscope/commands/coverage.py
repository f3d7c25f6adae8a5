"""Say which rules can speak about a target, which cannot, and what would let most of them.

A live target is watched for --duration seconds, as `diagnose` does. Each way to more is what the rules that need it
ask for; the list is the shortest that the first three steps can make it.
"""

from __future__ import annotations

import argparse

FORMATS = ("text", "json")
GROUP = "watch an engine"
EXAMPLES = ("kvscope coverage http://localhost:8000",)


def configure(parser: argparse.ArgumentParser) -> None:
    """As for `diagnose`, less the report."""
    from kvscope.commands._options import add_playbooks, add_target, add_timing
    from kvscope.commands._told import add_said, add_told

    add_target(parser)
    add_told(parser)
    add_said(parser)
    parser.add_argument(
        "--baseline", metavar="TARGET", help="compare with this target: rules of before and after speak"
    )
    parser.add_argument("--segments", metavar="BASELINE,CURRENT", help="compare these two marked segments of TARGET")
    parser.add_argument("--format", help="text or json (text)")
    add_timing(parser)
    add_playbooks(parser)


def run(options: argparse.Namespace) -> int:
    """Print what can be told; exit code 4 where no rule could speak at all."""
    from dataclasses import asdict
    from json import dumps

    from kvscope.commands._options import settings_of
    from kvscope.commands.diagnose import read
    from kvscope.coverage import shortest
    from kvscope.errors import EXIT_NO_DATA, EXIT_OK, UsageError, nearest
    from kvscope.finding import Coverage
    from kvscope.state import near_line

    settings = settings_of(options)
    if settings.format not in FORMATS:
        raise UsageError(f"--format {settings.format!r}{nearest(settings.format, FORMATS)}; expected text or json")
    options.all = False
    found, _ = read(options, settings)
    reach = found.coverage or Coverage(0, 0)
    steps = shortest(reach.lights)
    if settings.format == "json":
        told = {"schema": 1, "rules": reach.rules, "judged": reach.judged, "near": [asdict(one) for one in reach.near]}
        print(dumps(told | {"steps": [asdict(one) for one in steps], "ways": [asdict(one) for one in reach.lights]}))
        return EXIT_OK if reach.judged else EXIT_NO_DATA
    print(f"{reach.judged} of {reach.rules} rules can speak about {found.source['target']}")
    for near in reach.near:
        print(f"  near    {near_line(near)}")
    for number, step in enumerate(steps, 1):
        print(f"  {number}. {step.way}: +{len(step.rules)} ({', '.join(step.rules)})")
    silent = reach.rules - reach.judged - len({rule for step in steps for rule in step.rules})
    if silent > 0:
        print(f"{silent} more need several things at once, or what this engine cannot tell")
    return EXIT_OK if reach.judged else EXIT_NO_DATA
