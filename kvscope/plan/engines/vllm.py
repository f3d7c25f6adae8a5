"""vLLM: one pool of equal blocks, drawn by groups of layers; windows and states take blocks of their own.

Layers of one kind form groups of equally many layers; a block holds one page of each layer of a group, so all pages
are made equally large: a smaller page gets more tokens, a state is padded. A request claims

    full group     ceil(context / tokens a block)
    window group   ceil(min(window - 1 + tokens in flight, context) / tokens a block) + 1
    state group    1 + draft tokens; 2 + draft tokens where prefix caching aligns states to blocks

Chunked layers (Llama 4) are full: the hybrid manager is off for them, as with ``--disable-hybrid-kv-cache-manager``
(here ``--swa-full``). What is in flight is a step's token budget, twice that since 0.26, where steps overlap. DeepSeek
V4 packs pages of several sizes into one block. Read from ``v1/core/kv_cache_planning.py``,
``v1/kv_cache_interface.py`` and ``platforms/interface.py`` (``_align_hybrid_block_size``) of 0.33.0,
``v1/core/kv_cache_utils.py`` of 0.26.0 and 0.11.0.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from kvscope.plan import forms as room
from kvscope.plan.engines import _vllm_v4
from kvscope.plan.engines._base import Ask, Layout, Pool
from kvscope.plan.layer import Layer

NAME = "vllm"
VERSION = "0.33.0"
SOURCE = "v1/core/kv_cache_planning.py, v1/kv_cache_interface.py, platforms/interface.py"
VERSIONS = ("0.27", "0.26", "0.11")
OVERLAPS_SINCE = (0, 26)
"""Windows reserve for every step in flight (pull request 47728)."""
CACHES_STATES_SINCE = (0, 26)
"""Prefix caching is on for models with states, unless told otherwise."""
BLOCK, LATENT_BLOCK = 16, 64
UNALIGNED_FACTOR = 1.5
STATE_KINDS = ("linear", "mamba", "conv", "rwkv")
LARGE_GPU, HUGE_GPU = 70 << 30, 160 << 30


@dataclass(frozen=True, slots=True)
class Spec:
    """What the pages of one layer look like: ``tokens`` a page, its bytes, and how many blocks a request claims."""

    kind: str
    tokens: int
    page: int
    window: int = 0


def layout(ask: Ask, stage: int = 0) -> Layout:
    """Group the layers of one stage and count a request's blocks."""
    if ask.options.state_dtype is None:
        ask = replace(ask, options=replace(ask.options, state_dtype=ask.model.dtype))
    layers = [layer for layer in ask.stage(stage) if layer.kind not in ("none", "shared")]
    notes = _notes(ask, layers)
    if any(layer.kind in ("latent_window", "csa", "hca") for layer in layers):
        return _vllm_v4.layout(ask, layers, in_flight(ask), notes)
    specs = _unified(_aligned(ask, [_spec(ask, layer, at, len(layers)) for at, layer in enumerate(layers)]))
    groups = _groups(specs)
    block = max(sum(spec.page for spec in group) for group in groups) if groups else 1
    blocks = sum(_blocks(ask, group[0]) for group in groups)
    claims = [(group[0], len(group), _blocks(ask, group[0])) for group in groups]
    growing = sum(block / spec.tokens for spec, _, _ in claims if _grows(ask, spec))
    state = sum(ask.state(layer, more_columns=ask.options.draft_tokens) for layer in layers if layer.state)
    rules = tuple(
        f"{count} layers {spec.kind}: {claimed} blocks of {spec.tokens} tokens, a page of {spec.page} B a layer"
        for spec, count, claimed in claims
    )
    return Layout(
        growing,
        state,
        blocks * block,
        lambda pool: _fill(pool, block, blocks, ask.context),
        (*rules, f"a block is {block} B: {max(map(len, groups), default=0)} pages; a request claims {blocks} blocks"),
        notes,
    )


def in_flight(ask: Ask) -> int:
    """Tokens scheduled but not settled: a step's budget, for every step that may overlap."""
    budget = ask.options.batched_tokens or default_budget(ask.options.memory_bytes)
    if ask.options.release < OVERLAPS_SINCE:
        return budget
    return budget * (ask.split.pp + 1)


def default_budget(memory_bytes: int | None) -> int:
    """``max_num_batched_tokens`` of ``vllm serve`` where nothing is said, by the GPU's memory."""
    if memory_bytes is None or LARGE_GPU <= memory_bytes < HUGE_GPU:
        return 8192
    return 16384 if memory_bytes >= HUGE_GPU else 2048


