"""One cell of the table: a task at a length and density under one way of keeping KV."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any

from engine.geometry import KVGeometry
from engine.knobs import Knobs

EQUAL_BYTES = "equal_bytes"
_TOGETHER = {"max_running": "16", "watermark": "0"}
_AWARE = {"prefix_cache": "off", "prefill_chunk": "1000000", "max_running": "4"}
"""The whole prompt in one chunk, of which the last queries vote: the question's; nobody shares what it decided."""


@dataclass(frozen=True)
class Cell:
    """``knobs`` as they are typed. ``role``: "", "control", or "equal_bytes": int4 in the bytes that ``knobs`` take.

    ``fresh`` asks each dialogue's second question first.
    """

    task: str
    context: int
    density: float | None
    block: int
    seed: int
    documents: int
    dialogues: int
    knobs: dict[str, str] = field(default_factory=dict)
    role: str = ""
    fresh: bool = False

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Cell:
        return cls(**values)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    def with_knobs(self, **changes: str) -> Cell:
        return replace(self, knobs={**self.knobs, **changes})

    @property
    def settings(self) -> Knobs:
        """KnobError where a knob is wrong."""
        beside = {**_TOGETHER, **(_AWARE if self.aware else {})}
        return Knobs(kernels="block").with_text({**beside, **self.knobs})

    @property
    def data(self) -> tuple[Any, ...]:
        """What decides contexts, questions and how they are put; cells that agree ask the same."""
        sizes = (self.task, self.context, self.density, self.seed, self.documents, self.dialogues)
        return (*sizes, self.aware, self.fresh)

    @property
    def aware(self) -> bool:
        """Whether a first question is shown to what decides importance."""
        return self.knobs.get("importance") == "aware"


def equal_bytes(knobs: Knobs, shape: KVGeometry, context: int) -> dict[str, str]:
    """Knobs that keep a context in int4 and as much of it at full precision as fits the bytes that ``knobs`` take.

    Where int4 alone takes more, the least important blocks are dropped.
    """
    from engine import forms
    from engine.policies._base import Run
    from engine.policies._choose import ends

    blocks = context // shape.block_tokens
    pinned = sum(ends(Run(_nothing(blocks), shape.block_tokens), knobs))
    hot = max(pinned, round(knobs.hot_share * blocks))
    gone = min(blocks - hot, round(knobs.evict_share * blocks))
    full, fine = shape.hot_page_bytes, forms.get("cold_int4").page_bytes(shape)
    wanted = hot * full + (blocks - hot - gone) * forms.get(knobs.cold_form).page_bytes(shape)
    more = max(pinned, int((wanted - blocks * fine) / (full - fine)))
    kept = min(blocks, more + int((wanted - more * full) / fine))
    shares = {"hot_share": f"{more / blocks:.6f}", "evict_share": f"{max(0, blocks - kept) / blocks:.6f}"}
    return {"cold_form": "cold_int4", **shares}


def _nothing(blocks: int) -> Any:
    import torch

    return torch.zeros(1, blocks, 1)
