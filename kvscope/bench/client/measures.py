"""From outcomes to numbers: latencies as quantiles, throughput over time, goodput, each with its error."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kvscope.bench.client.levels import LevelRun
from kvscope.bench.client.server import Outcome
from kvscope.errors import UsageError, nearest
from kvscope.result.result import Better, Quantity
from kvscope.signals.batches import BATCHES, mean_and_error, quantile, quantile_error

QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
LATENCIES = ("ttft", "tpot", "itl", "e2e")
ENOUGH_REPEATS = 3
SLO_NAMES = ("ttft", "tpot", "e2e")


@dataclass(frozen=True, slots=True)
class Measures:
    """One level's numbers by name; ``spread`` is half of what repeats of the same load differed by (A/A)."""

    run: LevelRun
    quantities: Mapping[str, Quantity]
    spread: Mapping[str, float]

    def value(self, name: str) -> float | None:
        """Return a number, or None where nothing was measured."""
        found = self.quantities.get(name)
        return None if found is None else found.value


def values_of(outcomes: Sequence[Outcome], latency: str) -> list[float]:
    """Return one latency of every answered request (of every gap, for ITL), sorted."""
    if latency == "itl":
        return sorted(gap for one in outcomes if one.ok for gap in one.gaps_s)
    found = (getattr(one, f"{latency}_s") for one in outcomes if one.ok)
    return sorted(value for value in found if value is not None)


def measure_run(run: LevelRun, slo: Mapping[str, float]) -> dict[str, Quantity]:
    """Return every number of one pass; what was not measured is absent."""
    answered = [one for one in run.outcomes if one.ok]
    found = [
        Quantity(f"{latency}_{name}_s", quantile(values, q), "s", error_of_quantile(values, q), "lower")
        for latency in LATENCIES
        if (values := values_of(run.outcomes, latency))
        for name, q in QUANTILES.items()
    ]
    failed = len(run.outcomes) - len(answered)
    found.append(Quantity("failed_share", failed / len(run.outcomes), "ratio", 0.0, "lower"))
    if answered:
        found += _rates(run, answered, slo)
    return {one.name: one for one in found}


def error_of_quantile(values: Sequence[float], q: float) -> float | None:
    """Return the error of a quantile, or None where its interval would reach beyond the slowest value that was seen."""
    return quantile_error(values, q) if 2 * math.sqrt(q * (1 - q) / len(values)) < 1 - q else None


def _rates(run: LevelRun, answered: Sequence[Outcome], slo: Mapping[str, float]) -> list[Quantity]:
    start, end = min(one.sent_s for one in run.outcomes), max(one.ended_s for one in answered)
    wall = end - start
    tokens, asked = sum(one.tokens_out for one in answered), sum(one.tokens_in or one.wanted_in for one in answered)
    error = tokens_error(answered, start, end)
    higher: Better = "higher"
    found = [
        Quantity("output_tokens_per_s", tokens / wall, "tokens/s", error, higher),
        Quantity("total_tokens_per_s", (tokens + asked) / wall, "tokens/s", error * (tokens + asked) / tokens, higher),
        Quantity("requests_per_s", len(answered) / wall, "1/s", error * len(answered) / tokens, higher),
    ]
    steady = steady_tokens_per_s(run)
    if steady is not None:
        found.append(Quantity("steady_output_tokens_per_s", *steady, higher))
    if slo:
        good = sum(meets(one, slo) for one in answered)
        share = good / len(run.outcomes)
        noise = 2 * (share * (1 - share) / len(run.outcomes)) ** 0.5
        both = math.hypot(noise * len(run.outcomes) / wall, error * good / tokens)
        found.append(Quantity("goodput_per_s", good / wall, "1/s", both, higher))
        found.append(Quantity("good_share", share, "ratio", noise, higher))
    return found


def tokens_error(outcomes: Sequence[Outcome], start: float, end: float) -> float:
    """Return the error of tokens a second between two times, from the spread over ten equal parts."""
    width = (end - start) / BATCHES
    counts = [0.0] * BATCHES
    for one in outcomes:
        each = one.tokens_out / len(one.token_s)
        for t in one.token_s:
            if start <= t <= end:
                counts[min(BATCHES - 1, int((t - start) / width))] += each
    return mean_and_error([count / width for count in counts])[1]


def steady_tokens_per_s(run: LevelRun) -> tuple[float, str, float] | None:
    """Return output tokens a second while requests were still being sent: the tail in which the server runs empty
    is left out. None when that stretch is shorter than one request."""
    everyone = [one for one in (*run.warm, *run.outcomes) if one.ok]
    start, end = min(one.sent_s for one in run.outcomes), max(one.sent_s for one in run.outcomes)
    if not everyone or end - start < quantile(sorted(one.e2e_s for one in everyone), 0.5):
        return None
    tokens = sum(one.tokens_out / len(one.token_s) * sum(start <= t <= end for t in one.token_s) for one in everyone)
    return tokens / (end - start), "tokens/s", tokens_error(everyone, start, end)


def meets(one: Outcome, slo: Mapping[str, float]) -> bool:
    """Whether a request kept every limit stated; one that failed keeps none."""
    if not one.ok:
        return False
    values = {"ttft": one.ttft_s, "tpot": one.tpot_s, "e2e": one.e2e_s}
    return all((value := values[name]) is None or value <= limit for name, limit in slo.items())


def measures(runs: Sequence[LevelRun], slo: Mapping[str, float]) -> Measures:
    """Put the repeats of one level together.

    Repeats send the same requests, so what requests differ by among themselves is no noise between runs: from three
    on the error is that of the repeats' mean; of fewer it is the larger of what one run shows and what two differed by.
    """
    each = [measure_run(run, slo) for run in runs]
    merged, spread = {}, {}
    for name in each[0]:
        same = [one[name] for one in each if name in one]
        values = [one.value for one in same]
        mean, known = sum(values) / len(values), [one.error for one in same if one.error is not None]
        error = max(known, default=None)
        if len(same) > 1:
            spread[name] = (max(values) - min(values)) / 2
            error = max([*known, spread[name]])
        if len(same) >= ENOUGH_REPEATS:
            mean, error = mean_and_error(values)
        merged[name] = Quantity(name, mean, same[0].unit, error, same[0].better)
    return Measures(runs[0], merged, spread)


def parse_slo(text: str) -> dict[str, float]:
    """Read ``ttft=1s,tpot=50ms``; UsageError."""
    limits = {}
    for part in filter(None, text.split(",")):
        match = re.fullmatch(r"\s*(\w+)\s*=\s*(\d+(?:\.\d+)?)\s*(ms|s)?\s*", part)
        if match is None:
            raise UsageError(f"--slo {part!r}: expected NAME=TIME, e.g. ttft=1s or tpot=50ms")
        if match[1] not in SLO_NAMES:
            raise UsageError(f"--slo {match[1]!r}{nearest(match[1], SLO_NAMES)}; expected {', '.join(SLO_NAMES)}")
        limits[match[1]] = float(match[2]) * (1e-3 if match[3] == "ms" else 1.0)
    return limits
