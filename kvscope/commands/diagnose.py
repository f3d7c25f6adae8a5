"""Watch a target for a while and report what is wrong, how it is known, and what to try next.

A live target is watched for --duration seconds; a recording, a saved series or a dead engine's flight recorder is
read whole. --baseline compares with an earlier recording or another target.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvscope.config import Settings
    from kvscope.finding import Diagnosis
    from kvscope.store import Store

GROUP = "watch an engine"
EXAMPLES = (
    "kvscope diagnose http://localhost:8000 --duration 30",
    "kvscope diagnose after.db --baseline before.db --format json",
    "kvscope diagnose trace.json.gz --config config.json --gpu H200",
)


def configure(parser: argparse.ArgumentParser) -> None:
    """TARGET, what to compare it with, how to print it."""
    from kvscope.commands._options import add_report, add_target, add_timing
    from kvscope.commands._told import add_compared, add_told

    add_target(parser)
    add_told(parser)
    add_compared(parser)
    add_timing(parser)
    add_report(parser)


def run(options: argparse.Namespace) -> int:
    """Print the report on stdout; the exit code says whether a finding reached --fail-on."""
    import sys

    from kvscope import report
    from kvscope.commands._options import settings_of
    from kvscope.watch import exit_code

    settings = settings_of(options)
    render = report.get(settings.format)
    found, store = read(options, settings)
    how = {
        "text": {"colour": sys.stdout.isatty(), "everything": options.all},
        "html": {"store": store},
        "junit": {"fail_on": settings.fail_on},
        "sarif": {"fail_on": settings.fail_on},
    }
    print(render(found, **how.get(settings.format, {})))
    return exit_code(found, settings.fail_on)


def read(options: argparse.Namespace, settings: Settings) -> tuple[Diagnosis, Store]:
    """Watch what the options name and judge it; notices go to stderr as they would for a report."""
    import sys
    from contextlib import ExitStack, closing
    from dataclasses import replace

    from kvscope.account.found import facts_of
    from kvscope.commands._told import said_of, with_told
    from kvscope.diagnose import diagnose
    from kvscope.signals.replicas import outliers
    from kvscope.slo import parse
    from kvscope.sources import open_target
    from kvscope.state import complete
    from kvscope.store import Store
    from kvscope.watch import (
        collect,
        fill,
        fill_pair,
        load_playbooks,
        refuse_incomparable,
        segment_pair,
    )

    slo = parse(settings.slo)
    books, store = load_playbooks(settings), Store()
    with ExitStack() as stack:
        baseline = stack.enter_context(closing(open_target(options.baseline))) if options.baseline else None
        before = collect(baseline, settings) if baseline else None
        source = with_told(open_target(options.target, machine=True), options)
        stack.enter_context(closing(source))
        read, description = collect(source, settings), source.describe()
        if baseline and before:
            fill_pair(store, before, read, (baseline.describe().tags, description.tags))
            if baseline.describe().kind != description.kind:
                # What one kind of source tells and another does not is no fault of an exporter.
                books = tuple(book for book in books if book.triage != "trust")
        else:
            fill(store, read)
    notices = (*(before.notices if before else ()), *read.notices, *store.notices)
    pair = ("baseline", "current") if options.baseline else segment_pair(options.segments, store)
    facts = facts_of(options.target, description, store, options.config, options.gpu)
    said = said_of(options)
    found = diagnose(store, books, description, *pair, include_silent=options.all, facts=facts, said=said)
    if options.baseline:
        refuse_incomparable(found, options.baseline, options.target)
    found = replace(complete(found, store, slo), down=read.silent)
    found = replace(found, notices=(*notices, *outliers(store, store.segment(found.segments[-1].name)), *found.notices))
    # The text says them itself: on a terminal they would stand there twice.
    for notice in () if settings.format == "text" and sys.stdout.isatty() else notices:
        print(f"kvscope: {notice}", file=sys.stderr)
    return found, store
