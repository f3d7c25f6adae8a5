"""What a model's KV cache weighs, from its config: bytes by layer, token, request and GPU, and what fits.

``geometry(path_or_dict)`` is the door for other rooms: see ``kvscope.plan.model``.
"""

from __future__ import annotations

from kvscope.plan.config import ModelConfig, read_config
from kvscope.plan.layer import Layer, StatePart
from kvscope.plan.model import Geometry, Held, StepRead, geometry
from kvscope.plan.weights import Weights

__all__ = ["Geometry", "Held", "Layer", "ModelConfig", "StatePart", "StepRead", "Weights", "geometry", "read_config"]
