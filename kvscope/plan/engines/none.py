"""No engine: the rows and states of a request and nothing else, no pages, no reserve."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from kvscope.plan import kinds
from kvscope.plan.engines._base import Ask, Layout, Pool
from kvscope.plan.layer import Layer
from kvscope.plan.model import token_bytes

NAME = "none"
VERSION = "0"
SOURCE = "arithmetic on the layers of the config"
VERSIONS: tuple[str, ...] = ()


def layout(ask: Ask, stage: int = 0) -> Layout:
    """Count what a request holds."""
    layers = ask.stage(stage)
    state = sum(ask.state(layer) for layer in layers)
    request = sum(_held(ask, layer) for layer in layers) + state
    growing = sum(token_bytes(layer, ask.context, ask.forms, ask.split.attention) for layer in layers)
    return Layout(growing, state, request, lambda pool: _fill(pool, request, ask.context), _rules(ask, layers))


def _held(ask: Ask, layer: Layer) -> int:
    rows = kinds.rows(layer, ask.context)
    return (rows.growing + rows.fixed) * ask.row(layer) + rows.index * ask.index(layer)


def _fill(pool: int, request: int, context: int) -> Pool:
    fits = pool / request if request else 0.0
    return Pool(int(fits * context), fits)


def _rules(ask: Ask, layers: tuple[Layer, ...]) -> tuple[str, ...]:
    said = []
    for layer, count in Counter(replace(layer, stage=0) for layer in layers).items():
        rows, row = kinds.rows(layer, ask.context), ask.row(layer)
        if rows.growing + rows.fixed:
            said.append(f"{count} layers {layer.kind}: {rows.growing + rows.fixed} rows of {row} B")
    return tuple(dict.fromkeys(said))
