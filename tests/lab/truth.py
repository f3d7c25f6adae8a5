"""What is true of a case: what gains when it alone is lifted, beyond what the same run gains by itself.

A lift is held to the figures that its limit could cost; the one that gains most beyond its floor is its gain. ``true``
needs a gain past the floor and past ``WORTH``; between the two a cause is real and small, and it may be named or not.
Where nothing gains, the case is healthy or at its limit, and every cause named is wrong. What the machine alone can
have given, because the engine waited less for a core, is taken out of a gain. Where nothing gains, and a lift gained
past ``WORTH`` before that or may have, were the engine not kept waiting more, or equal runs differ by more than
``WORTH``, the case is not settled.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

WORTH = 0.20
FLOOR = 0.10
"""The least floor: what a mean over twenty seconds of some tens of requests scatters by."""
_FIGURES = {
    "cap": ("tokens_per_s", "e2e_s", "ttft_s"),
    "pool": ("tokens_per_s", "e2e_s", "ttft_s", "gap_s", "answered"),
    "budget": ("tokens_per_s", "e2e_s", "ttft_s"),
    "reuse": ("tokens_per_s", "e2e_s", "ttft_s"),
    "kv_type": ("tokens_per_s", "e2e_s"),
    "think": ("tokens_per_s",),
    "long": ("gap_s", "e2e_s"),
    "prompt": ("tokens_per_s", "e2e_s", "ttft_s"),
}
"""Lift → figures that the limit could cost."""
SLUGS: dict[str, tuple[str, ...]] = {
    "cap": ("admission_limited",),
    "pool": ("kv_capacity_queue", "kv_capacity_preemption", "preempt_thrash_partial_prefill_admission"),
    "pool/prefix": ("prefix_working_set_exceeds_pool",),
    "budget": ("token_budget_bound",),
    "reuse": ("prefix_caching_disabled",),
    "kv_type": ("kv_read_path_slower", "fp8_kv_slow_kernel_path"),
    "think": ("outside_engine_client_or_frontend",),
    "demand": ("outside_engine_client_or_frontend",),
    "long": ("prefill_decode_interference",),
    "prompt": ("prefill_compute_bound",),
}
"""Lift → slugs that name it; a pool that loses prefixes has a name of its own."""
IDLE = 2.0
"""An open load that could double before its requests always overlap is held back by its clients: no lift is needed.
Below it, from ``WORTH`` on, it is so in the same way and less: it may be named or not."""
UP = ("tokens_per_s", "answered")


@dataclass(frozen=True)
class Truth:
    """Gains by lift (1 is none), and the lifts that are causes: ``true`` ones and ``small`` ones."""

    gains: dict[str, float]
    true: tuple[str, ...]
    small: tuple[str, ...]
    floor: float
    hidden: tuple[str, ...] = ()
    """Lifts that gained past ``WORTH``, or may have, and no more than equal runs or the machine account for."""

    apart: float = 0.0
    """What two equal runs differ by in throughput or the time of a request."""

    @property
    def settled(self) -> bool:
        """Whether a cause is true, or nothing gains."""
        return bool(self.true) or not (self.hidden or self.apart > WORTH)


def figures(run: Path) -> dict[str, float] | None:
    """Return what the clients got in one run, after its warm-up; None where the run is not there."""
    path = run / "client.json"
    if not path.exists():
        return None
    kept: dict[str, Any] = json.loads(path.read_text())
    warm = float(kept["warm_s"])
    rows = [row for row in kept["rows"] if row["t"] + (row["e2e"] or 0.0) >= warm]
    good = [row for row in rows if not row["error"] and row["ttft"] is not None]
    short = [row for row in good if row["kind"] == "short"] or good
    seconds = kept["received"][int(warm) :]
    found = {"tokens_per_s": sum(seconds) / max(1, len(seconds)), "answered": len(good) / max(1, len(rows))}
    if short:
        gaps = sorted(row["longest_gap"] for row in short)
        found |= {
            "e2e_s": _mean(row["e2e"] for row in short),
            "ttft_s": _mean(row["ttft"] for row in short),
            "gap_s": gaps[int(0.9 * (len(gaps) - 1))],
            "tpot_s": _mean((row["e2e"] - row["ttft"]) / max(1, row["tokens"] - 1) for row in short),
        }
    if good and not any(row["kind"] == "short" for row in good):
        # Those beside the long ones never ended: they take the whole run at least, and a gap nobody has seen whole.
        found["e2e_s"] = warm + float(kept["seconds"])
        del found["gap_s"]
    return found


def truth_of(case: Path, floors: Mapping[str, float]) -> Truth | None:
    """Return what is true of a case; None where a run is missing."""
    about = json.loads((case / "case.json").read_text())
    base, again = figures(case / "base"), figures(case / "again")
    if base is None or again is None:
        return None
    gains, past, raw = dict[str, float](), dict[str, float](), dict[str, float]()
    for lift in about["lifts"]:
        lifted = figures(case / lift)
        if lifted is None:
            return None
        name = "pool/prefix" if lift == "pool" and about["load"]["conversations"] else lift
        best, floor, measured = 1.0, FLOOR, 1.0
        shares = share_of(case / "base"), share_of(case / "again")
        given = max(1.0, share_of(case / lift) / min(shares))
        taken = min(1.0, share_of(case / lift) / max(shares))
        for figure in _FIGURES[lift]:
            came = min(gain_of(figure, base, lifted), gain_of(figure, again, lifted))
            measured = max(measured, came, came / taken)
            gain = max(1.0, came / given) if came > 1 else came
            own = max(FLOOR, floors.get(figure, 0.0), abs(gain_of(figure, base, again) - 1))
            # The figure that stands out most from its own scatter, not the one that scatters most.
            if gain / (1 + max(own, WORTH)) > best / (1 + max(floor, WORTH)) or best == 1.0 < gain:
                best, floor = gain, own
        gains[name], past[name], raw[name] = best, floor, measured
    if about["load"]["rate_per_s"] and (room := _room(case / "base")) >= 1 + WORTH:
        gains["demand"], past["demand"] = room, FLOOR
    true = tuple(
        name for name, gain in gains.items() if gain >= (IDLE if name == "demand" else 1 + max(past[name], WORTH))
    )
    if "pool/prefix" in true:
        # Prompts that a larger pool would have kept need no other cure.
        true = tuple(name for name in true if name != "prompt")
    hidden = tuple(name for name, gain in raw.items() if gain >= 1 + WORTH and gains[name] < 1 + past[name])
    small = tuple(name for name, gain in gains.items() if gain >= 1 + past[name] and name not in true)
    apart = max(abs(gain_of(figure, base, again) - 1) for figure in ("tokens_per_s", "e2e_s"))
    return Truth(gains, true, small, max(past.values(), default=FLOOR), hidden, apart)


def _room(run: Path) -> float:
    """Return by how much an open load could grow before requests always overlap: time over time with any in flight."""
    kept = json.loads((run / "client.json").read_text())
    spans = sorted((row["t"], row["t"] + row["e2e"]) for row in kept["rows"] if row["e2e"] is not None)
    busy, until = 0.0, 0.0
    for start, end in spans:
        busy += max(0.0, end - max(start, until))
        until = max(until, end)
    return (kept["warm_s"] + kept["seconds"]) / busy if busy else 10.0


def share_of(run: Path) -> float:
    """Return the share of a run in which its engine did not wait for a core; 1 where nobody looked."""
    kept = json.loads((run / "client.json").read_text())
    return max(0.05, 1 - float(kept.get("waited_s", 0.0)) / float(kept["seconds"]))


def floors_of(cases: Iterable[Path]) -> dict[str, float]:
    """Return, by figure, the 95th percentile of what two equal runs differ by."""
    seen: dict[str, list[float]] = {}
    for case in cases:
        base, again = figures(case / "base"), figures(case / "again")
        for figure in set(base or ()) & set(again or ()):
            seen.setdefault(figure, []).append(abs(gain_of(figure, base or {}, again or {}) - 1))
    return {figure: sorted(values)[int(0.95 * (len(values) - 1))] for figure, values in seen.items()}


def gain_of(figure: str, before: Mapping[str, float], after: Mapping[str, float]) -> float:
    """Return by how much a figure got better, 1 for not at all; 1 where one run has none."""
    was, now = before.get(figure), after.get(figure)
    if figure in UP:
        # A run that got nothing through and then did has gained without bound.
        return 10.0 if was == 0 and now else min(10.0, (now or 0.0) / was) if was else 1.0
    if was is None:
        return 10.0 if now is not None and not before.get("tokens_per_s") else 1.0
    return min(10.0, was / now) if now else 1.0


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return sum(found) / len(found)
