"""Hold two ways of serving against each other: the same prompts, the first one's words fed to both."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from torch import Tensor

from engine.lab.accuracy import wrong
from engine.lab.accuracy.cell import Cell
from engine.lab.accuracy.laboratory import Laboratory
from engine.lab.accuracy.run import Script, said
from engine.lab.recall.tasks import Episode, Question
from engine.llm import Engine

if TYPE_CHECKING:
    from engine.weights._base import Loaded

QUANTILES = (0.5, 0.9, 0.99, 0.999, 1.0)
ROUNDING = 1e-3
"""Of the logits' spread: sums in another order stay a hundred times below, a scale off by 1 % a tenfold above."""
MORE = 8
"""Decode steps beyond a block's tokens, so that every fill of a block is met."""


def run(order: dict[str, Any], loaded: Loaded, tell: Callable[[str], None]) -> Iterator[dict[str, Any]]:
    """One row a context length: differences of logits, agreement, accuracy of both."""
    laboratory = Laboratory(loaded, tell)
    for context in order["contexts"]:
        cells = [_cell(order, side, int(context)) for side in ("a", "b")]
        heard = [
            laboratory.heard(cell, _scripts, _spoiler(order[side]))
            for cell, side in zip(cells, ("a", "b"), strict=True)
        ]
        tell(f"{context} tokens: comparing")
        ran = [cell.settings.operators for cell in cells]
        yield {"context": context, "model": loaded.name, "one_kernel": _one_kernel(order, ran), **compare(*heard)}


def _one_kernel(order: dict[str, Any], ran: list[tuple[str, str]]) -> str:
    """The kernels that both sides ran, where they are the same ones; nothing where they differ or one is spoilt."""
    same = ran[0] == ran[1] and order["a"].get("wrong") == order["b"].get("wrong")
    return "/".join(dict.fromkeys(ran[0])) if same else ""


def _cell(order: dict[str, Any], side: str, context: int) -> Cell:
    knobs = {name: value for name, value in order[side].items() if name != "wrong"}
    block, seed = int(order["block"]), int(order["seed"])
    return Cell(
        order["task"], context, order["density"], block, seed, int(order["documents"]), _dialogues(block), knobs
    )


def _dialogues(block: int) -> int:
    # The shortest question and answer of all tasks are three tokens, and half of a dialogue's are used.
    return -(-(block + MORE) // 3)


def _spoiler(knobs: dict[str, str]) -> Callable[[Engine], None]:
    name = knobs.get("wrong")
    return (lambda engine: wrong.spoil(engine, name)) if name else (lambda _: None)


def _scripts(episode: Episode) -> tuple[list[Script], list[int]]:
    """One long turn that crosses every fill of a block, all of it listened to; and what the right tokens are, -1 where
    the context does not tell.
    """
    questions = [pair.first for pair in episode.dialogues]
    words = said(questions)
    script = Script((*episode.document, words[0]), words[1:], tuple(range(len(words) - 1)))
    return [script], _known(questions)[1:]


def _known(questions: list[Question]) -> list[int]:
    right: list[int] = []
    for one in questions:
        right += [-1] * len(one.tokens)
        right += [token if index in one.scored else -1 for index, token in enumerate(one.answer)]
    return right


def compare(a: tuple[Tensor, Tensor, Tensor], b: tuple[Tensor, Tensor, Tensor]) -> dict[str, Any]:
    """Both sides as (logits [steps, vocab], right tokens [steps] or -1, context lengths [steps])."""
    (first, right, lengths), (second, _, _) = a, b
    differs = (first - second).abs().amax(-1)
    scale = float(first.std())
    worst, parted = int(differs.argmax()), (first.argmax(-1) != second.argmax(-1)).nonzero()[:, 0]
    asked = right >= 0
    row: dict[str, Any] = {
        "steps": len(first),
        "scale": scale,
        "differs": {f"p{100 * q:g}": float(differs.quantile(q)) for q in QUANTILES},
        "beyond": int((differs > ROUNDING * scale).sum()),
        "worst_at": int(lengths[worst]),
        "diverged": len(parted),
        "first_diverging": None if len(parted) == 0 else {"step": int(parted[0]), "context": int(lengths[parted[0]])},
        "checked": int(asked.sum()),
    }
    for name, logits in (("a", first), ("b", second)):
        row[f"right_{name}"] = int((logits.argmax(-1) == right)[asked].sum())
    return row
