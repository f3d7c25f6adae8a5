"""Which layers a model has: one family of architectures a file, found by the model types that it claims.

A file has ``MODEL_TYPES`` and ``layers(config) -> list[Layer]``. A model type nobody claims, and a key that may decide
what a layer keeps and that the family does not read, are refused: a wrong count is worse than none.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import cast

from kvscope.discovery import module_names
from kvscope.errors import UsageError, nearest
from kvscope.plan.config import ModelConfig
from kvscope.plan.layer import Layer

LayersOf = Callable[[ModelConfig], list[Layer]]
MOST_LAYERS = 4096


@functools.cache
def model_types() -> dict[str, str]:
    """Return every model type that can be counted, with the family that claims it."""
    found: dict[str, str] = {}
    for name in module_names(__path__):
        for model_type in importlib.import_module(f"{__name__}.{name}").MODEL_TYPES:
            assert model_type not in found, f"{model_type} is claimed by {found.get(model_type)} and {name}"
            found[model_type] = name
    return found


def layers_of(config: ModelConfig) -> tuple[Layer, ...]:
    """Return every layer of the model in order, draft layers behind them; UsageError for what is not understood."""
    known = model_types()
    if not config.model_type:
        raise UsageError(f"{config.where}: no model_type; expected one of the {len(known)} that plan knows")
    if config.model_type not in known:
        raise UsageError(
            f"{config.where}: model_type {config.model_type!r} is not known{nearest(config.model_type, known)}: "
            f"what its layers keep would be a guess"
        )
    if config.layers > MOST_LAYERS:
        raise config.refuse("num_hidden_layers", f"at most {MOST_LAYERS}")
    module = importlib.import_module(f"{__name__}.{known[config.model_type]}")
    found = cast(LayersOf, module.layers)(config)
    left = [key for key in config.unread() if key not in getattr(module, "MEANS_NOTHING", ())]
    if left:
        raise UsageError(
            f"{config.where}: model type {config.model_type!r}: {left[0]} is {config.values[left[0]]!r:.80}, "
            f"which the count of this family does not know; a count without it would be a guess"
        )
    return tuple(found)
