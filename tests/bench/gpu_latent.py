"""Launches of attention over latent rows, tried on a CUDA device: `python -m tests.bench.gpu_latent mla:8x65536`.

Every launch of LAUNCHES for each SHAPE:BATCHxCONTEXT, fastest first. Writes gpu_latent.json to $OUT, or here.
"""

from __future__ import annotations

import json
import os
import sys
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch

from engine.kernels._cuda.latent import RowLaunch, RowSpace
from engine.kernels._cuda.tuning import processors
from engine.lab.tables.latent_cuda import MOST_BYTES, asked, timed
from engine.lab.tables.timing import copy_bandwidth, sets_for
from engine.latent.readers import TritonLatentReader
from engine.latent.shape import named

LAUNCHES = [
    (lanes, warps, step, stages, programs, turned)
    for (warps, step, stages), programs, turned, lanes in product(
        ((4, 32, 3), (4, 32, 2), (4, 16, 4), (4, 64, 2), (8, 64, 3), (8, 64, 2), (8, 32, 4), (8, 32, 3)),
        (1, 2, 4),
        (False, True),
        (16, 32, 64),
    )
]


def tried(name: str, batch: int, context: int, copy: float) -> list[dict[str, Any]]:
    shape = named(name)
    read = batch * shape.rows_read(context) * shape.row_bytes
    whole = batch * shape.rows(context) * (shape.row_bytes + shape.index_bytes)
    sets = asked(shape, batch, context, max(1, min(sets_for(read), 4, MOST_BYTES // whole)))
    readers = [TritonLatentReader(one[0], one[1], processors()) for one in sets]
    for reader, one in zip(readers, sets, strict=True):
        reader.plan()
        reader.select(one[3], one[4])
    found = []
    most = shape.rows_read(context)
    for lanes, warps, step, stages, programs, turned in LAUNCHES:
        if lanes > max(16, shape.heads) or (lanes > 16 and warps < 8 and not turned):
            continue
        groups = batch * -(-shape.heads // lanes)
        parts = max(1, min(programs * processors() // groups, -(-most // 64), 128))
        space = RowSpace(groups * parts, lanes, shape.latent, "cuda")
        for reader in readers:
            reader.launch, reader.space = RowLaunch(parts, lanes, warps, step, stages, turned), space
        try:
            us = timed([partial(r.attend, one[2], shape.width**-0.5) for r, one in zip(readers, sets, strict=True)], 4)
        except Exception as error:
            print(name, lanes, warps, step, stages, type(error).__name__, str(error)[:80], flush=True)
            continue
        found.append({
            "shape": name, "batch": batch, "context": context, "lanes": lanes, "warps": warps, "step": step,
            "stages": stages, "programs": programs, "parts": parts, "turned": turned, "us": us,
            "share": read / us * 1e6 / copy,
        })  # fmt: skip
    torch.cuda.empty_cache()
    return sorted(found, key=lambda one: float(one["us"]))


@torch.inference_mode()
def main() -> None:
    copy, rows = copy_bandwidth(), []
    print(f"copy {copy / 1e12:.2f} TB/s", flush=True)
    for word in sys.argv[1:]:
        name, _, size = word.partition(":")
        batch, context = map(int, size.split("x"))
        found = tried(name, batch, context, copy)
        rows += found
        for one in found[:6]:
            print(
                {key: round(value, 3) if isinstance(value, float) else value for key, value in one.items()}, flush=True
            )
    (Path(os.environ.get("OUT", ".")) / "gpu_latent.json").write_text(json.dumps({"copy": copy, "rows": rows}))


if __name__ == "__main__":
    main()
