"""The bound of a step, and before and after by physics, against what other people published.

``samples/physics/public-steps.json`` has the numbers and where each stands.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from kvscope.account.change import expected_change, split, verdict
from kvscope.devices import Device
from kvscope.floor import Floor, Load, step_floor
from kvscope.plan import Geometry, geometry

DATA = json.loads((Path(__file__).parents[2] / "samples" / "physics" / "public-steps.json").read_text())
REACHED = 0.75
"""Share of the bound that a step is taken to reach where only ratios were published."""
KERNEL = "form_costs"
UNLIKE_ITS_SOURCE = 3
"""Pairs that may be judged otherwise than their source does: each lies within the noise of two runs."""


def model(name: str) -> Geometry:
    config = dict(DATA["models"][name])
    keeping = config.pop("kv_layers", None)
    found = geometry(config)
    return replace(found, layers=found.layers[:keeping]) if keeping else found


def device(name: str) -> Device:
    row = DATA["devices"][name]
    return Device(name, 0, row["gbs"] * 1e9, row["tflops"] * 1e12, 0.0, "data sheet")


def floor(series: dict[str, Any], context: float, bits: float) -> Floor:
    """The bound of one step of a series; layers without KV bytes of their own are in the weights given."""
    load = Load(series["batch"], context)
    ranks = series.get("gpus", 1)
    found = step_floor(
        model(series["model"]), load, device(series["gpu"]), weights_read=series.get("weights_gb", 0) * 1e9
    )
    share = bits / 16 / ranks
    return replace(found, weights_s=found.weights_s / ranks, kv_s=(found.kv_s[0] * share, found.kv_s[1] * share))


@dataclass(frozen=True)
class Pair:
    series: dict[str, Any]
    way: str
    index: int

    @property
    def first(self) -> dict[str, Any]:
        return next(iter(self.series["ways"].values()))

    @property
    def says(self) -> str | None:
        said = self.series.get("source_says", {}).get(self.way)
        return said[self.index] if said else None

    def judged(self) -> str:
        now, was = self.series["ways"][self.way], self.first
        before = floor(self.series, self.series["context"][self.index], was["bits"])
        measured = now["ms"][self.index] / was["ms"][self.index] - 1
        step_s = before.most_s / REACHED if self.series.get("relative") else was["ms"][self.index] / 1e3
        band = expected_change(step_s, before, now["bits"] / was["bits"])
        return verdict(measured, band, before.most_s / step_s)


def pairs() -> Iterator[Pair]:
    for series in DATA["series"]:
        for way in list(series["ways"])[1:]:
            for index, ms in enumerate(series["ways"][way]["ms"]):
                if ms is not None:
                    yield Pair(series, way, index)


def singles() -> list[tuple[str, float]]:
    """(series, share of the measured step that the bound explains), unquantised or the source's first way."""
    found = []
    for series in DATA["series"]:
        if series.get("relative"):
            continue
        way = next(iter(series["ways"].values()))
        for context, ms in zip(series["context"], way["ms"], strict=True):
            if ms is not None:
                found.append((series["id"], floor(series, context, way["bits"]).most_s / (ms / 1e3)))
    return found


def test_no_public_measurement_is_faster_than_the_bound() -> None:
    found = singles()
    assert len(found) == 62
    assert [one for one in found if one[1] > 1] == []


def test_the_bound_is_near_enough_to_say_something() -> None:
    shares = sorted(share for _, share in singles())
    assert shares[0] > 0.2
    assert 0.45 < shares[len(shares) // 2] < 0.65


def test_before_and_after_is_judged_as_the_sources_do() -> None:
    known = [pair for pair in pairs() if pair.says]
    assert len(known) == 46
    unlike = [
        (pair.series["id"], pair.way, pair.series["context"][pair.index], pair.judged(), pair.says)
        for pair in known
        if pair.judged() != (KERNEL if pair.says == "kernel" else pair.says)
    ]
    assert len(unlike) <= UNLIKE_ITS_SOURCE, unlike


def test_two_contexts_split_what_is_dearer_per_byte_from_what_is_dearer_per_step() -> None:
    series = next(one for one in DATA["series"] if one["id"] == "53060 0.5B B32")
    bf16, first, tuned = (series["ways"][way] for way in ("bf16", "tq4 first", "tq4 tuned"))
    for way, dearer in ((first, (14, 18)), (tuned, (1.7, 2.3))):
        slopes = split(series["context"], bf16["ms"], way["ms"])
        assert slopes is not None
        per_byte = slopes[1] / slopes[0] / (way["bits"] / bf16["bits"])
        assert dearer[0] < per_byte < dearer[1]
    assert split([1000], [1.0], [1.0]) is None


@pytest.mark.parametrize("off", [-0.2, 0.2])
def test_a_peak_that_is_a_fifth_off_does_not_turn_a_dear_form_into_a_cheap_one(off: float) -> None:
    for pair in pairs():
        if pair.says != "kernel" or pair.judged() != KERNEL or pair.series.get("relative"):
            continue
        measured = pair.series["ways"][pair.way]["ms"][pair.index] / pair.first["ms"][pair.index] - 1
        if measured < 0.1:
            continue
        bits = pair.series["ways"][pair.way]["bits"] / pair.first["bits"]
        found = floor(pair.series, pair.series["context"][pair.index], pair.first["bits"])
        scaled = Floor(found.weights_s / (1 + off), (found.kv_s[0] / (1 + off), found.kv_s[1] / (1 + off)), 0.0, 0.0)
        step_s = pair.first["ms"][pair.index] / 1e3
        assert verdict(measured, expected_change(step_s, scaled, bits), scaled.most_s / step_s) == KERNEL
