"""A rank's parts of all layers, on its device, and the operators that go with it."""

from __future__ import annotations

from engine.lab.shards.content import Content
from engine.lab.shards.dealt import Dealt
from engine.lab.shards.group import Group
from engine.lab.shards.held import Held, hold
from engine.lab.shards.operators import Operators, Plain
from engine.lab.shards.step import Step


def operators_of(device: str) -> Operators:
    if device == "cpu":
        return Plain()
    from engine.lab.shards.device import Device

    return Device()


def part_of(dealt: Dealt, content: Content, rank: int, layer: int, *, pages: bool) -> Held | None:
    """What a rank holds of a layer, in a pool where that is a GPU."""
    held = hold(dealt, content, rank, layer, pages=pages)
    if held is None or content.device == "cpu":
        return held
    from engine.lab.shards.device import on_device

    return on_device(held, dealt.shape, layer, dealt.ranks if dealt.partition.SPLIT == "blocks" else 1)


def build(dealt: Dealt, content: Content, group: Group, *, pages: bool) -> Step:
    """This rank's step."""
    parts = [part_of(dealt, content, group.rank, layer, pages=pages) for layer in range(dealt.shape.layers)]
    return Step(dealt, group, parts, operators_of(content.device))
