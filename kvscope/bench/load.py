"""Load an OpenAI-compatible server and measure what its users would see: TTFT, TPOT, ITL, E2E, throughput, goodput.

--clients keeps so many requests outstanding (closed loop), --rate sends so many a second whatever happens (open loop,
Poisson), --trace replays a log. Lengths are a long tail by default: 70 % below 2K tokens, 20 % to 16K, 10 % above,
shrunk to what the server takes. Answers are generated to their full length. Warm-up is sent, shown and discarded.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvscope.bench._load_plan import LoadPlan
    from kvscope.bench._load_run import LevelRun
    from kvscope.bench.client.server import Server
    from kvscope.bench.result.result import Result

CLIENTS = "1,2,4,8"
QUICK_CLIENTS, QUICK_REQUESTS, QUICK_OUT, QUICK_LONGEST = "1,4", 12, "32", 2048


def configure(parser: argparse.ArgumentParser) -> None:
    """The server, the levels, the requests."""
    add = parser.add_argument
    add("url", metavar="URL", help="an OpenAI-compatible server, http://host:port")
    add("--clients", metavar="N,…", help=f"closed loop: requests outstanding, one level each ({CLIENTS})")
    add("--rate", metavar="R,…", help="open loop: arrivals a second (Poisson), one level each")
    add("--trace", metavar="FILE", help="open loop: requests and arrivals of a log, JSON or CSV")
    add("--speed", type=float, metavar="X", help="replay --trace at so many times its speed (1)")
    add("--mix", metavar="SPEC", help="prompt lengths, PERCENT:LOW-HIGH,… (70:128-2K,20:2K-16K,10:16K-64K)")
    add("--longest", type=int, metavar="N", help="shrink the mix so that no prompt is longer")
    add("--output-tokens", metavar="N", help="tokens of an answer, N or LOW-HIGH (64)")
    add("--requests", type=int, metavar="N", help="measured at each level (4 a client, at least 20)")
    add("--warmup", type=int, metavar="N", help="sent first and discarded (one a client, at least 2)")
    add("--turns", type=int, default=1, metavar="N", help="conversations of so many turns, with --clients (1)")
    add("--shared-prefix", type=int, default=0, metavar="N", help="tokens that all prompts start with (0)")
    add("--slo", default="ttft=1s,tpot=100ms", metavar="SPEC", help="limits of goodput (ttft=1s,tpot=100ms)")
    add("--repeat", type=int, default=1, metavar="N", help="run every level so often, for an A/A floor (1)")
    add("--seed", type=int, default=0, metavar="N", help="of lengths, content and arrivals (0)")
    add("--model", default="", metavar="NAME", help="model to ask for (the first that is served)")
    add("--text", action="store_true", help="prompts as text instead of token numbers; lengths become approximate")
    add("--no-ignore-eos", action="store_true", help="let answers end where the model ends them")
    add("--key-env", metavar="NAME", help="environment variable with the server's key")
    add("--timeout", type=float, default=600.0, metavar="S", help="give a request up after this long (600)")
    add("--watch", metavar="TARGET", help="read KV, queue and power here (the server's own page); 'none' for nothing")
    add("--log", metavar="FILE", help="keep finished levels; with the same settings an interrupted run goes on")
    add("--quick", action="store_true", help="two small levels, under two minutes on a laptop's engine")


def measure(options: argparse.Namespace) -> Result:
    """Run every level and return the result."""
    import asyncio
    import os

    from kvscope.bench import _load_result
    from kvscope.bench._load_measures import measures, parse_slo
    from kvscope.bench._load_watch import open_watch
    from kvscope.bench.client.http import address_of
    from kvscope.bench.client.server import find_server

    slo, address = parse_slo(options.slo), address_of(options.url)
    key = os.environ.get(options.key_env, "") if options.key_env else ""
    server = asyncio.run(find_server(address, options.model, key))
    plan = _plan(options, server)
    watch = open_watch(None if options.watch == "none" else options.watch or address.text)
    try:
        runs = _run(options, plan, server, watch)
    finally:
        watch.close()
    by_level: dict[str, list[LevelRun]] = {}
    for run in runs:
        by_level.setdefault(run.level.key, []).append(run)
    tags = {"url": address.text, "model": server.model, "workload": _workload(plan)}
    settings = {**plan.as_json(), "slo": options.slo, "prompts": "text" if options.text else "token numbers"}
    return _load_result.make([measures(same, slo) for same in by_level.values()], plan, tags, settings, watch)


def _plan(options: argparse.Namespace, server: Server) -> LoadPlan:
    from pathlib import Path

    from kvscope.bench._load_plan import LoadPlan, fitting, levels_of, range_of
    from kvscope.bench.workload import lengths
    from kvscope.bench.workload.trace import read_trace
    from kvscope.errors import UsageError

    _check(options)
    quick = options.quick
    trace = tuple(read_trace(Path(options.trace))) if options.trace else ()
    if trace and any(one.arrival_s is None for one in trace):
        raise UsageError(f"{options.trace}: not every request says when it came; use --mix for its lengths instead")
    clients = options.clients or (None if options.rate or trace else QUICK_CLIENTS if quick else CLIENTS)
    tokens_out = range_of(options.output_tokens or (QUICK_OUT if quick else "64"), "--output-tokens")
    bands = lengths.parse(options.mix) if options.mix else lengths.DEFAULT
    longest = options.longest or (QUICK_LONGEST if quick else None)
    return LoadPlan(
        levels_of(clients, options.rate, (options.speed or 1.0) if trace else None),
        fitting(bands, longest, server.longest, tokens_out[1]),
        tokens_out,
        options.requests or (QUICK_REQUESTS if quick else None),
        options.warmup,
        options.seed,
        options.repeat,
        options.turns,
        shared=options.shared_prefix,
        trace=trace,
    )


def _check(options: argparse.Namespace) -> None:
    from kvscope.errors import UsageError

    for name, least in (("requests", 2), ("warmup", 0), ("turns", 1), ("repeat", 1), ("longest", 16)):
        value = getattr(options, name)
        if value is not None and value < least:
            raise UsageError(f"--{name} {value}: expected at least {least}")
    if options.speed is not None and not options.trace:
        raise UsageError("--speed without --trace: expected the trace to replay")
    if options.trace and (options.clients or options.rate):
        raise UsageError("--trace brings its own arrivals; expected no --clients and no --rate beside it")
    if options.turns > 1 and (options.text or options.rate or options.trace):
        raise UsageError("--turns: expected --clients and prompts as token numbers")


def _run(options: argparse.Namespace, plan: LoadPlan, server: Server, watch: object) -> list[LevelRun]:
    import asyncio
    from dataclasses import replace
    from pathlib import Path

    from kvscope.bench._load_log import LoadLog
    from kvscope.bench._load_run import run_level, words_per_token
    from kvscope.bench._load_watch import Watch
    from kvscope.errors import NotEnoughData, SourceError
    from kvscope.progress import Line

    assert isinstance(watch, Watch)
    server = replace(server, timeout_s=options.timeout, ignore_eos=not options.no_ignore_eos)
    about = {"url": server.address.text, "model": server.model, **plan.as_json()}
    log = LoadLog(Path(options.log) if options.log else None, about)
    line, found, words = Line(), [], None
    try:
        if options.text:
            words = asyncio.run(words_per_token(server, plan.seed))
        for level in plan.levels:
            for repeat in range(plan.repeat):
                known = log.get(level, repeat)
                if known is None:
                    total = len(plan.pairs(level)) * plan.turns
                    head = f"{level.label}{f', pass {repeat + 1}' if plan.repeat > 1 else ''}"
                    tell = lambda done, head=head, total=total: line.show(f"{head}: {done} of {total} requests")  # noqa: E731
                    with watch.level(level.key):
                        known = asyncio.run(run_level(server, plan, level, repeat, words, tell))
                    if not any(one.ok for one in known.outcomes):
                        raise NotEnoughData(f"{level.label}: every request failed: {known.outcomes[0].error}")
                    log.add(known)
                found.append(known)
    except ValueError as error:
        raise SourceError(f"{server.address.text}: {error}; expected usage, to count a text's tokens") from None
    finally:
        line.wipe()
    return found


def _workload(plan: LoadPlan) -> str:
    if plan.trace:
        return f"trace of {len(plan.trace)} requests"
    mix = ",".join(f"{100 * band.share:g}%:{band.low}-{band.high}" for band in plan.bands)
    return f"{mix} -> {plan.tokens_out[0]}-{plan.tokens_out[1]}"
