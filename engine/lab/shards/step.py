"""One decode step's attention over ranks, layer after layer: choose together, attend apart, bring together."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from engine.lab.shards import candidates
from engine.lab.shards.dealt import Dealt
from engine.lab.shards.group import Group
from engine.lab.shards.held import Held
from engine.lab.shards.operators import Operators

INDEX, ATTEND = "index", "attend"


@dataclass
class Step:
    """`parts`, one a layer, None where a rank has none of it. Time is kept by the group's clock.

    While `frozen` a device reads again what it chose last, which tells what choosing costs.
    """

    dealt: Dealt
    group: Group
    parts: list[Held | None]
    operators: Operators
    frozen: bool = False

    def run(self, queries: list[torch.Tensor]) -> list[torch.Tensor | None]:
        """queries [requests, q_heads, d] by layer -> results by layer, where layers are cut only this rank's own."""
        split = self.dealt.partition.SPLIT
        if split == "layers":
            return self._stages(queries)
        layer = self._blocks if self._merges else self._heads
        return [layer(q, at) for at, q in enumerate(queries)]

    @property
    def _merges(self) -> bool:
        """Whether results of one head come from several ranks."""
        return self.dealt.partition.SPLIT == "blocks" and self.group.size > 1

    def choose(self, q: torch.Tensor, layer: int) -> torch.Tensor | None:
        """The edge that all ranks agree on [requests, heads], None where everything is read or the choice is kept."""
        held, shape, clock = self._held(layer), self.dealt.shape, self.group.clock
        if self.frozen or not shape.chooses(layer):
            return None
        started = clock.start()
        wanted = shape.wanted_in(layer)
        if not self._merges:
            alone = self.operators.choose_alone(self._own(q, held), held, wanted)
            clock.stop(started, INDEX)
            return alone
        sent = candidates.best(self.operators.keys(self._own(q, held), held), wanted)
        clock.stop(started, INDEX)
        everyones = self.group.gather(sent)
        started = clock.start()
        edge = candidates.edge(everyones.movedim(0, -2).flatten(-2), wanted)
        clock.stop(started, INDEX)
        return edge

    def _held(self, layer: int) -> Held:
        held = self.parts[layer]
        assert held is not None
        return held

    def _own(self, q: torch.Tensor, held: Held) -> torch.Tensor:
        """[requests, heads, group, d] of this rank's heads."""
        shape = self.dealt.shape
        groups = q.view(len(q), shape.kv_heads, shape.group, shape.head_dim)
        return groups[:, held.first_head : held.first_head + held.heads].contiguous()

    def _alone(self, q: torch.Tensor, layer: int) -> torch.Tensor:
        """[requests, heads, group, d] of own heads, all of whose blocks are here."""
        held, clock = self._held(layer), self.group.clock
        edge = self.choose(q, layer)
        started = clock.start()
        found = self.operators.whole(self._own(q, held), held, edge)
        clock.stop(started, ATTEND)
        return found

    def _blocks(self, q: torch.Tensor, layer: int) -> torch.Tensor:
        held, clock = self._held(layer), self.group.clock
        edge, own = self.choose(q, layer), self._own(q, held)
        started = clock.start()
        part = self.operators.part(own, held, edge)
        clock.stop(started, ATTEND)
        parts = self.group.gather(part)
        started = clock.start()
        whole = self.operators.merge(parts, own).reshape(q.shape)
        clock.stop(started, ATTEND)
        return whole

    def _heads(self, q: torch.Tensor, layer: int) -> torch.Tensor:
        out = self._alone(q, layer)
        if self.group.size == 1:
            return out.reshape(q.shape)
        ranks = range(self.group.size)
        counts = [len(self.dealt.heads(rank)) for rank in ranks]
        missing = max(counts) - out.shape[1]
        padded = torch.nn.functional.pad(out, (0, 0, 0, 0, 0, missing)) if missing else out
        everyones = self.group.gather(padded)
        return torch.cat([everyones[rank][:, : counts[rank]] for rank in ranks], 1).reshape(q.shape)

    def _stages(self, queries: list[torch.Tensor]) -> list[torch.Tensor | None]:
        """Own layers, once the stage before has sent its hidden state, which here is its last layer's result."""
        rank, last = self.group.rank, self.group.size - 1
        results: list[torch.Tensor | None] = [None for _ in queries]
        state = torch.empty_like(queries[0])
        if rank > 0:
            self.group.receive(state, rank - 1)
        for layer, q in enumerate(queries):
            if self.parts[layer] is not None:
                state = self._alone(q, layer).reshape(q.shape)
                results[layer] = state
        # The last stage's result is what the first needs for the next token: a step ends when it is back.
        if last > 0:
            self.group.send(state, (rank + 1) % self.group.size)
        if last > 0 and rank == 0:
            self.group.receive(torch.empty_like(state), last)
        return results
