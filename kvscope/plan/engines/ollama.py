"""Ollama: runs llama.cpp's server with ``num_ctx`` for each of its parallel slots and a batch of 512.

Until 0.30 it had an engine of its own, whose recurrent models kept 24 checkpoints of their states for every slot.
Read from ``llm/llama_server.go`` of 0.33.0 and ``kvcache/recurrent.go`` before pull request 16031.
"""

from __future__ import annotations

from dataclasses import replace

from kvscope.plan.engines import llama_cpp
from kvscope.plan.engines._base import Ask, Layout

NAME = "ollama"
VERSION = "0.33.0"
SOURCE = "llm/llama_server.go"
VERSIONS = ("0.33", "0.15")
SERVER_SINCE = (0, 30)
CHECKPOINTS = 24


def layout(ask: Ask, stage: int = 0) -> Layout:
    """As llama.cpp counts, with the checkpoints of the older engine where that is asked for."""
    found = llama_cpp.layout(ask, stage)
    hybrid = any(layer.state for layer in ask.stage(stage))
    if not hybrid:
        return found
    if ask.options.release >= SERVER_SINCE:
        note = f"Ollama before 0.30 kept {CHECKPOINTS} checkpoints of the states a slot besides (ollama@0.15)"
        return replace(found, notes=(*found.notes, note))
    slots = ask.options.slots
    whole = (found.allocated or 0) + CHECKPOINTS * found.state_bytes * slots
    return replace(
        found,
        request_bytes=whole // slots,
        allocated=whole,
        fill=lambda pool: llama_cpp.filled(pool, whole, ask),
        rules=(*found.rules, f"checkpoints: {CHECKPOINTS} of {found.state_bytes} B a slot"),
    )
