"""Watch targets for findings and tell somebody when one begins and ends; a line of JSON on stdout for each.

A finding begins when it was as strong as --on for --hold seconds without a break and ends when it was clearly gone
for --clear seconds: noise around a bound is one alert, not many. A target that does not answer is one too
(target-down), and is tried again for ever. --record keeps the minutes before each. Addresses to tell are on this
machine unless --allow-remote. A service manager's unit and a container: docs/watch.md.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvscope.account import Facts
    from kvscope.alerts import Event, Watched
    from kvscope.config import Settings
    from kvscope.delivery import Channel
    from kvscope.sources.source import Source
    from kvscope.store import Store
    from kvscope.telemetry import Telemetry

GROUP = "watch an engine"
EXAMPLES = (
    "kvscope watch http://localhost:8000 --alertmanager http://localhost:9093",
    "kvscope watch prom+http://localhost:9090 --on possible --record /var/lib/kvscope --exec notify-oncall",
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Targets, what counts, whom to tell."""
    from kvscope.commands._options import TARGET_HELP, add_access, add_playbooks, add_slo, add_timing
    from kvscope.commands._told import add_told

    add = parser.add_argument
    add("targets", nargs="+", metavar="TARGET", help=TARGET_HELP)
    add("--on", metavar="VERDICT", help="a finding counts at this verdict or a stronger one (likely)")
    add("--every", type=float, default=10.0, metavar="S", help="seconds between two judgements (10)")
    add("--window", type=float, default=60.0, metavar="S", help="seconds that are judged (60)")
    add("--hold", type=float, default=30.0, metavar="S", help="how long it must hold to begin (30)")
    add("--clear", type=float, default=120.0, metavar="S", help="how long it must be gone to end (120)")
    add("--baseline", metavar="TARGET", help="compare with this (a recording of when it was well)")
    add("--record", metavar="DIR", help="write the minutes before each finding to a recording here (the newest 50)")
    add("--before", type=float, default=300.0, metavar="S", help="how much of it (300)")
    add("--duration", type=float, metavar="S", help="stop after this many seconds (default: never)")
    add("--webhook", metavar="URL", action="append", default=[], help="POST each event there as JSON")
    add("--alertmanager", metavar="URL", action="append", default=[], help="keep this Alertmanager told (API v2)")
    add("--otel", metavar="URL", help="signals and findings over OTLP/HTTP to this collector (extra `otel`)")
    add("--label", metavar="NAME=VALUE", action="append", default=[], help="a label of every alert: severity=page")
    add("--notify-bearer-env", metavar="VAR", help="send the token that this variable holds to those told")
    add("--allow-remote", action="store_true", help="the addresses to tell may be other machines")
    add(
        "--exec",
        dest="program",
        nargs=argparse.REMAINDER,
        metavar="PROGRAM ARG…",
        help="run this for each event, the event as JSON on its standard input (last on the line; no shell)",
    )
    add_access(parser)
    add_told(parser)
    add_slo(parser)
    add_playbooks(parser)
    add_timing(parser, duration=False)


def run(options: argparse.Namespace) -> int:
    """Watch until Ctrl-C or SIGTERM, or until every target is over; exit 1 where a finding still holds then."""
    import json
    import signal
    import sys
    from contextlib import ExitStack, suppress

    from kvscope.commands._options import settings_of
    from kvscope.delivery import Courier
    from kvscope.errors import EXIT_FINDING, EXIT_OK

    settings = settings_of(argparse.Namespace(**{**vars(options), "fail_on": options.on, "duration": None}))

    def say(line: str) -> None:
        print(f"kvscope: {line}", file=sys.stderr, flush=True)

    with ExitStack() as stack:
        watched = _watched(options, settings)
        otel = _telemetry(options)
        if otel:
            stack.callback(otel.close)
        couriers = [Courier(channel, say) for channel in _channels(options)]
        for courier in couriers:
            stack.callback(courier.close)
        holding: set[tuple[str, str]] = set()

        def tell(event: Event) -> None:
            told = event.as_json()
            print(json.dumps(told), flush=True)
            (holding.discard if event.event == "ended" else holding.add)((event.target, event.id))
            for courier in couriers:
                courier.send(told)
            if otel:
                otel.send(told)

        before = signal.signal(signal.SIGTERM, signal.default_int_handler)
        stack.callback(signal.signal, signal.SIGTERM, before)
        with suppress(KeyboardInterrupt):
            _rounds(watched, settings.interval, options.duration, tell, say, otel)
        for one in watched:
            one.close()
    return EXIT_FINDING if holding else EXIT_OK


