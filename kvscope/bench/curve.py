"""Measure how many bytes of KV real requests hold by length, and fit the coefficients that admission should use.

Without --url the built-in engine is started and measured uncompressed and compressed; then the same long-tail load
runs at equal memory under static admission, under the measured curve, and under a quarter for all lengths. With --url
only the lengths are measured, from what that server's page says. Nothing else may use the server meanwhile. Where a
prefix cache counts blocks of ended requests as held (the built-in engine does, vLLM does not) they are taken off.
"""

from __future__ import annotations

import argparse
from contextlib import closing
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kvscope.bench._curve_admission import Admitted
    from kvscope.bench._curve_fit import Fit, Point
    from kvscope.bench._curve_log import CurveLog
    from kvscope.bench._curve_meter import Held, Meter
    from kvscope.bench.client.server import Server
    from kvscope.bench.result.result import Result
    from kvscope.sources.builtin import BuiltinEngine

LENGTHS = (48, 96, 192, 384, 768, 1024, 2048, 4096, 8192, 16384)
QUICK_LENGTHS = (48, 96, 192, 384, 768, 1024, 2048, 4096)
POOL_REQUESTS = 3
"""The engine's pool holds so many uncompressed requests of the longest length."""
CLIENTS, REQUESTS, QUICK_REQUESTS, TOKENS_OUT = 64, 192, 128, 32
ENOUGH = 0.01
"""Preempted requests that a margin may leave."""
MARGINS = (0.15, 0.3, 0.5, 0.8)
PACKED = {"policy": "combined", "kernels": "block"}


def configure(parser: argparse.ArgumentParser) -> None:
    """What is measured, and how long."""
    add = parser.add_argument
    add("--url", metavar="URL", help="measure this OpenAI-compatible server by its page instead of the built-in engine")
    add("--lengths", metavar="N,…", help="tokens of the requests (48 to 16K)")
    add("--repeat", type=int, default=2, metavar="N", help="requests of each length, each of other content (2)")
    add("--set", action="append", default=[], metavar="NAME=VALUE", help="knobs of the compressed engine")
    add("--threads", type=int, default=2, help="threads of the engine (2)")
    add("--seed", type=int, default=0, help="of the requests' content (0)")
    add("--curve-file", metavar="FILE", help="write the coefficients here, for the engine's knob curve")
    add("--log", metavar="FILE", help="keep what is finished; with the same settings an interrupted run goes on")
    add("--quick", action="store_true", help="short requests only, under two minutes on a laptop")


def measure(options: argparse.Namespace) -> Result:
    """Measure, fit, and with the built-in engine show what admission by the curve does."""
    from kvscope.errors import UsageError

    if options.repeat < 1:
        raise UsageError(f"--repeat {options.repeat}: expected at least 1")
    lengths = _lengths(options)
    return _of_url(options, lengths) if options.url else _of_engine(options, lengths)


def _lengths(options: argparse.Namespace) -> list[int]:
    from kvscope.amounts import token_count

    if not options.lengths:
        return list(QUICK_LENGTHS if options.quick else LENGTHS)
    return sorted({token_count(part, "--lengths") for part in options.lengths.split(",")})


def _of_url(options: argparse.Namespace, lengths: Sequence[int]) -> Result:
    import asyncio

    from kvscope.bench import _curve_result
    from kvscope.bench._curve_fit import fit
    from kvscope.bench._curve_meter import Meter
    from kvscope.bench.client.http import address_of
    from kvscope.bench.client.server import find_server
    from kvscope.sources import open_target

    address = address_of(options.url)
    server = asyncio.run(find_server(address))
    with closing(open_target(address.text)) as source:
        meter = Meter(server, source)
        held = _hold(meter, _within(lengths, server), options, "", _log(options, lengths, address.text))
        room = meter.capacity_tokens
    points = points_of(held, _full_size(held))
    found = fit(points)
    _write_curve(options, found)
    tags = {"url": address.text, "model": server.model}
    return _curve_result.make([], held, points, found, [], tags, {"lengths": list(lengths)}, room)


def _of_engine(options: argparse.Namespace, lengths: Sequence[int]) -> Result:
    import asyncio

    from kvscope.bench import _curve_result
    from kvscope.bench._curve_fit import fit
    from kvscope.bench._curve_meter import Meter
    from kvscope.bench.client.http import Address
    from kvscope.bench.client.server import find_server
    from kvscope.progress import waiting
    from kvscope.sources import open_target
    from kvscope.sources.builtin import BuiltinEngine, split_knobs

    packed = {**PACKED, **split_knobs(options.set)}
    knobs = {"load.clients": "0", "prefix_cache": "off", "max_running": "256", "policy": "full"}
    longest, log = max(lengths) + TOKENS_OUT, _log(options, lengths, "")
    flags = ("--threads", str(options.threads), "--max-context", str(longest), "--pool-mib", str(_pool_mib(longest)))
    with waiting("starting the engine") as tick:
        engine = BuiltinEngine.start(knobs, flags, tick)
    try:
        server = asyncio.run(find_server(Address("127.0.0.1", engine.port, False, "")))
        with closing(open_target(str(engine.ring))) as source:
            meter = Meter(server, source)
            dense = _hold(meter, lengths, options, "uncompressed, ", log)
            _set(engine, packed)
            held = _hold(meter, lengths, options, "compressed, ", log)
            points = points_of(held, _full_size(dense))
            found = fit(points)
            admitted = _admissions(engine, server, found, options, longest, log)
            found = with_margin(found, admitted)
    finally:
        engine.stop(keep_recorder=False)
    _write_curve(options, found)
    tags = {"engine": "kvscope-engine", "model": server.model, **{k: v for k, v in packed.items() if k == "policy"}}
    return _curve_result.make(dense, held, points, found, admitted, tags, {"pool MiB": _pool_mib(longest), **packed})


