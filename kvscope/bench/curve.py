"""Measure how many bytes of KV real requests hold by length, and fit the coefficients that admission should use.

Without --url the built-in engine is started and measured uncompressed and compressed; then the same long-tail load
runs at equal memory under static admission, under the measured curve, and under a quarter for all lengths. With --url
only the lengths are measured, from what that server's page says. Nothing else may use the server meanwhile. Where a
prefix cache counts blocks of ended requests as held (the built-in engine does, vLLM does not) they are taken off.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

from kvscope.amounts import token_count
from kvscope.bench._child import Log
from kvscope.bench._curve_measure import Admitted, Held, Meter, admit
from kvscope.bench.client.http import Address, address_of
from kvscope.bench.client.server import Server, find_server
from kvscope.bench.workload import lengths as mix
from kvscope.bench.workload.lengths import DEFAULT, draw, scaled
from kvscope.bench.workload.prompts import make_asks
from kvscope.errors import UsageError
from kvscope.progress import Line, waiting
from kvscope.result.result import Cell, Plot, Quantity, Result, Series, Table, write
from kvscope.sources import open_target
from kvscope.sources.builtin import BuiltinEngine, split_knobs

Finished = Log[Held | Admitted]
"""By what was done: what, tokens and repeat of a request; name and knobs of an admission."""
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
    if options.repeat < 1:
        raise UsageError(f"--repeat {options.repeat}: expected at least 1")
    lengths = _lengths(options)
    return _of_url(options, lengths) if options.url else _of_engine(options, lengths)


def _lengths(options: argparse.Namespace) -> list[int]:
    if not options.lengths:
        return list(QUICK_LENGTHS if options.quick else LENGTHS)
    return sorted({token_count(part, "--lengths") for part in options.lengths.split(",")})


def _of_url(options: argparse.Namespace, lengths: Sequence[int]) -> Result:
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
    return result_of([], held, points, found, [], tags, {"lengths": list(lengths)}, room)


def _of_engine(options: argparse.Namespace, lengths: Sequence[int]) -> Result:
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
    return result_of(dense, held, points, found, admitted, tags, {"pool MiB": _pool_mib(longest), **packed})


def points_of(held: Sequence[Held], full: float) -> list[Point]:
    """Return one point a length, as parts of ``full`` a token."""
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


def _log(options: argparse.Namespace, lengths: Sequence[int], url: str) -> Finished:
    about = {"url": url, "lengths": list(lengths), "repeat": options.repeat, "set": options.set, "seed": options.seed}
    return log_of(options.log, {**about, "quick": options.quick})


def log_of(path: str | None, about: Mapping[str, Any]) -> Finished:
    """Return the log of a curve."""
    return Log(path, about, asdict, _part)


def _part(found: Mapping[str, Any]) -> Held | Admitted:
    if "by_layer" in found:
        return Held(**{**found, "by_layer": tuple(found["by_layer"])})
    return Admitted(**found)


def _hold(meter: Meter, lengths: Sequence[int], options: argparse.Namespace, what: str, log: Finished) -> list[Held]:
    line, found = Line(), []
    try:
        for number, tokens in enumerate(lengths):
            for repeat in range(options.repeat):
                line.show(f"{what}{tokens} tokens ({number + 1} of {len(lengths)} lengths)")
                held = log.get(what, tokens, repeat)
                if not isinstance(held, Held):
                    seed = options.seed + 1000 * repeat + number
                    held = meter.hold(max(1, tokens - TOKENS_OUT), TOKENS_OUT, seed)
                    log.add(held, what, tokens, repeat)
                found.append(held)
    finally:
        line.wipe()
    return found


def _admissions(
    engine: BuiltinEngine,
    server: Server,
    found: Fit,
    options: argparse.Namespace,
    longest: int,
    log: Finished,
) -> list[Admitted]:
    bands = mix.scaled(mix.DEFAULT, longest - TOKENS_OUT)
    count = QUICK_REQUESTS if options.quick else REQUESTS
    asks = make_asks([(n, TOKENS_OUT) for n in mix.draw(bands, count, options.seed)], options.seed, None, 0)
    line = Line()
    results: list[Admitted] = []
    try:
        for name, knobs in _ways(found):
            if name == "curve" and any(one.name == name and one.preempted <= ENOUGH for one in results):
                continue
            if isinstance(done := log.get(name, knobs), Admitted):
                results.append(done)
                continue
            with closing(open_target(str(engine.ring))) as source:
                tell = lambda done, name=name: line.show(f"admission {name}: {done} of {count} requests")  # noqa: E731
                change = lambda wanted: _set(engine, wanted)  # noqa: E731
                results.append(admit(name, knobs, change, server, source, asks, CLIENTS, tell))
            log.add(results[-1], name, knobs)
    finally:
        line.wipe()
    return results


def with_margin(found: Fit, admitted: Sequence[Admitted]) -> Fit:
    """Return the fit with the margin that the load needed: a request takes more while its prompt is read."""
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
    found = [tokens for tokens in lengths if server.longest is None or tokens <= server.longest]
    if not found:
        raise UsageError(f"--lengths: the server takes {server.longest} tokens, expected a length up to that")
    return found


def _pool_mib(longest: int) -> int:
    """The shipped model keeps 4 KiB a token: 4 layers × 2 KV heads × 64 × keys and values × 4 bytes."""
    return max(16, POOL_REQUESTS * longest * 4 // 1024 + 1)


def _write_curve(options: argparse.Namespace, found: Fit) -> None:
    if options.curve_file:
        content = {"curve": [list(piece) for piece in found.pieces], "margin": round(found.margin, 4)}
        write(Path(options.curve_file), json.dumps(content) + "\n")


MOST_PIECES = 4
WORTH = 0.03
LEAST_MARGIN = 0.05


@dataclass(frozen=True, slots=True)
class Point:
    """Requests of ``tokens``: part of the uncompressed size they held, from the least to the most of the repeats."""

    tokens: int
    low: float
    mean: float
    high: float


@dataclass(frozen=True, slots=True)
class Fit:
    """``pieces``: from that many tokens on, that coefficient; ``margin`` to put on top of every one of them."""

    pieces: tuple[tuple[int, float], ...]
    margin: float
    excess: float
    """How much more than measured the pieces reserve, mean over the points, margin not included."""

    def coefficient(self, tokens: int) -> float:
        """The coefficient for a request of that length, without margin."""
        return next(value for start, value in reversed(self.pieces) if tokens >= start)

    @property
    def text(self) -> str:
        """As the engine's knob ``curve`` reads it."""
        return ",".join(f"{start}:{value:.4g}" for start, value in self.pieces)


