"""Where a model comes from: one source a file, each saying which `--model` texts are its own."""

from __future__ import annotations

from difflib import get_close_matches

from engine.discovery import load, module_names
from engine.weights._base import Loaded, Source


def names() -> tuple[str, ...]:
    """Every source's name."""
    return module_names(__path__)


def get(name: str) -> Source:
    source: Source = load(__name__, name).SOURCE
    return source


def open_model(text: str, device: str = "cpu") -> Loaded:
    """Load what `--model` names; ValueError or FileNotFoundError says what of it cannot be had and what could."""
    sources = [get(name) for name in names()]
    for source in sources:
        if source.claims(text):
            return source.load(text, device)
    forms = [source.FORM for source in sources]
    near = get_close_matches(text, forms, n=1)
    hint = f", did you mean {near[0]!r}?" if near else ""
    raise ValueError(f"model {text!r}: expected {', '.join(forms)}; no such file or directory{hint}")