def points_of(held: Sequence[Held], full: float) -> list[Point]:
    """Return one point a length, as parts of ``full`` a token."""
    from kvscope.bench._curve_fit import Point

    found = []
    for tokens in sorted({one.tokens for one in held}):
        same = [one.amount / (one.tokens * full) for one in held if one.tokens == tokens]
        found.append(Point(tokens, min(same), sum(same) / len(same), max(same)))
    return found


def _full_size(held: Sequence[Held]) -> float:
    """What a token takes in the longest requests, where rounding to blocks weighs least."""
    longest = max(one.tokens for one in held)
    same = [one.amount / one.tokens for one in held if one.tokens == longest]
    return sum(same) / len(same)


def _log(options: argparse.Namespace, lengths: Sequence[int], url: str) -> CurveLog:
    from pathlib import Path

    from kvscope.bench._curve_log import CurveLog

    about = {"url": url, "lengths": list(lengths), "repeat": options.repeat, "set": options.set, "seed": options.seed}
    return CurveLog(Path(options.log) if options.log else None, {**about, "quick": options.quick})


def _hold(meter: Meter, lengths: Sequence[int], options: argparse.Namespace, what: str, log: CurveLog) -> list[Held]:
    from kvscope.progress import Line

    line, found = Line(), []
    try:
        for number, tokens in enumerate(lengths):
            for repeat in range(options.repeat):
                line.show(f"{what}{tokens} tokens ({number + 1} of {len(lengths)} lengths)")
                held = log.held(what, tokens, repeat)
                if held is None:
                    seed = options.seed + 1000 * repeat + number
                    held = meter.hold(max(1, tokens - TOKENS_OUT), TOKENS_OUT, seed)
                    log.add_held(what, tokens, repeat, held)
                found.append(held)
    finally:
        line.wipe()
    return found


def _admissions(
    engine: BuiltinEngine, server: Server, found: Fit, options: argparse.Namespace, longest: int, log: CurveLog
) -> list[Admitted]:
    from kvscope.bench._curve_admission import admit
    from kvscope.bench.workload import lengths as mix
    from kvscope.bench.workload.prompts import make_asks
    from kvscope.progress import Line
    from kvscope.sources import open_target

    bands = mix.scaled(mix.DEFAULT, longest - TOKENS_OUT)
    count = QUICK_REQUESTS if options.quick else REQUESTS
    asks = make_asks([(n, TOKENS_OUT) for n in mix.draw(bands, count, options.seed)], options.seed, None, 0)
    line = Line()
    results: list[Admitted] = []
    try:
        for name, knobs in _ways(found):
            if name == "curve" and any(one.name == name and one.preempted <= ENOUGH for one in results):
                continue
            if (done := log.admitted(name, knobs)) is not None:
                results.append(done)
                continue
            with closing(open_target(str(engine.ring))) as source:
                tell = lambda done, name=name: line.show(f"admission {name}: {done} of {count} requests")  # noqa: E731
                change = lambda wanted: _set(engine, wanted)  # noqa: E731
                results.append(admit(name, knobs, change, server, source, asks, CLIENTS, tell))
            log.add_admitted(knobs, results[-1])
    finally:
        line.wipe()
    return results


def with_margin(found: Fit, admitted: Sequence[Admitted]) -> Fit:
    """Return the fit with the margin that the load needed: a request takes more while its prompt is read."""
    from dataclasses import replace

    tried = [one.margin for one in admitted if one.name == "curve"]
    return replace(found, margin=max(tried)) if tried else found


def _ways(found: Fit) -> list[tuple[str, dict[str, str]]]:
    """Static, the curve with rising margins (the first that is enough ends them), a quarter for all lengths."""
    curve = {"admission": "curve", "curve": found.text}
    margins = sorted({min(1.0, found.margin), *(margin for margin in MARGINS if margin > found.margin)})
    return [
        ("static", {"admission": "static"}),
        *(("curve", {**curve, "curve_margin": f"{margin:.4f}"}) for margin in margins),
        ("quarter", {"admission": "curve", "curve": "0:0.25", "curve_margin": "0"}),
    ]


def _set(engine: BuiltinEngine, knobs: Mapping[str, str]) -> None:
    assert engine.control is not None
    engine.control.set(knobs)


def _within(lengths: Sequence[int], server: Server) -> list[int]:
    from kvscope.errors import UsageError

    found = [tokens for tokens in lengths if server.longest is None or tokens <= server.longest]
    if not found:
        raise UsageError(f"--lengths: the server takes {server.longest} tokens, expected a length up to that")
    return found


def _pool_mib(longest: int) -> int:
    """The shipped model keeps 4 KiB a token: 4 layers × 2 KV heads × 64 × keys and values × 4 bytes."""
    return max(16, POOL_REQUESTS * longest * 4 // 1024 + 1)


def _write_curve(options: argparse.Namespace, found: Fit) -> None:
    import json
    from pathlib import Path

    from kvscope.bench.result.result import write

    if options.curve_file:
        content = {"curve": [list(piece) for piece in found.pieces], "margin": round(found.margin, 4)}
        write(Path(options.curve_file), json.dumps(content) + "\n")
