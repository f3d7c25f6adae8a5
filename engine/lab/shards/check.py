"""Results of several ranks held against one rank's: plainly, and where blocks are cut, cut and merged the same way."""

from __future__ import annotations

import torch

from engine.lab.shards import candidates, partitions
from engine.lab.shards.build import build, operators_of, part_of
from engine.lab.shards.content import Content
from engine.lab.shards.dealt import Dealt, deal
from engine.lab.shards.group import Group
from engine.lab.shards.step import Step


def differences(step: Step, content: Content, queries: list[torch.Tensor]) -> dict[str, float | bool]:
    """Over all ranks and layers: `largest` difference from one rank, `relative` (of norms), whether all `bits` agree,
    and `bits_in_parts`: with one process that computes the same parts and merges them in the same order."""
    found = step.run(queries)
    whole = alone(step.dealt, content, queries)
    parts = in_parts(step.dealt, content, queries) if step.dealt.partition.SPLIT == "blocks" else whole
    largest = relative = unlike = unlike_parts = 0.0
    for layer, own in enumerate(found):
        if own is not None:
            off = (own.double() - whole[layer].double()).abs()
            largest = max(largest, float(off.max()))
            relative = max(relative, float(off.norm() / whole[layer].double().norm()))
            unlike += float(not torch.equal(own, whole[layer]))
            unlike_parts += float(not torch.equal(own, parts[layer]))
    told = step.group.told([largest, relative, unlike, unlike_parts]).amax(0).tolist()
    return {"largest": told[0], "relative": told[1], "bits": told[2] == 0, "bits_in_parts": told[3] == 0}


def alone(dealt: Dealt, content: Content, queries: list[torch.Tensor]) -> list[torch.Tensor]:
    """Results of one rank that has everything."""
    single = deal(partitions.get("contiguous"), dealt.shape, 1)
    results = build(single, content, Group(0, 1, content.device), pages=True).run(queries)
    return [result for result in results if result is not None]


def in_parts(dealt: Dealt, content: Content, queries: list[torch.Tensor]) -> list[torch.Tensor]:
    """The parts of all ranks, one after the other in this process, merged in the order of ranks."""
    shape, results = dealt.shape, []
    for layer, q in enumerate(queries):
        own = q.view(len(q), shape.kv_heads, shape.group, shape.head_dim)
        helds = [part_of(dealt, content, rank, layer, pages=True) for rank in range(dealt.ranks)]
        all_operators = [operators_of(content.device) for _ in helds]
        edge = None
        if shape.chooses(layer):
            wanted = shape.wanted_in(layer)
            keys = [one.keys(own, held) for one, held in zip(all_operators, helds, strict=True) if held is not None]
            edge = candidates.edge(torch.cat([candidates.best(one, wanted) for one in keys], -1), wanted)
        parts = [
            one.part(own, held, edge).clone()
            for one, held in zip(all_operators, helds, strict=True)
            if held is not None
        ]
        results.append(all_operators[0].merge(torch.stack(parts), own).reshape(q.shape))
    return results
