"""LMDeploy (TurboMind): blocks of 64 tokens of all layers; windows keep every token; int8 and int4 with scales.

A block holds 64 tokens of every layer. ``--quant-policy 8`` and ``4`` store integers with a 16-bit scale and zero
point for each token, head, key and value. Of the memory that is free after loading, 0.8 goes to the cache
(``cache_max_entry_count``). Read from ``lmdeploy/messages.py`` and
``src/turbomind/kernels/attention/block.h`` of 0.16.0; held against no log.
"""

from __future__ import annotations

from dataclasses import replace

from kvscope.plan import forms as room
from kvscope.plan.engines._base import Ask, Layout, up
from kvscope.plan.engines.none import _fill

NAME = "lmdeploy"
VERSION = "0.16.0"
SOURCE = "lmdeploy/messages.py, src/turbomind/kernels/attention/block.h"
VERSIONS: tuple[str, ...] = ()
BLOCK = 64
SCALE_AND_ZERO_BITS = 32


def layout(ask: Ask, stage: int = 0) -> Layout:
    """Every layer keeps every token, in blocks."""
    layers, block = ask.stage(stage), ask.options.block_size or BLOCK
    forms = replace(ask.forms, key=_scaled(ask.forms.key), value=_scaled(ask.forms.value))
    state = sum(ask.state(layer) for layer in layers)
    rows = [layer for layer in layers if not layer.state and layer.kind not in ("none", "shared")]
    token = sum(ask.row(layer, forms) + ask.index(layer) for layer in rows)
    request = up(ask.context, block) * token + state
    windows = any(layer.window for layer in rows)
    notes = ("windows keep every token in this engine",) if windows else ()
    rules = (f"blocks of {block} tokens, {token} B a token over all layers",)
    return Layout(token, state, request, lambda pool: _fill(pool, request, ask.context), rules, notes)


def _scaled(form: room.Form) -> room.Form:
    """An integer form as this engine stores it: a scale and a zero point a token and head."""
    if form.name not in ("int8", "int4"):
        return form
    return replace(form, scale_bits=SCALE_AND_ZERO_BITS, group=0)
