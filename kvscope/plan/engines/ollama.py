"""Ollama: runs llama.cpp's server with ``num_ctx`` for each of its parallel slots and a batch of 512.

Until 0.30 it had an engine of its own: recurrent models kept 24 checkpoints of their states for every slot, windows of
all slots one batch together, and those of gpt-oss and Gemma 4 4096 tokens. Read from ``llm/llama_server.go`` of 0.33.0,
``kvcache/recurrent.go`` and ``kvcache/causal.go`` before pull request 16031.
"""

from __future__ import annotations

from dataclasses import replace

from kvscope.plan.engines import llama_cpp
from kvscope.plan.engines._base import Ask, Layout, up
from kvscope.plan.layer import Layer

NAME = "ollama"
VERSION = "0.33.0"
SOURCE = "llm/llama_server.go"
VERSIONS = ("0.33", "0.15")
SERVER_SINCE = (0, 30)
CHECKPOINTS = 24
WINDOW_MEMORY = {"gpt_oss": 4096, "gpt-oss": 4096, "gemma4_text": 4096, "gemma4": 4096}
"""Tokens that windows of these models keep, whatever their window (``NewSWAMemCache``)."""


def layout(ask: Ask, stage: int = 0) -> Layout:
    """As llama.cpp counts, with the checkpoints of the older engine where that is asked for."""
    found = llama_cpp.layout(ask, stage)
    hybrid = any(layer.state for layer in ask.stage(stage))
    if ask.options.release < SERVER_SINCE:
        return _older(ask, stage, found)
    if hybrid:
        note = f"Ollama before 0.30 kept {CHECKPOINTS} checkpoints of the states a slot besides (ollama@0.15)"
        return replace(found, notes=(*found.notes, note))
    return found


def _older(ask: Ask, stage: int, found: Layout) -> Layout:
    """Windows of all slots and one batch together, some kept longer; checkpoints of states."""
    slots = ask.options.slots
    forms, _ = llama_cpp.ggml_forms(ask.forms)
    more = sum(_more_cells(ask, layer) * ask.row(layer, forms) for layer in ask.stage(stage) if layer.window)
    whole = (found.allocated or 0) + more + CHECKPOINTS * found.state_bytes * slots
    return replace(
        found,
        request_bytes=whole // slots,
        allocated=whole,
        fill=lambda pool: llama_cpp.filled(pool, whole, ask),
        rules=(*found.rules, *_checkpoints(found)),
    )


def _more_cells(ask: Ask, layer: Layer) -> int:
    """Cells that a windowed layer of the older engine had beyond what llama.cpp gives it; fewer are negative."""
    window = max(WINDOW_MEMORY.get(ask.model.model_type, 0), layer.window or 0)
    slots, batch = ask.options.slots, ask.options.micro_batch or llama_cpp.MICRO_BATCH
    if layer.kind not in ("window", "chunk"):
        return 0
    kept = slots * ask.context if layer.kind == "chunk" or window >= ask.context else slots * window + batch
    return up(kept, llama_cpp.PAD) - llama_cpp.cells_of(layer, ask)


def _checkpoints(found: Layout) -> tuple[str, ...]:
    if not found.state_bytes:
        return ()
    return (f"checkpoints: {CHECKPOINTS} of {found.state_bytes} B a slot",)
