"""llama.cpp: cells for every slot are taken when the server starts, whoever comes.

    cells of full layers    = context x slots, rounded up to 256 a slot; the context alone where slots share it
    cells of window layers  = min(full cells, window x (slots, where the cache is unified) + micro-batch), up to 256
    states                  = (1 + draft tokens) rows a slot, in 32 bits, convolution past included

Latent attention keeps its row once and no values. Read from ``src/llama-kv-cache-iswa.cpp``,
``src/llama-memory-recurrent.cpp`` at 02c28f5 and 0054ee8.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from kvscope.errors import UsageError
from kvscope.plan import forms as room
from kvscope.plan.engines._base import Ask, Layout, Options, Pool, up
from kvscope.plan.layer import Layer

NAME = "llama.cpp"
VERSION = "02c28f5"
SOURCE = "src/llama-kv-cache-iswa.cpp, src/llama-memory-recurrent.cpp"
VERSIONS: tuple[str, ...] = ()
PAD = 256
MICRO_BATCH = 512
STATE_BYTES = 4
KNOWN = ("fp32", "fp16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl")
AS_GGML = {"int8": "q8_0", "int4": "q4_0"}


def layout(ask: Ask, stage: int = 0) -> Layout:
    """Count the cells of one server."""
    forms, said = ggml_forms(ask.forms)
    layers = ask.stage(stage)
    slots, batch = ask.options.slots, ask.options.micro_batch or MICRO_BATCH
    cells = up(ask.context, PAD) * (1 if ask.options.unified else slots)
    total = growing = 0
    rules = []
    for layer, count in Counter(replace(layer, stage=0) for layer in layers).items():
        row = ask.row(layer, forms)
        if layer.state or layer.kind in ("none", "shared"):
            continue
        held = _cells(layer, cells, batch, ask.options)
        total += count * held * row
        growing += 0 if held < cells else count * row
        rules.append(f"{count} layers {layer.kind}: {held} cells of {row} B")
    state = sum(_state(ask, layer) for layer in layers)
    states = state * slots * (1 + ask.options.draft_tokens)
    if state:
        rules.append(f"states: {slots * (1 + ask.options.draft_tokens)} rows of {state} B, in 32 bits")
    whole = total + states
    return Layout(
        growing,
        state,
        whole if ask.options.unified else whole // slots,
        lambda pool: filled(pool, whole, ask),
        tuple(dict.fromkeys(rules)),
        (*said, _taken(ask)),
        whole,
    )


def cells_of(layer: Layer, ask: Ask) -> int:
    """Cells of one windowed layer over all slots."""
    cells = up(ask.context, PAD) * (1 if ask.options.unified else ask.options.slots)
    return _cells(layer, cells, ask.options.micro_batch or MICRO_BATCH, ask.options)


def _taken(ask: Ask) -> str:
    slots = ask.options.slots
    if ask.options.unified:
        return f"all of it is taken at start: {ask.context} tokens that {slots} slots share"
    return f"all of it is taken at start: {slots} slot{'s' if slots > 1 else ''} of {ask.context} tokens"


def filled(pool: int, whole: int, ask: Ask) -> Pool:
    """What a pool of that size holds: as many slots as were taken for it, or as many contexts where slots share it."""
    fits = pool / whole * (1 if ask.options.unified else ask.options.slots) if whole else 0.0
    return Pool(int(fits * ask.context), fits)


def _cells(layer: Layer, cells: int, batch: int, options: Options) -> int:
    if layer.kind not in ("window", "chunk") or options.swa_full:
        return cells
    window, slots = layer.window or 0, options.slots
    if options.unified:
        return min(cells, up(min(cells, window * slots + batch), PAD))
    each = up(min(cells // slots, window + batch), PAD)
    return min(cells, each * slots)


def _state(ask: Ask, layer: Layer) -> int:
    heads = sum(part.heads * part.numbers * (part.columns - 1 if part.columns else 1) for part in layer.state)
    return heads * STATE_BYTES


def ggml_forms(asked: room.KvForms) -> tuple[room.KvForms, tuple[str, ...]]:
    """ggml's own forms; int8 and int4 are read as q8_0 and q4_0, the only ones it has. UsageError for others."""
    said = []
    names = []
    for form in (asked.key, asked.value):
        name = AS_GGML.get(form.name, form.name)
        if name not in KNOWN:
            raise UsageError(
                f"--kv-dtype {form.name!r}: llama.cpp has no such cache; expected one of {', '.join(KNOWN)}"
            )
        if name != form.name:
            said.append(f"{form.name} is read as {name}: llama.cpp has no other")
        names.append(name)
    return room.KvForms.named(":".join(names)), tuple(dict.fromkeys(said))
