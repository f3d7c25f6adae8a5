"""Say which rules can speak about a target, which cannot, and what would let most of them.

A live target is watched for --duration seconds, as `diagnose` does. Each way to more is what the rules that need it
ask for; what adds most rules comes first, and two things that only together add any are named together.
"""

from __future__ import annotations

import argparse

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
    parser.add_argument("--steps", type=int, default=3, metavar="N", help="name so many settings or sources (3)")
    parser.add_argument("--format", help="text or json (text)")
    add_timing(parser)
    add_playbooks(parser)


def run(options: argparse.Namespace) -> int:
    """Print what can be told; exit code 4 where no rule could speak at all."""
    from dataclasses import asdict
    from json import dumps

    from kvscope.commands._options import settings_of, text_or_json
    from kvscope.commands.diagnose import read
    from kvscope.coverage import shortest
    from kvscope.errors import EXIT_NO_DATA, EXIT_OK, UsageError
    from kvscope.finding import Coverage
    from kvscope.state import near_line
    from probes.border import lines_printable

    settings = settings_of(options)
    as_json = text_or_json(settings)
    if options.steps < 0:
        raise UsageError(f"--steps {options.steps}: expected 0 or more")
    options.all = False
    found, _ = read(options, settings)
    reach = found.coverage or Coverage(0, 0)
    steps = shortest(reach.waiting, options.steps)
    code = EXIT_OK if reach.judged else EXIT_NO_DATA
    if as_json:
        told = {"schema": 1, "rules": reach.rules, "judged": reach.judged, "near": [asdict(one) for one in reach.near]}
        print(dumps(told | {"steps": [asdict(one) for one in steps], "ways": [asdict(one) for one in reach.lights]}))
        return code
    reached = reach.judged + sum(len(step.rules) for step in steps)
    then = f"; with all of these {reached}:" if steps else ""
    print(f"{reach.judged} of {reach.rules} rules can speak about {lines_printable(str(found.source['target']))}{then}")
    for step in steps:
        print(f"  +{len(step.rules):<3} {' and '.join(step.ways)}\n       ({', '.join(step.rules)})")
    for near in reach.near:
        print(f"  near {near_line(near)}")
    if reached < reach.rules:
        print(f"{reach.rules - reached} more need other things, three or more at once, or what this engine cannot tell")
    return code
