"""Chunked attention (Llama 4): a token sees its own chunk; a chunk's keys and values stay until the next one begins."""

from __future__ import annotations

from kvscope.plan.kinds import window

SAYS = "only the tokens of the current chunk keep keys and values"
rows = window.rows
