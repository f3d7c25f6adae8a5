"""All checks on a CUDA device, on shapes drawn anew: `python -m tests.bench.gpu_check [seed [device]]`."""

from __future__ import annotations

import random
import sys

import torch

from engine.geometry import KVGeometry
from engine.kernels._base import Keep
from engine.kernels._cuda.attend import Launch
from engine.kernels._cuda.select import Choice
from tests.gpu.checks import check_append, check_attention, check_quantised, check_selection, dense_list
from tests.gpu.reference import case

SIZES = ((1, 5000), (3, 900), (64, 300), (17, 700), (8, 2000), (2, 40))
BARS = {torch.bfloat16: 1e-2, torch.float32: 2e-5}


def check_one(draw: random.Random, batch: int, longest: int, device: str) -> None:
    """One random shape: dense and chosen lists, some pages cold, some evicted, cut in several ways."""
    dim, group, tokens = draw.choice((64, 128)), draw.choice((1, 4, 8)), draw.choice((16, 64))
    heads, subs = draw.choice((1, 2, 8)), draw.choice((1, 4)) if tokens == 64 else 1
    dtype = draw.choice((torch.bfloat16, torch.bfloat16, torch.float32))
    geometry = KVGeometry(1, heads, heads * group, dim, block_tokens=tokens, rep_tokens=tokens // subs)
    lens = [draw.randint(1, longest) for _ in range(batch)]
    cold, gone = draw.choice(((0.0, 0.0), (0.75, 0.0), (0.4, 0.2)))
    statistics = draw.choice(("mean", "bounds"))
    made = case(
        geometry, lens, cold_share=cold, evicted_share=gone, statistics=statistics, dtype=dtype, device=device,
        seed=draw.randint(0, 1 << 30),
    )  # fmt: skip
    work, worst = dense_list(made), 0.0
    for parts, planned in ((1, False), (draw.randint(2, 9), False), (1, True)):
        if work.pairs * parts <= len(work.space.weight):
            worst = max(worst, check_attention(made, work, Launch(parts), BARS[dtype], planned=planned))
    keep = Keep(draw.choice((0.1, 0.25, 0.6)), sink_tokens=tokens, window_tokens=100, block_tokens=tokens)
    chosen = check_selection(made, keep, Choice(draw.choice((64, 128)), draw.choice((4, 8))))
    worst = max(worst, check_attention(made, chosen, Launch(3), BARS[dtype]))
    name = f"{batch} x <= {longest}, {heads * group}/{heads} heads x {dim}, {tokens} tokens, {statistics}"
    print(f"ok {name}, {str(dtype)[6:]}, cold {cold}, evicted {gone}: {worst:.1e}", flush=True)


def main() -> None:
    seed, device = [*sys.argv[1:], *("0", "cuda")[len(sys.argv) - 1 :]][:2]
    draw = random.Random(int(seed))
    for batch, longest in SIZES:
        check_one(draw, batch, longest, device)
    for statistics in ("mean", "bounds"):
        check_append(KVGeometry(1, 8, 32, 128, block_tokens=64, rep_tokens=16), statistics, device, torch.bfloat16)
    geometry = KVGeometry(1, 8, 32, 128, block_tokens=64)
    plain, made = (case(geometry, [6400], cold_share=share, device=device) for share in (0.0, 0.7))
    check_quantised(made, plain.pool.hot[plain.pool.place.long()].float())
    print("all checks passed")


if __name__ == "__main__":
    main()
