"""FlexAttention over packed rows, all blocks or a quarter of them: `python -m tests.bench.gpu_flex`."""

from __future__ import annotations

import json
import os
from pathlib import Path

import torch

from engine.lab.tables.timing import replayed
from tests.bench.gpu_rivals import flex_call, sdpa_grouped
from tests.bench.gpu_shapes import KEPT, TOKENS, Arena
from tests.bench.gpu_sweep import least_for, page_bytes

SHAPES = ((8, 16384), (8, 65536))


def main() -> None:
    arena = Arena(2 * 8 * 65536 // TOKENS * 8)
    rows = {}
    for batch, context in SHAPES:
        packed = arena.packed(batch, context, max(1, 131072 // context // 2))
        queries = [torch.randn(batch, 32, 128, device="cuda").bfloat16() for _ in packed]
        blocks = context // TOKENS
        spots = torch.rand(batch, 8, blocks, device="cuda").topk(int(blocks * KEPT)).indices.sort(-1).values.int()
        for name, chosen in (("dense", None), ("sparse", spots)):
            calls = [flex_call(q, *kv, chosen, TOKENS) for q, kv in zip(queries, packed, strict=True)]
            if chosen is None:
                found, expected = (
                    torch.as_tensor(f).float() for f in (calls[0](), sdpa_grouped(queries[0], *packed[0]))
                )
                assert float((found - expected).norm() / expected.norm()) < 1e-2
            size = page_bytes(batch, context, 1.0 if chosen is None else KEPT)
            rows[f"{batch}x{context} {name}"] = replayed(calls, least=least_for(size), replays=5)
            print(batch, context, name, round(rows[f"{batch}x{context} {name}"], 1), flush=True)
            (Path(os.environ.get("OUT", ".")) / "flex.json").write_text(json.dumps(rows))


if __name__ == "__main__":
    main()
