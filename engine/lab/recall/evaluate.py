"""Measure recall through a compressed KV cache: `python -m engine.lab.recall.evaluate` prints the card's tables."""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.lab.recall import tasks
from engine.lab.recall.compressed import BOTH, FULL, INT8, SPARSE, CompressedCache, Compression, forward
from engine.lab.recall.task import ASK, DENSITY, expected, make_document, starts
from engine.model import Decoder
from engine.weights.shipped import WEIGHTS_FILE, from_safetensors, load_shipped

TURN_ROOM = 160
"""Tokens that two turns may add behind a document."""


@dataclass(frozen=True)
class Work:
    """`walks` walks of `steps` generated tokens over each of `documents` documents."""

    length: int
    documents: int
    walks: int
    steps: int = 96
    density: float = DENSITY
    seed: int = 1


@dataclass(frozen=True)
class Asking:
    """A task's dialogues over `documents` documents; density as usual, or what the task's keys allow."""

    task: str
    length: int
    documents: int
    dialogues: int = 16
    density: float = DENSITY
    seed: int = 1

    @property
    def facts_per_token(self) -> float:
        return min(self.density, tasks.most_facts(self.task, self.length) / self.length)


@dataclass
class Score:
    """Tokens right of tokens checked; nats and logit margin of the right token, over checked tokens."""

    right: int = 0
    checked: int = 0
    nats: float = 0.0
    margins: list[Tensor] = field(default_factory=list)

    def add(self, right: int, checked: int, logits: Tensor, answers: Tensor) -> None:
        """Count one step of several sequences; `logits` and `answers` are of those that had a right answer."""
        self.right, self.checked = self.right + right, self.checked + checked
        self.nats += float(F.cross_entropy(logits, answers, reduction="sum"))
        others = logits.scatter(1, answers[:, None], float("-inf")).amax(1)
        self.margins.append(logits.gather(1, answers[:, None])[:, 0] - others)

    @property
    def accuracy(self) -> float:
        return self.right / self.checked

    @property
    def nll(self) -> float:
        return self.nats / max(1, sum(len(part) for part in self.margins))

    @property
    def margin_p5(self) -> float:
        margins = torch.cat(self.margins)
        return float(margins.quantile(0.05)) if len(margins) else float("nan")

    def row(self) -> dict[str, object]:
        return {
            "right": self.right,
            "checked": self.checked,
            "nll": round(self.nll, 5),
            "margin_p5": round(self.margin_p5, 3),
        }


@torch.inference_mode()
def measure(model: Decoder, work: Work, compression: Compression) -> Score:
    """Walk greedily and check every token against the token emitted before it."""
    device, rng = model.embed.weight.device, random.Random(work.seed)
    documents = [make_document(rng, work.length, work.density) for _ in range(work.documents)]
    cache = CompressedCache(model, work.documents, work.length + 2 + work.steps, compression)
    forward(model, cache, torch.tensor([document.tokens for document in documents], device=device))
    cache.fork(work.walks)
    asked = [(document, key) for document in documents for key in rng.sample(starts(document, 1), work.walks)]
    current = [key for _, key in asked]
    logits = forward(model, cache, torch.tensor([[ASK, key] for key in current], device=device))
    score = Score()
    for step in range(work.steps):
        emitted = logits.argmax(-1).tolist()
        known = [row for row, (document, _) in enumerate(asked) if current[row] in document.successor]
        answers = [expected(asked[row][0], current[row]) for row in known]
        right = sum(emitted[row] == answer for row, answer in zip(known, answers, strict=True))
        score.add(right, len(asked), logits[known], torch.tensor(answers, device=device, dtype=torch.int64))
        current = emitted
        if step + 1 < work.steps:
            logits = forward(model, cache, torch.tensor(current, device=device)[:, None])
    return score


@torch.inference_mode()
def measure_task(model: Decoder, asking: Asking, compression: Compression) -> tuple[Score, Score]:
    """Answer both turns greedily, the second behind the first's emitted answer; only what the document tells counts."""
    device, scores = model.embed.weight.device, (Score(), Score())
    for index in range(asking.documents):
        episode = tasks.make(asking.task, asking.seed + index, asking.length, asking.facts_per_token, asking.dialogues)
        cache = CompressedCache(model, 1, asking.length + TURN_ROOM, compression)
        forward(model, cache, torch.tensor([episode.document], device=device))
        cache.fork(asking.dialogues)
        said: list[list[int]] = [[] for _ in episode.dialogues]
        for score, questions in zip(
            scores,
            ([dialogue.first for dialogue in episode.dialogues], [dialogue.second for dialogue in episode.dialogues]),
            strict=True,
        ):
            said = _answer(model, cache, said, questions, score)
    return scores


