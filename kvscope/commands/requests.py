"""Explain single requests: where the time of the slowest went, whom it waited for, what was lost meanwhile.

Targets that tell single requests: the built-in engine, vLLM with `kvscope`'s probe, spans saved by an OpenTelemetry
collector (JSON), SGLang's --export-metrics-to-file, llama.cpp's log, a recording of any of these.
"""

from __future__ import annotations

import argparse

GROUP = "watch an engine"
EXAMPLES = ("kvscope requests spans.jsonl", "kvscope requests run.db --by queue --nth 2")


def configure(parser: argparse.ArgumentParser) -> None:
    """A target, and which of its requests."""
    from kvscope.commands._options import add_target, add_timing

    add_target(parser)
    parser.add_argument("--by", default="total", help="slowest by total, queue, ttft or tpot (total)")
    parser.add_argument("--nth", type=int, default=1, metavar="N", help="explain the N-th slowest (1)")
    parser.add_argument("--list", type=int, default=10, metavar="N", help="list so many of the slowest (10)")
    parser.add_argument("--format", help="text or json (text)")
    add_timing(parser)


_BY = {"total": "", "queue": "sched.queue_time", "ttft": "latency.ttft", "tpot": "latency.tpot"}


def run(options: argparse.Namespace) -> int:
    """Print the slowest requests and explain one; exit code 4 where the target tells no single request."""
    from contextlib import closing
    from json import dumps
    from shutil import get_terminal_size
    from textwrap import fill as wrapped

    from kvscope.amounts import amount, clock
    from kvscope.commands._options import settings_of, text_or_json
    from kvscope.errors import EXIT_NO_DATA, EXIT_OK, NotEnoughData, UsageError, nearest
    from kvscope.requests import explain, finished
    from kvscope.sources import open_target
    from kvscope.store import Store
    from kvscope.watch import collect, fill
    from probes.border import lines_printable

    settings = settings_of(options)
    as_json = text_or_json(settings)
    if options.by not in _BY:
        raise UsageError(f"--by {options.by}: expected {', '.join(_BY)}{nearest(options.by, list(_BY))}")
    store = Store()
    with closing(open_target(options.target, machine=True)) as source:
        fill(store, collect(source, settings))
    everything = list(finished(store).values())
    figures = [one.whole if options.by == "total" else one.get(_BY[options.by]) for one in everything]
    ranked = [(-figure, one.t, one) for figure, one in zip(figures, everything, strict=True) if figure is not None]
    measured = [one for *_, one in sorted(ranked, key=lambda place: place[:2])]
    if not measured:
        what = f"no request with {options.by}" if everything else "no finished request"
        raise NotEnoughData(f"{options.target}: {what}; a page tells no single request (see kvscope requests --help)")
    if not 1 <= options.nth <= len(measured):
        raise UsageError(f"--nth {options.nth}: expected 1 to {len(measured)}")
    told = explain(measured[options.nth - 1], everything, store)
    if as_json:
        rows = [{"ended_s": one.t, **one.row} for one in measured[: options.list]]
        print(
            dumps(
                {
                    "schema": 1,
                    "requests": len(everything),
                    "slowest": rows,
                    "explained": {
                        "ended_s": told.request.t,
                        "parts": dict(told.parts),
                        "lines": list(told.lines),
                        "missing": list(told.missing),
                    },
                }
            )
        )
        return EXIT_OK
    print(f"{len(everything)} finished requests in {lines_printable(options.target)}; slowest by {options.by}:")
    print("       ended       in     out     queue      TTFT      TPOT     total")
    for place, one in enumerate(measured[: options.list], 1):
        sizes = ["      –" if n is None else f"{n:7.0f}" for n in (one.prompt, one.get("request.tokens_out"))]
        times = [*(one.get(name) for name in _TIMES), one.whole]
        print(f"{place:4d}   {clock(one.t)} {' '.join(sizes)} {' '.join(map(_cell, times))}")
    whole = sum(value for _, value in told.parts)
    shares = [f"{name} {amount(value, 's')} ({value / whole:.0%})" for name, value in told.parts if whole]
    print(f"\nnumber {options.nth}: {', '.join(shares) or 'where its time went is not known'}")
    width = min(get_terminal_size().columns, 120)
    for line in (*told.lines, *(f"not known: {line}" for line in told.missing)):
        print(wrapped(line, width, initial_indent="  ", subsequent_indent="    "))
    return EXIT_OK if told.parts else EXIT_NO_DATA


_TIMES = ("sched.queue_time", "latency.ttft", "latency.tpot")


def _cell(value: float | None) -> str:
    from kvscope.amounts import amount

    return f"{'–' if value is None else amount(value, 's'):>9}"
