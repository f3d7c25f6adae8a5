"""What a model's class has where its config.json says nothing: published configs leave such keys out.

``defaults.json`` holds them by model type, as the configuration classes of transformers 5.24.0 have them
(``models/*/configuration_*.py``). Only what decides a cache's size stands there; numbers of layers never.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

SOURCE = "transformers 5.24.0"


def of(model_type: str, key: str) -> Any:
    """Return the default of a key in a model type's class, or None."""
    return _table().get(model_type, {}).get(key)


@functools.cache
def _table() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("defaults.json").read_text())
    return found
