"""A measured curve as a result: points, pieces, layers, and what admission by it does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kvscope.bench._curve_admission import Admitted
from kvscope.bench._curve_fit import Fit, Point
from kvscope.bench._curve_meter import Held
from kvscope.bench.result.quantity import Quantity
from kvscope.bench.result.result import Cell, Plot, Result, Series, Table
from kvscope.bench.workload.lengths import DEFAULT, draw, scaled

_DRAWN = 2000
WHOLE = 0.95
"""A least coefficient from here on is that of an uncompressed cache."""
ARTICLE = ((0, 0.6), (8192, 0.35), (32768, 0.28))
"""The article's example coefficients (§4.2), to be held against."""


def make(
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
        Series("the article's example", xs, tuple(article)),
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
