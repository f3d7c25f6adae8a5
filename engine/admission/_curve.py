"""A measured curve of KV bytes against length: coefficients of the uncompressed size, piecewise by length (§4.2).

As text `0:0.6,8192:0.35,32768:0.28` (from that many tokens on, that part of the uncompressed bytes per token), or the
path of a JSON file `{"curve": [[0, 0.6], [8192, 0.35]]}`.
"""

from __future__ import annotations

from bisect import bisect_right
from functools import lru_cache
from pathlib import Path

from probes import border
from probes.border import shown

Curve = tuple[tuple[int, float], ...]
MOST_POINTS = 256


@lru_cache(maxsize=8)
def parse(text: str) -> Curve:
    """Read a curve; ValueError says what is wrong with it."""
    if text.endswith(".json"):
        points = _from_file(Path(text))
    else:
        points = [tuple(part.split(":")) for part in text.split(",", MOST_POINTS)]
    if len(points) > MOST_POINTS:
        raise ValueError(f"a curve of more than {MOST_POINTS} points, expected fewer")
    try:
        curve = tuple((int(start), float(coefficient)) for start, coefficient in points)
    except (TypeError, ValueError):
        raise ValueError(
            f"curve {shown(text)}, expected TOKENS:COEFFICIENT,... or a .json file of such pairs"
        ) from None
    starts = [start for start, _ in curve]
    if not curve or starts[0] != 0 or starts != sorted(set(starts)):
        raise ValueError(f"curve {shown(text)}, expected lengths that begin at 0 and grow")
    if not all(0 < coefficient <= 4 for _, coefficient in curve):
        raise ValueError(f"curve {shown(text)}, expected coefficients above 0 and at most 4")
    return curve


def coefficient(curve: Curve, tokens: int) -> float:
    """The part of the uncompressed bytes that a context of this length takes."""
    return curve[bisect_right(curve, tokens, key=lambda point: point[0]) - 1][1]


def _from_file(path: Path) -> list[tuple[str, ...]]:
    try:
        found = border.mapping(border.document(border.read_file(path, 1 << 20), "curve"), "curve")
        points = border.items(found.get("curve"), "curve", MOST_POINTS)
    except (OSError, ValueError) as error:
        raise ValueError(f"curve file {path}: {error}, expected a JSON object with a list 'curve'") from None
    return [tuple(point) if isinstance(point, list) else (point,) for point in points]
