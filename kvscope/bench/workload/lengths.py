"""How long requests are: a mix of bands, by default the long tail of real traffic, or lengths that were seen.

Default: 70 % short (below 2K tokens), 20 % middle (2K to 16K), 10 % long (above 16K). Within a band lengths are spread
evenly in the logarithm: a tail has no favourite length.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass

from kvscope.errors import UsageError


@dataclass(frozen=True, slots=True)
class Band:
    """``share`` of the requests have ``low`` <= tokens < ``high``."""

    name: str
    share: float
    low: int
    high: int


LEAST = 16
DEFAULT = (Band("short", 0.7, 128, 2048), Band("middle", 0.2, 2048, 16384), Band("long", 0.1, 16384, 65536))


def parse(text: str) -> tuple[Band, ...]:
    """Read ``70:128-2048,20:2048-16384,10:16384-65536``, shares in per cent; UsageError."""
    bands = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?):(\d+)(K?)(?:-(\d+)(K?))?\s*", part, re.IGNORECASE)
        if match is None:
            raise UsageError(f"--mix: {part!r}: expected PERCENT:LOW-HIGH or PERCENT:LENGTH, e.g. 70:128-2K")
        low = int(match[2]) * (1024 if match[3] else 1)
        high = int(match[4]) * (1024 if match[5] else 1) if match[4] else low + 1
        if not 0 < low < high:
            raise UsageError(f"--mix: {part!r}: expected a length above 0 and below its upper end")
        bands.append(Band(part.strip().partition(":")[2], float(match[1]) / 100, low, high))
    if not math.isclose(sum(band.share for band in bands), 1.0, abs_tol=0.005):
        raise UsageError(f"--mix {text!r}: the shares add up to {sum(b.share for b in bands):.0%}, expected 100 %")
    return tuple(bands)


def scaled(bands: Sequence[Band], longest: int) -> tuple[Band, ...]:
    """Shrink every band by one factor so that the longest request has ``longest`` tokens, none below ``LEAST``."""
    top = max(band.high for band in bands)
    if top <= longest:
        return tuple(bands)
    factor = longest / top
    return tuple(
        Band(band.name, band.share, max(LEAST, round(band.low * factor)), max(LEAST + 1, round(band.high * factor)))
        for band in bands
    )


def grid(bands: Sequence[Band], count: int = 2000) -> list[int]:
    """Return lengths that stand for the whole mix, no luck in them: each band at evenly spaced quantiles."""
    lengths = []
    for band in bands:
        many = max(1, round(count * band.share))
        lengths += [_at(band, (index + 0.5) / many) for index in range(many)]
    return lengths


def draw(bands: Sequence[Band], count: int, seed: int) -> list[int]:
    """Return ``count`` lengths in random order whose shares are as exact as whole numbers allow."""
    source = random.Random(seed)
    exact = [band.share * count for band in bands]
    many = [int(value) for value in exact]
    for index in sorted(range(len(bands)), key=lambda i: exact[i] - many[i], reverse=True)[: count - sum(many)]:
        many[index] += 1
    lengths = [_at(band, source.random()) for band, number in zip(bands, many, strict=True) for _ in range(number)]
    source.shuffle(lengths)
    return lengths


def band_of(bands: Sequence[Band], length: int) -> Band:
    """Return the band a length belongs to; beyond the ends, the nearest."""
    ordered = sorted(bands, key=lambda band: band.low)
    return next((band for band in ordered if length < band.high), ordered[-1])


def _at(band: Band, quantile: float) -> int:
    return min(band.high - 1, int(band.low * (band.high / band.low) ** quantile))