def fit(points: Sequence[Point]) -> Fit:
    """Return the coarsest pieces that are close to the points, each an upper bound; needs one point, lengths rising.

    Of all ways to cut the lengths into so many pieces the one that reserves least beyond the points is taken; a further
    piece must save at least ``WORTH`` of the reservation.
    """
    best = _pieces(points, ())
    for count in range(1, min(MOST_PIECES, len(points))):
        finer = min((_pieces(points, cuts) for cuts in combinations(range(1, len(points)), count)), key=lambda p: p[1])
        if best[1] - finer[1] >= WORTH:
            best = finer
    return Fit(best[0], margin_of(points), best[1])


def margin_of(points: Sequence[Point]) -> float:
    """Return twice what repeats differed by, at least ``LEAST_MARGIN``: a few points do not show the tail."""
    return max([LEAST_MARGIN, *(2 * (point.high - point.low) / point.mean for point in points)])


def _pieces(points: Sequence[Point], cuts: tuple[int, ...]) -> tuple[tuple[tuple[int, float], ...], float]:
    """Return pieces that start at 0 and at the points ``cuts``, and their mean excess.

    Between a piece's last point and the next one's first point, lengths are covered by whichever of the two is larger.
    """
    edges, found, excess = (0, *cuts, len(points)), [], 0.0
    for low, high in pairwise(edges):
        inside = points[low:high]
        value = _rounded_up(max(point.high for point in points[low : high + 1]))
        found.append((points[low].tokens if low else 0, value))
        excess += sum(value / point.mean - 1 for point in inside)
    return tuple(found), excess / len(points)