def _spec(ask: Ask, layer: Layer, at: int, layers: int) -> Spec:
    block = ask.options.block_size or (LATENT_BLOCK if layer.latent else BLOCK)
    if layer.kind in STATE_KINDS:
        return Spec("state", 0, ask.state(layer, more_columns=ask.options.draft_tokens))
    row = ask.row(layer, _layer_forms(ask, at, layers)) + ask.index(layer)
    if layer.kind == "window" and not ask.options.swa_full:
        return Spec("window", block, block * row, layer.window or 0)
    return Spec("full", block, block * row)


def _layer_forms(ask: Ask, at: int, layers: int) -> room.KvForms:
    """TurboQuant leaves the first and last two layers of a model without states as they are computed."""
    hybrid = any(layer.state for layer in ask.model.layers)
    if not ask.forms.key.name.startswith("turbo_") or hybrid or 2 <= at < layers - 2:
        return ask.forms
    return room.KvForms.named(ask.model.dtype)


def _aligned(ask: Ask, specs: list[Spec]) -> list[Spec]:
    """Attention pages grow until a state fits into one, states are padded to that size."""
    states = [spec for spec in specs if spec.kind == "state"]
    others = [spec for spec in specs if spec.kind != "state"]
    if not states:
        return specs
    if not others:
        return specs
    state = max(spec.page for spec in states)
    per_token = max(1, *(spec.page // spec.tokens for spec in others))
    step = max(128 if any(layer.latent for layer in ask.model.layers) else BLOCK, ask.options.block_size or 0)
    tokens = max(others[0].tokens, step * -(-state // (step * per_token)))
    page = tokens * per_token
    return [
        replace(spec, page=page)
        if spec.kind == "state"
        else replace(spec, tokens=tokens, page=spec.page // spec.tokens * tokens)
        for spec in specs
    ]


def _unified(specs: list[Spec]) -> list[Spec]:
    """Make pages equally large: more tokens where that divides, padding elsewhere; one kind alone stays as it is."""
    if len({(spec.kind, spec.tokens, spec.window) for spec in specs}) == 1:
        return specs
    most = max(spec.page for spec in specs)
    return [
        replace(spec, page=most)
        if spec.kind == "state" or most % spec.page
        else replace(spec, tokens=spec.tokens * (most // spec.page), page=most)
        for spec in specs
    ]


def _groups(specs: list[Spec]) -> list[list[Spec]]:
    """Groups of equally many layers; the smallest kind sets the size, unless all are of nearly one size."""
    if len({(spec.kind, spec.tokens, spec.window) for spec in specs}) == 1:
        return [specs]
    counts = Counter(specs)
    size, most = min(counts.values()), max(counts.values())
    if most < size * UNALIGNED_FACTOR:
        size = most
    return [[spec] * size for spec, count in counts.items() for _ in range(-(-count // size))]


def _blocks(ask: Ask, spec: Spec) -> int:
    """Blocks that one request claims of a group."""
    if spec.kind == "state":
        return (2 if _caches_states(ask) else 1) + ask.options.draft_tokens
    if spec.kind == "window":
        kept = min(spec.window - 1 + in_flight(ask), ask.context)
        return -(-kept // spec.tokens) + 1
    return -(-ask.context // spec.tokens)


def _caches_states(ask: Ask) -> bool:
    """Whether states are aligned to blocks, so that prefixes can be found again."""
    asked = ask.options.prefix_caching
    return ask.options.release >= CACHES_STATES_SINCE if asked is None else asked


def _grows(ask: Ask, spec: Spec) -> bool:
    if spec.kind == "state":
        return False
    return spec.kind == "full" or ask.context < spec.window + in_flight(ask)


def _fill(pool: int, block: int, blocks: int, context: int) -> Pool:
    """``GPU KV cache size`` as vLLM logs it is the concurrency times the longest context."""
    if not blocks:
        return Pool(0, 0.0)
    fits = pool // block / blocks
    return Pool(int(fits * context), fits)


def _notes(ask: Ask, layers: list[Layer]) -> tuple[str, ...]:
    said = []
    if any(layer.kind == "chunk" for layer in layers):
        said.append("chunked layers keep every token: vLLM turns its hybrid manager off for them")
    if any(layer.kind != "chunk" and layer.window for layer in layers) and not ask.options.swa_full:
        if ask.options.batched_tokens is None:
            said.append(f"--max-num-batched-tokens is not said: {default_budget(ask.options.memory_bytes)}")
        held = in_flight(ask)
        if ask.options.release >= OVERLAPS_SINCE:
            said.append(f"windows reserve {held} tokens in flight; releases before 0.26 half of it (vllm@0.25)")
    if any(layer.state and layer.kind in STATE_KINDS for layer in layers) and ask.options.prefix_caching is None:
        many = "two blocks" if _caches_states(ask) else "one block"
        said.append(f"states take {many} a request: two where prefix caching is on, its default since 0.26")
    return tuple(said)