def _rounds(
    watched: list[Watched],
    interval_s: float,
    limit_s: float | None,
    tell: Callable[[Event], None],
    say: Callable[[str], None],
    otel: Telemetry | None,
) -> None:
    """Have every target polled in a thread of its own, so that none waits for another; tell from this one."""
    import queue
    import threading
    import time

    came: queue.Queue[tuple[Watched, list[Event]] | BaseException] = queue.Queue()
    ending = threading.Event()

    def follow(one: Watched) -> None:
        try:
            while not ending.is_set():
                came.put((one, one.poll()))
                if one.ended:
                    return
                ending.wait(interval_s)
        except BaseException as error:
            came.put(error)

    threads = [threading.Thread(target=follow, args=(one,), name="kvscope-watch", daemon=True) for one in watched]
    for thread in threads:
        thread.start()
    began, sent = time.monotonic(), dict.fromkeys(range(len(watched)), 0.0)
    try:
        while any(thread.is_alive() for thread in threads) or not came.empty():
            if limit_s is not None and time.monotonic() - began >= limit_s:
                break
            try:
                found = came.get(timeout=0.5)
            except queue.Empty:
                continue
            if isinstance(found, BaseException):
                raise found
            one, events = found
            while one.notices:
                say(f"{one.target}: {one.notices.popleft()}")
            for event in events:
                tell(event)
            diagnosis = one.diagnosis
            index = watched.index(one)
            if otel and diagnosis and diagnosis.segments and sent[index] != diagnosis.segments[-1].end_s:
                sent[index] = diagnosis.segments[-1].end_s
                otel.update(one.target, diagnosis.segments[-1].signals)
    finally:
        ending.set()
        for thread in threads:
            thread.join(2.0)


def _watched(options: argparse.Namespace, settings: Settings) -> list[Watched]:
    from contextlib import closing
    from dataclasses import replace
    from functools import partial
    from pathlib import Path

    from kvscope.alerts import Rhythm, Watched
    from kvscope.errors import UsageError
    from kvscope.slo import parse
    from kvscope.sources import open_target
    from kvscope.watch import collect, load_playbooks

    rhythm = Rhythm(settings.fail_on, options.every, options.window, options.hold, options.clear, options.before)
    baseline = None
    if options.baseline:
        with closing(open_target(options.baseline)) as source:
            baseline = (collect(source, replace(settings, duration=options.window)), source.describe().tags)
    if len(set(options.targets)) < len(options.targets):
        raise UsageError("a target is named twice; expected each once")
    books, slo = load_playbooks(settings), parse(settings.slo)
    folder = Path(options.record) if options.record else None
    found = []
    for target in options.targets:
        told = argparse.Namespace(**{**vars(options), "target": target})
        found.append(
            Watched(
                target,
                partial(_open, told),
                books,
                rhythm,
                slo,
                partial(_facts, told),
                baseline,
                folder,
            )
        )
    return found


def _open(told: argparse.Namespace) -> Source:
    from kvscope.commands._told import with_told
    from kvscope.sources import open_target

    return with_told(open_target(told.target, machine=True, follow=True), told)


def _facts(told: argparse.Namespace, source: Source, store: Store) -> Facts:
    from kvscope.account.found import facts_of

    return facts_of(told.target, source.describe(), store, told.config, told.gpu)


def _headers(options: argparse.Namespace) -> dict[str, str]:
    import os

    from kvscope.errors import UsageError

    name = options.notify_bearer_env
    if not name:
        return {}
    token = os.environ.get(name, "").strip()
    if not token or not token.isascii() or not token.isprintable():
        raise UsageError(f"--notify-bearer-env {name}: expected a variable that holds the token")
    return {"Authorization": f"Bearer {token}"}


def _channels(options: argparse.Namespace) -> list[Channel]:
    from kvscope.commands._told import tags_of
    from kvscope.delivery import Alertmanager, Program, Webhook, checked_url
    from kvscope.errors import UsageError

    headers, labels = _headers(options), tags_of(options.label, "--label")
    checked = [
        (checked_url(url, option, remote=options.allow_remote), option)
        for option, urls in (("--webhook", options.webhook), ("--alertmanager", options.alertmanager))
        for url in urls
    ]
    found: list[Channel] = [
        Webhook(url, headers) if option == "--webhook" else Alertmanager(url, headers, labels=labels)
        for url, option in checked
    ]
    if options.program is not None:
        if not options.program:
            raise UsageError("--exec: expected PROGRAM ARG…")
        found.append(Program(options.program))
    return found


def _telemetry(options: argparse.Namespace) -> Telemetry | None:
    if not options.otel:
        return None
    from kvscope.delivery import checked_url
    from kvscope.telemetry import Telemetry

    return Telemetry(checked_url(options.otel, "--otel", remote=options.allow_remote), _headers(options))