def _rounded_up(value: float) -> float:
    """Three decimals, never below."""
    return -(-value * 1000 // 1) / 1000


_DRAWN = 2000
WHOLE = 0.95
"""A least coefficient from here on is that of an uncompressed cache."""
ARTICLE = ((0, 0.6), (8192, 0.35), (32768, 0.28))
"""Coefficients by length from the literature, to be held against."""


def result_of(
    dense: Sequence[Held],
    packed: Sequence[Held],
    points: Sequence[Point],
    found: Fit,
    admitted: Sequence[Admitted],
    tags: Mapping[str, str],
    settings: Mapping[str, Any],
    room_tokens: float | None = None,
) -> Result:
    """Put points, pieces and admissions into one result; without ``dense`` the plain size is the longest request's."""
    by_length = [Quantity(f"coefficient_{p.tokens}", p.mean, "x", (p.high - p.low) / 2 + 1e-3, "lower") for p in points]
    last = {one.name: one for one in admitted}.values()
    runs = [Quantity(f"running_{one.name}", one.running, "requests", None, "higher") for one in last]
    table = _points(dense, packed, points, found)
    layers = _layers(packed)
    return Result(
        bench="curve",
        title=f"KV held by length on {tags.get('model', 'a server')}",
        tags=tags,
        settings={**settings, "curve": found.text, "margin": f"{found.margin:.3f}"},
        quantities=(*by_length, *runs),
        tables=(table, *([layers] if layers.rows else []), *([_admission(admitted)] if admitted else [])),
        plots=(_plot(points, found),),
        says=(*_says(packed, points, found, admitted), *flags_near(found, points[-1].tokens, room_tokens)),
        warns=tuple(_warns(points, admitted)),
        extra={"curve": [list(piece) for piece in found.pieces], "margin": found.margin},
    )


def _points(dense: Sequence[Held], packed: Sequence[Held], points: Sequence[Point], found: Fit) -> Table:
    plain = {one.tokens: one.amount for one in dense}
    rows = []
    for point in points:
        same = [one for one in packed if one.tokens == point.tokens]
        held, peak = sum(one.amount for one in same) / len(same), max(one.peak for one in same)
        reserved = found.coefficient(point.tokens) * (1 + found.margin)
        before: list[Cell] = [plain.get(point.tokens)] if dense else []
        cells: list[Cell] = [point.tokens, *before, held, peak, point.mean, reserved]
        rows.append(tuple(cells))
    unit = packed[0].unit
    columns = ("tokens", *(["uncompressed"] if dense else []), "held", "peak", "coefficient", "reserved with margin")
    return Table("One request", columns, ("", *(unit for _ in columns[1:-2]), "x", "x"), tuple(rows))


def _layers(packed: Sequence[Held]) -> Table:
    longest = max(packed, key=lambda one: one.tokens)
    rows = tuple((str(layer), size, size / longest.tokens) for layer, size in enumerate(longest.by_layer))
    return Table(f"By layer, {longest.tokens} tokens", ("layer", "held", "a token"), ("", "B", "B"), rows)


def _admission(admitted: Sequence[Admitted]) -> Table:
    rows = tuple((a.name, a.margin, a.running, a.most, a.preempted, a.failed, a.tokens_per_s) for a in admitted)
    columns = ("admission", "margin", "running, mean", "most", "preempted", "failed", "output")
    return Table(
        "The same load at equal memory", columns, ("", "ratio", "requests", "requests", "ratio", "", "tokens/s"), rows
    )


def _plot(points: Sequence[Point], found: Fit) -> Plot:
    xs = tuple(float(point.tokens) for point in points)
    article = [next(value for start, value in reversed(ARTICLE) if point.tokens >= start) for point in points]
    series = (
        Series("measured", xs, tuple(point.mean for point in points)),
        Series("pieces with margin", xs, tuple(found.coefficient(p.tokens) * (1 + found.margin) for p in points)),
        Series("an example from the literature", xs, tuple(article)),
    )
    return Plot("Coefficient: held / uncompressed", "tokens of a request", "coefficient", "x", series, even=True)


def _says(packed: Sequence[Held], points: Sequence[Point], found: Fit, admitted: Sequence[Admitted]) -> Iterator[str]:
    pieces = ", ".join(f"from {start} tokens {value:.3f}" for start, value in found.pieces)
    yield f"Coefficients found: {pieces}; margin {found.margin:.0%}{_why(admitted)}."
    knobs = f"--set admission=curve --set curve={found.text} --set curve_margin={found.margin:.3f}"
    if admitted:
        yield f"For the built-in engine: {knobs}"
    rise = max(one.peak / one.amount for one in packed)
    if rise > 1.05:
        yield f"While a prompt is read a request holds up to {rise:.1f} times that: few prompts may be read at once."
    by_name = {one.name: one for one in admitted}
    if {"static", "curve"} <= set(by_name):
        before, after = by_name["static"], by_name["curve"]
        yield (
            f"Admission by this curve runs {after.running / before.running:.1f} times as many requests at once as the "
            f"static reservation ({before.running:.1f} → {after.running:.1f}), {after.preempted:.1%} of them preempted."
        )


def flags_near(found: Fit, longest: int, room_tokens: float | None) -> Iterator[str]:
    """Say which flags of vLLM and SGLang come closest; their number needs the tokens that the pool holds."""
    yield (
        "vLLM and SGLang admit by blocks in use and take no coefficient. What caps them is a count of requests, "
        "and for SGLang a share of the output booked ahead."
    )
    lengths = draw(scaled(DEFAULT, longest), _DRAWN, 0)
    each = sum(tokens * found.coefficient(tokens) for tokens in lengths) / len(lengths) * (1 + found.margin)
    if not room_tokens or room_tokens < each:
        yield (
            f"A request of the long-tail mix (up to {longest} tokens) holds as much as {each:.0f} tokens, margin "
            "included: --max-num-seqs (vLLM) and --max-running-requests (SGLang) are the pool's tokens / that."
        )
        return
    count = int(room_tokens / each)
    yield (
        f"For a pool of {room_tokens:.0f} tokens and the long-tail mix up to {longest} tokens: vLLM --max-num-seqs "
        f"{count}; SGLang --max-running-requests {count} --schedule-conservativeness {1 + found.margin:.2f}."
    )


def _why(admitted: Sequence[Admitted]) -> str:
    tried = [one for one in admitted if one.name == "curve"]
    if not tried:
        return " (twice what repeats differed by, at least 5 %)"
    return f" (with it {tried[-1].preempted:.1%} of a long-tail load are preempted)"


def _warns(points: Sequence[Point], admitted: Sequence[Admitted]) -> Iterator[str]:
    for one in admitted:
        if one.preempted > 0.01:
            place = f"{one.name}, margin {one.margin:.0%}"
            named = f" A diagnosis of this run names {one.named}." if one.named else ""
            yield f"{place}: {one.preempted:.1%} of the requests were preempted: this promises too little.{named}"
        if one.failed:
            yield f"{one.name}: {one.failed} requests failed."
    least = min(point.mean for point in points)
    if max(point.mean for point in points) > 1.5 * least:
        why = "compress less" if least < WHOLE else "hold blocks that they do not fill"
        yield f"One coefficient for all lengths would be wrong by half or more: short requests {why}."