def _answer(
    model: Decoder, cache: CompressedCache, said: list[list[int]], questions: Sequence[tasks.Question], score: Score
) -> list[list[int]]:
    """Generate one answer per question; returns the last emitted tokens, which the cache does not hold yet.

    The question's last token goes alone, as a decode step does, so that block selection works on the first answer too.
    """
    device = model.embed.weight.device
    asked = torch.tensor(
        [[*before, *question.tokens] for before, question in zip(said, questions, strict=True)], device=device
    )
    forward(model, cache, asked[:, :-1])
    logits = forward(model, cache, asked[:, -1:])
    right = torch.tensor([question.answer for question in questions], device=device)
    for index in range(right.shape[1]):
        emitted = logits.argmax(-1)
        if index in questions[0].scored:
            score.add(int((emitted == right[:, index]).sum()), len(questions), logits, right[:, index])
        if index + 1 < right.shape[1]:
            logits = forward(model, cache, emitted[:, None])
    last: list[list[int]] = emitted[:, None].tolist()
    return last


HARSH = (Compression("int4", 4), Compression("int2", 2), Compression("int8, 12.5 % read", 8, 0.125),
         Compression("int8, 6.25 % read", 8, 0.0625))  # fmt: skip
LONGEST = 65536
GATED = ("recall", "chain2")
"""Tasks that the full cache must answer before any other row counts."""
WALKS: tuple[tuple[Work, tuple[Compression, ...]], ...] = (
    (Work(8192, 16, 2), (FULL, BOTH)),
    (Work(2048, 16, 2), (FULL, BOTH)),
    (Work(16384, 16, 2), (FULL, BOTH)),
    (Work(LONGEST, 4, 4, density=1 / 48), (FULL,)),
    (Work(32768, 8, 4), (FULL, BOTH)),
    (Work(8192, 16, 2), (INT8, SPARSE, *HARSH)),
    (Work(8192, 16, 2, density=1 / 12), (FULL, BOTH, *HARSH)),
    (Work(2048, 16, 2), (INT8, SPARSE)),
    (Work(16384, 16, 2), (INT8, SPARSE)),
)


def asked() -> tuple[tuple[Asking, tuple[Compression, ...]], ...]:
    """Every task at 2048, 16384 and 65536 tokens; the longest through the full cache only."""
    return tuple(
        (Asking(name, length, 8 if length < LONGEST or name in GATED else 4, 32), compressions)
        for length, compressions in ((2048, (FULL, BOTH)), (16384, (FULL, BOTH)), (LONGEST, (FULL,)))
        for name in tasks.names()
    )


Row = dict[str, object]


def table(
    model: Decoder, keep: Callable[[Row], None] = lambda row: None, task: str | None = None, length: int | None = None
) -> None:
    """Measure and print every cell of the model card's tables, handing each on to `keep` as soon as it is there.

    `task` ("walk", or a task's name) and `length` leave the others out.
    """
    for work, compressions in WALKS:
        for compression in compressions if task in (None, "walk") and length in (None, work.length) else ():
            score = measure(model, work, compression)
            row: Row = {"task": "walk", "length": work.length, "density": work.density, "cache": compression.name}
            keep(row | score.row())
            _print("walk", work.length, work.density, compression, score)
    for asking, compressions in asked():
        for compression in compressions if task in (None, asking.task) and length in (None, asking.length) else ():
            for turn, score in enumerate(measure_task(model, asking, compression), start=1):
                row = {"task": asking.task, "turn": turn, "length": asking.length, "cache": compression.name}
                keep(row | {"density": asking.facts_per_token} | score.row())
                _print(f"{asking.task} {turn}", asking.length, asking.facts_per_token, compression, score)


def _print(name: str, length: int, density: float, compression: Compression, score: Score) -> None:
    print(
        f"{name:14s} {length:6d}  1/{1 / density:<4.0f} {compression.name:18s} {score.accuracy:8.3%} of "
        f"{score.checked:5d}  nll {score.nll:.4f}  margin p5 {score.margin_p5:.2f}",
        flush=True,
    )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m engine.lab.recall.evaluate", description=__doc__)
    parser.add_argument("--weights", type=Path, help="another .safetensors of the same shape")
    parser.add_argument("--task", choices=("walk", *tasks.names()), help="this one only")
    parser.add_argument("--length", type=int, help="documents of this many tokens only")
    options = parser.parse_args(arguments)
    config, model = load_shipped()
    if options.weights:
        model = from_safetensors(config, options.weights.read_bytes(), WEIGHTS_FILE)
    table(model.to("cuda" if torch.cuda.is_available() else "cpu"), task=options.task, length=options.length)
    return 0


if __name__ == "__main__":
    sys.exit(main())
