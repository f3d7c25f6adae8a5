"""What a model's KV cache weighs, from its published config.json: bytes per layer, request and user, and what fits."""

from __future__ import annotations

from kvscope.plan.config import ModelConfig, read_config
from kvscope.plan.plan import Plan, make_plan

__all__ = ["ModelConfig", "Plan", "make_plan", "read_config"]
