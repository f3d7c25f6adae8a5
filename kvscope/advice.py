"""A fix as a playbook gives it: what to do, the exact setting of each engine, its price and the way back."""

from __future__ import annotations

from dataclasses import dataclass

from kvscope.authored import Authored

ENGINES = {
    "kvscope": "built-in",
    "vllm": "vLLM",
    "sglang": "SGLang",
    "tensorrt-llm": "TensorRT-LLM",
    "llama.cpp": "llama.cpp",
    "lmcache": "LMCache",
    "transformers": "transformers",
}
"""Engines as sources name them, and as people do."""
KEYS = ("do", "costs", "undo", *ENGINES)

Turn = tuple[str, str]
"""A setting (engine and flag) and where it is turned to: ``("vllm --max-num-seqs", "x2")``."""


@dataclass(frozen=True, slots=True)
class Fix:
    """One step: in words, per engine as settings, with its trade-off and how to undo it."""

    do: str
    settings: tuple[tuple[str, tuple[str, ...]], ...] = ()
    costs: str = ""
    undo: str = ""

    def text(self, engine: str = "") -> str:
        """Return one line; with an engine's name only its own settings, where it has any."""
        own = [pair for pair in self.settings if pair[0] == engine]
        shown = "; ".join(f"{ENGINES[name]} {', '.join(flags)}" for name, flags in own or self.settings)
        parts = [self.do + (f" ({shown})" if shown else "")]
        parts += [f"costs: {self.costs}"] if self.costs else []
        parts += [f"undo: {self.undo}"] if self.undo else []
        return "; ".join(parts)

    def turns(self) -> tuple[Turn, ...]:
        """Return every setting that is turned to a value; one that only names a flag turns nothing."""
        found = []
        for engine, flags in self.settings:
            for flag in flags:
                name, _, value = flag.rpartition(" ")
                if name:
                    found.append((f"{engine} {name}", value))
        return tuple(found)


def read_fixes(top: Authored) -> tuple[Fix, ...]:
    """Read the key ``fix``: a list of texts, or of mappings with ``do`` and one key per engine."""
    return tuple(one if isinstance(one, Fix) else _fix(one) for one in top.texts_or_mappings("fix", Fix))


def _fix(block: Authored) -> Fix:
    block.only(KEYS, ("do",))
    settings = tuple((name, block.texts(name)) for name in ENGINES if name in block)
    return Fix(block.text("do"), settings, block.text("costs", ""), block.text("undo", ""))
