"""SGLang: one token pool a kind of layer, all sized from bytes a token; states in slots of their own.

    bytes a token = full layers + swa_full_tokens_ratio x window layers   (the window pool: a share of the full one)
    states        = mamba_full_memory_ratio / (1 + ratio) of what is left, in slots; a running request takes several
    static share  = 1 - reserve / memory, reserve = 512 MiB + 1.5 MiB a token of a prefill chunk + 1 GiB a rank of 8 ...

A draft model has pools of its own, sized beside these. DeepSeek V4: rows of 584 bytes, windows at a tenth, compressor
states in rings a page. Read from ``srt/model_executor/pool_configurator.py``,
``srt/mem_cache/kv_cache_configurator.py`` and ``srt/arg_groups/memory_hook.py`` of 0.5.23.
"""

from __future__ import annotations

from kvscope.plan import kinds
from kvscope.plan.engines._base import Ask, Layout, Pool, up
from kvscope.plan.layer import Layer

NAME = "sglang"
VERSION = "0.5.23"
SOURCE = "srt/model_executor/pool_configurator.py, srt/mem_cache/kv_cache_configurator.py"
VERSIONS = ("0.5.23", "0.5")
RATIO, V4_RATIO = 0.8, 0.1
STATE_RATIO = 0.9
SLOTS_A_REQUEST = 3
"""State slots a running request may take while prefixes are cached (``_calculate_mamba_ratio``)."""
WINDOW_POOL = (
    "gpt_oss", "llama4_text", "llama4", "mimo_v2_flash", "mimo_v2", "step3p5", "step3p7", "step3p7_text", "gemma4_text",
)  # fmt: skip
"""Model types whose windows have a pool of their own (``is_hybrid_swa_model``); windows of others keep every token."""
V4_PAGE = 256
RING, SPECULATIVE_RING = 8, 16


def layout(ask: Ask, stage: int = 0) -> Layout:
    """Count bytes a token of the pools of one stage, and what one request takes of them."""
    layers = [layer for layer in ask.stage(stage) if not layer.draft]
    if any(layer.kind in ("latent_window", "csa", "hca") for layer in layers):
        return _v4(ask, layers)
    page = ask.options.block_size or 1
    windows = [one for one in layers if one.kind in ("window", "chunk")] if _pooled(ask) else []
    rows = [one for one in layers if one not in windows and one.kind not in ("none", "shared") and not one.state]
    full = sum(ask.row(one) + ask.index(one) for one in rows)
    swa = sum(ask.row(one) for one in windows)
    state = sum(ask.state(one) for one in layers)
    ratio = ask.options.swa_ratio if ask.options.swa_ratio is not None else RATIO
    cell = full + ratio * swa if full else swa
    held = full * up(ask.context, page) + sum(
        ask.row(one) * min(up(ask.context, page), up(one.window or 0, page) + page) for one in windows
    )
    drafts = _draft_cell(ask, stage, full, len(rows))
    return Layout(
        cell,
        state,
        held + state,
        lambda pool: _fill(pool, cell + drafts, state, ask),
        _rules(full, swa, ratio, state, windows),
        _notes(ask, windows, state, ratio),
    )


def _pooled(ask: Ask) -> bool:
    """Whether windows have a pool of their own: for some models, and unless it is turned off."""
    return ask.model.model_type in WINDOW_POOL and not ask.options.swa_full


def _draft_cell(ask: Ask, stage: int, full: float, layers: int) -> float:
    """Bytes a token of the draft's own pool: its layers as wide as the model's."""
    drafts = sum(one.draft for one in ask.stage(stage))
    return full * drafts / layers if layers else 0.0


def _fill(pool: int, cell: float, state: int, ask: Ask) -> Pool:
    """Tokens of the pool, and how many requests of the context it holds; states bound that too."""
    slots = None
    if state:
        ratio = ask.options.state_ratio if ask.options.state_ratio is not None else STATE_RATIO
        slots = max(0, int((pool * ratio / (1 + ratio) - state) // state))
        pool -= (slots + 1) * state
    tokens = int(pool // cell) if cell and pool > 0 else 0
    page = ask.options.block_size or 1
    tokens = tokens // page * page
    fits = tokens / up(ask.context, page) if cell else float("inf")
    if slots is not None:
        shared = 1 if ask.options.prefix_caching is False else SLOTS_A_REQUEST
        fits = min(fits, slots // shared)
    return Pool(tokens, 0.0 if fits == float("inf") else fits)


def _rules(full: float, swa: float, ratio: float, state: int, windows: list[Layer]) -> tuple[str, ...]:
    said = [f"full layers: {full:g} B a token"]
    if windows:
        said.append(f"window layers: {swa:g} B a token, a pool of {ratio:g} of the full one's tokens")
    if state:
        said.append(f"states: {state} B a slot")
    return tuple(said)


def _notes(ask: Ask, windows: list[Layer], state: int, ratio: float) -> tuple[str, ...]:
    said = []
    if not windows and any(one.window for one in ask.model.layers):
        said.append("windows keep every token: SGLang has a window pool for other models, or it is off")
    if windows and ask.options.swa_ratio is None:
        said.append(f"--swa-full-tokens-ratio is not said: {ratio:g}")
    if state and ask.options.prefix_caching is None:
        said.append(f"a running request may take {SLOTS_A_REQUEST} state slots while prefixes are cached")
    return tuple(said)


def _v4(ask: Ask, layers: list[Layer]) -> Layout:
    """DeepSeek V4: rows that stand for 4 or 128 tokens, and a window pool that carries the compressors' rings."""
    page = ask.options.block_size or V4_PAGE
    ratio = ask.options.swa_ratio if ask.options.swa_ratio is not None else V4_RATIO
    row, csa = ask.row(layers[0]), [one for one in layers if one.kind == "csa"]
    full = sum((row + ask.index(one)) / one.ratio for one in layers if one.kind != "latent_window")
    ring = SPECULATIVE_RING if ask.drafts else RING
    state = sum(2 * 2 * (one.key_dim + one.index) * 4 for one in csa)
    swa = row * len(layers) + ring / page * state
    cell = full + ratio * swa
    held = kinds_held(ask, layers)
    return Layout(
        cell,
        0,
        held,
        lambda pool: Pool(int(pool // cell) // page * page, int(pool // cell) / ask.context),
        (
            f"rows: {full:g} B a token; windows: {swa:g} B a token of theirs (rings of {ring} a page of {page})",
            f"the window pool has {ratio:g} of the tokens",
        ),
        () if ask.options.swa_ratio is not None else (f"--swa-full-tokens-ratio is not said: {ratio:g}",),
    )


def kinds_held(ask: Ask, layers: list[Layer]) -> int:
    """Rows, index keys and compressor states of one request."""
    found = 0
    for layer in layers:
        rows = kinds.rows(layer, ask.context)
        found += (rows.growing + rows.fixed) * ask.row(layer) + rows.index * ask.index(layer) + ask.state(layer)
    return found
