"""What the recall model is trained on: lengths double stage by stage, kinds of documents are drawn step by step."""

from __future__ import annotations

import random
from dataclasses import dataclass

from engine.lab.recall.batch import VALUES, VOTES, Asked, BatchShape, Contents
from engine.lab.recall.task import NODES

ABSENT = 32


@dataclass(frozen=True)
class Mix:
    """Shares of a document's facts by kind, and of a tail's tokens by question; `gap` is the share of missing links."""

    name: str
    plain: float = 0.0
    polls: float = 0.0
    families: float = 0.0
    lists: float = 0.0
    gap: float = 0.0

    def contents(self, rng: random.Random, facts: int) -> Contents:
        """Whole numbers of facts and keys that fit the nodes there are; `facts` is what the document has room for."""
        polls, lists = int(facts * self.polls / VOTES), int(facts * self.lists / VALUES)
        tagged = int(facts * self.families)
        taken = polls + lists + (ABSENT if self.gap else 0)
        room = len(NODES) - taken
        sizes = [size for size in (1, 2, 4, 8, 12, 16) if size <= tagged and tagged // size <= room * self._share]
        relatives = rng.choice(sizes) if sizes else 1
        families = min(tagged // relatives, room)
        links = min(int(facts * self.plain / (1 - self.gap)), room - families)
        missing = int(links * self.gap)
        majority = rng.choice((3, 4, 4, 6))
        absent = ABSENT if self.gap else 0
        return Contents(links - missing, missing, polls, majority, families, relatives, lists, absent)

    @property
    def _share(self) -> float:
        """Share of the free nodes that families may have: all, where there is nothing else."""
        return 0.5 if self.plain else 1.0


PLAIN, GAPPED = Mix("plain", plain=1.0), Mix("gapped", plain=1.0, gap=0.3)
TAGGED, POLLED, LISTED = Mix("tagged", families=1.0), Mix("polled", polls=1.0), Mix("listed", lists=1.0)
EVERYTHING = Mix("mixed", plain=0.35, polls=0.25, families=0.25, lists=0.15, gap=0.1)
SIMPLE = (PLAIN,)
ALL = (PLAIN, PLAIN, PLAIN, GAPPED, TAGGED, TAGGED, POLLED, LISTED, EVERYTHING, EVERYTHING)


@dataclass(frozen=True)
class Stage:
    """A stretch of training at one length; spacings are document tokens per fact, one drawn per step."""

    length: int
    steps: int
    tokens_per_step: int
    walks: int
    walk_steps: int
    spacings: tuple[int, ...]
    mixes: tuple[Mix, ...] = ALL

    def draw(self, rng: random.Random) -> BatchShape:
        """The shape of one step's batch: a drawn mix of facts at a drawn density, and questions about them."""
        rows = max(1, self.tokens_per_step // self.length)
        mix, spacing = rng.choice(self.mixes), rng.choice(self.spacings)
        walk_steps = rng.randint(self.walk_steps // 2, self.walk_steps)
        if mix == PLAIN:
            return BatchShape(rows, self.length, spacing, self.walks, walk_steps)
        if mix == TAGGED and rng.random() < 0.4:
            spacing = 3
        tail = self.walks * (self.walk_steps + 2) + 16
        room = self.length - tail - tail // 4 - min(64, self.length // 8)
        contents = mix.contents(rng, max(16, room // spacing))
        if mix.plain:
            walks, walk_steps = max(1, round(self.walks * mix.plain)), max(2, int(walk_steps * mix.plain))
        else:
            walks, walk_steps = 0, 0
        spent = walks * (walk_steps + 2)
        asked = self._asked(rng, contents, tail - spent)
        return BatchShape(rows, self.length, spacing, walks, walk_steps, asked, contents, mix.name)

    def _asked(self, rng: random.Random, contents: Contents, tokens: int) -> Asked:
        """Questions of `tokens` tokens in all, shared out evenly among the kinds that the document has facts for."""
        kinds = sum(bool(count) for count in (contents.polls, contents.families, contents.lists, contents.absent))
        each = tokens // max(1, kinds)
        return Asked(
            polls=min(contents.polls, max(1, each // 3)),
            tags=min(contents.families * contents.relatives, max(1, each // 4)),
            lists=min(contents.lists, max(1, each // (2 + 3 * VALUES))),
            absent=min(contents.absent, max(1, each // 6)),
            pause=rng.choice((0, 0, tokens // 8)),
        )


CURRICULUM = (
    # Recall by one key forms within 500 steps when nothing else is asked, and not within 1000 when everything is.
    Stage(128, 700, 65536, 2, 8, (6, 8, 12), SIMPLE),
    Stage(128, 500, 65536, 2, 8, (6, 8, 12)),
    Stage(256, 400, 65536, 2, 16, (6, 8, 12, 24)),
    Stage(512, 300, 65536, 3, 24, (6, 8, 12, 24)),
    Stage(1024, 300, 65536, 3, 48, (6, 8, 12, 24)),
    Stage(2048, 300, 65536, 3, 96, (6, 12, 16, 24)),
    Stage(4096, 200, 65536, 4, 128, (6, 12, 16, 24)),
    Stage(8192, 250, 131072, 4, 160, (6, 12, 24, 24)),
    Stage(16384, 200, 131072, 5, 160, (12, 16, 24, 24)),
    Stage(32768, 90, 131072, 8, 160, (12, 24, 43)),
    Stage(65536, 70, 131072, 10, 160, (12, 24, 43)),
)
