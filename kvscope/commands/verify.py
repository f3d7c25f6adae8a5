"""Check whether a finding's experiment keeps its promise: baseline, control, one change, and back again.

TARGET is the pid of a built-in engine, whose knobs are turned for you and put back afterwards (--keep leaves them);
without TARGET one is started with --fault NAME. On any other target judge what you did yourself: mark two segments
(`kvscope mark`), then `kvscope verify TARGET --before SEGMENT --after SEGMENT`.

A change counts when it is larger than three standard errors and than the difference between stretches in which nothing
was changed (A/A). exit codes: 0 confirmed · 1 refuted · 4 cannot tell, or nothing found to verify · 2 usage ·
3 target unreachable · 130 interrupted (the knobs are put back).
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvscope.config import Settings
    from kvscope.playbook import Playbook
    from kvscope.sources.source import Source
    from kvscope.verification import Verification

SECONDS, STEPS = 10.0, 200
GROUP = "compare and verify"
EXAMPLES = ("kvscope verify after.db --before before --after after",)


def configure(parser: argparse.ArgumentParser) -> None:
    """TARGET or --fault, what to verify, how long."""
    from kvscope.commands._options import TARGET_HELP, add_playbooks

    add = parser.add_argument
    add("target", nargs="?", metavar="TARGET", help=TARGET_HELP)
    add("--fault", metavar="NAME", help="start a built-in engine with this known trouble")
    add("--finding", default="", metavar="ID", help="playbook whose experiment to try (the strongest finding)")
    add("--set", action="append", default=[], metavar="NAME=VALUE", help="turn this instead of what the playbook says")
    add("--seconds", type=float, default=SECONDS, metavar="S", help=f"length of each stretch, at least ({SECONDS:g})")
    add("--keep", action="store_true", help="leave the change in place")
    add("--before", metavar="SEGMENT", help="of a target that was changed by hand: the segment before")
    add("--after", metavar="SEGMENT", help="and the one after")
    add("--control", action="append", default=[], metavar="SEGMENT", help="a stretch set up as --before, for A/A")
    add("--format", help="text or json (text)")
    add_playbooks(parser)


def run(options: argparse.Namespace) -> int:
    """Print the outcome; the exit code is its answer."""
    from kvscope import verification_report as report
    from kvscope.commands._options import settings_of, text_or_json
    from kvscope.errors import UsageError
    from kvscope.progress import Line
    from kvscope.watch import load_playbooks

    settings = settings_of(options)
    as_json = text_or_json(settings)
    if not 1 <= options.seconds <= 3600:
        raise UsageError(f"--seconds {options.seconds:g}: expected 1 to 3600")
    if bool(options.before) != bool(options.after):
        raise UsageError("--before and --after: expected both, the segment before a change and the one after")
    if bool(options.target) == bool(options.fault):
        raise UsageError("expected a TARGET, or --fault NAME to start an engine with")
    books, line = load_playbooks(settings), Line()
    try:
        if options.before:
            found = _by_hand(options, settings, books)
        else:
            found = _on_engine(options, books, line.show)
    finally:
        line.wipe()
    print(report.as_json(found) if as_json else report.as_text(found, keep=options.keep))
    return report.EXIT_CODES[found.outcome]


def _by_hand(options: argparse.Namespace, settings: Settings, books: tuple[Playbook, ...]) -> Verification:
    from contextlib import closing

    from kvscope.compare import named
    from kvscope.diagnose import diagnose
    from kvscope.errors import UsageError
    from kvscope.experiment import choose, rule_of
    from kvscope.sources import open_target
    from kvscope.store import Store
    from kvscope.verification import verify_change
    from kvscope.watch import collect, fill

    if options.fault or options.set or options.keep:
        raise UsageError(
            "--before and --after judge what you changed; expected no --fault, --set or --keep beside them"
        )
    store = Store()
    with closing(open_target(options.target)) as source:
        fill(store, collect(source, settings))
        about = source.describe()
    before, after = (named(store.segments, name) for name in (options.before, options.after))
    controls = [named(store.segments, name) for name in options.control]
    found = diagnose(store, books, about, current=before.name, include_silent=True)
    finding = choose(found, books, options.finding, knobs=False)
    return verify_change(finding, rule_of(books, finding.id), store, before, after, controls)


def _on_engine(options: argparse.Namespace, books: tuple[Playbook, ...], tell: Callable[[str], None]) -> Verification:
    from contextlib import ExitStack, closing
    from pathlib import Path

    from kvscope import faults
    from kvscope.errors import UsageError
    from kvscope.sources import open_target
    from kvscope.sources.builtin import BuiltinEngine
    from kvscope.sources.control import EngineControl

    with ExitStack() as stack:
        if options.fault:
            fault = faults.get(options.fault)
            engine = BuiltinEngine.start(fault.knobs, fault.options, lambda s: tell(f"starting the engine … {s:.0f} s"))
            stack.callback(engine.stop, keep_recorder=False)
            target = str(engine.ring)
        else:
            target = options.target
        source = stack.enter_context(closing(open_target(target)))
        about = source.describe()
        control = EngineControl(Path(about.target))
        if about.kind != "ring" or not about.alive or not control.available:
            raise UsageError(
                f"{target}: only a running built-in engine of this user can be changed from here; change it yourself, "
                "then: kvscope verify TARGET --before SEGMENT --after SEGMENT"
            )
        return _experiment(options, source, control, books, tell)


def _experiment(
    options: argparse.Namespace,
    source: Source,
    control: object,
    books: tuple[Playbook, ...],
    tell: Callable[[str], None],
) -> Verification:
    from kvscope import experiment
    from kvscope.laboratory import Laboratory, Length
    from kvscope.sources.builtin import split_knobs
    from kvscope.sources.control import EngineControl

    assert isinstance(control, EngineControl)
    length = Length(STEPS, options.seconds, 6 * options.seconds)
    lab = Laboratory(source, control, tell=tell)
    lab.settle("warming up", Length(40, 1.0, experiment.SETTLE_S), 8)
    knobs = split_knobs(options.set) if options.set else None
    return experiment.run(lab, books, experiment.Setup(length, options.finding, knobs, options.keep))
