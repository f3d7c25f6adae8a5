"""Whole layers in turn, as pipelines do: nothing is exchanged but the hidden state; one request keeps one rank busy."""

from __future__ import annotations

import numpy as np

from engine.lab.shards.partitions._base import Owners, Split, Stretch, enough


class ByLayer:
    NAME = "by_layer"
    SPLIT: Split = "layers"

    def owners(self, one: Stretch) -> Owners:
        """As many layers to each rank: even in bytes only where every layer keeps as much."""
        enough(self.NAME, "layers", one.layers, one.ranks)
        return np.full((one.kv_heads, one.blocks), one.layer * one.ranks // one.layers, np.int16)


def make() -> ByLayer:
    return ByLayer()
