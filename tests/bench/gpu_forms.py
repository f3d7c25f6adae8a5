"""Decode attention over pages of one form on a CUDA device: `python -m tests.bench.gpu_forms 8x65536 [--sweep]`.

All pages are read. `ratio` is of the time that full precision takes in the same run, `bytes` of its bytes, `share` of
the bandwidth of a copy in the same run. With --sweep every launch of LAUNCHES is tried, and the fastest three printed.
Writes gpu_forms.json to $OUT, or here.
"""

from __future__ import annotations

import argparse
import json
import os
from functools import partial
from pathlib import Path

import torch

from engine import forms
from engine.kernels._cuda.attend import Launch, attend
from engine.kernels._cuda.operators import ListReader
from engine.kernels._cuda.tuning import processors
from engine.kernels._cuda.worklist import parts_for
from engine.lab.tables.kernels_cuda import KEEP, SHAPE, batches, pool_of, timed
from engine.lab.tables.timing import copy_bandwidth, sets_for

LAUNCHES = [(warps, stages, programs) for warps in (2, 4) for stages in (2, 3, 4) for programs in (2, 3, 4, 6)]


def times(form: str, batch: int, context: int, sweep: bool) -> dict[str, float]:
    """Microseconds by launch, `chosen` that of the engine."""
    whole = batch * context // KEEP.block_tokens * SHAPE.kv_heads
    size = whole * forms.get(form).page_bytes(SHAPE)
    count = min(4, sets_for(size))
    pool = pool_of(count * batch * context // KEEP.block_tokens, form)
    readers = [ListReader([pool], one, None) for one in batches(KEEP, batch, context, count)]
    queries = [torch.randn(batch, SHAPE.q_heads, SHAPE.head_dim, device="cuda").bfloat16() for _ in readers]
    for reader, q in zip(readers, queries, strict=True):
        reader.select(0, q)
    found = {"chosen": timed([partial(r.attend, 0, q, None) for r, q in zip(readers, queries, strict=True)], 4)}
    for warps, stages, programs in LAUNCHES if sweep and form != "hot" else ():
        parts = parts_for(batch * SHAPE.kv_heads, context // KEEP.block_tokens, programs * processors())
        launch = Launch(parts, warps, 2, stages)
        calls = [
            partial(attend, q, torch.empty_like(q), pool, r.works[0], SHAPE.head_dim**-0.5, launch)
            for r, q in zip(readers, queries, strict=True)
        ]
        try:
            found[f"w{warps} s{stages} p{programs}"] = timed(calls, 4)
        except Exception as error:
            print(form, warps, stages, programs, type(error).__name__, str(error)[:100])
    torch.cuda.empty_cache()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.gpu_forms", description=__doc__)
    parser.add_argument("shapes", nargs="+", metavar="BATCHxCONTEXT")
    parser.add_argument("--forms", nargs="+", default=list(forms.names()), choices=forms.names())
    parser.add_argument("--sweep", action="store_true")
    asked = parser.parse_args()
    copy, rows = copy_bandwidth(), []
    for shape in asked.shapes:
        batch, context = map(int, shape.split("x"))
        whole = batch * context // KEEP.block_tokens * SHAPE.kv_heads
        full = times("hot", batch, context, False)["chosen"]
        print(f"{shape}: full precision {full:.1f} us, copy {copy / 1e12:.2f} TB/s", flush=True)
        for form in asked.forms:
            page = forms.get(form).page_bytes(SHAPE)
            found = times(form, batch, context, asked.sweep)
            best = sorted(found.items(), key=lambda item: item[1])[:4]
            us = found["chosen"]
            print(
                f"  {form:10} {us:7.1f} us, ratio {us / full:.3f}, bytes {page / SHAPE.hot_page_bytes:.3f}, "
                f"share {whole * page / us * 1e6 / copy:.2f}  {', '.join(f'{k} {v:.1f}' for k, v in best)}",
                flush=True,
            )
            rows.append({"shape": shape, "form": form, "full_us": full, "page_bytes": page, "us": found})
    device = {"copy_bytes_per_s": copy, "device": torch.cuda.get_device_name(), "torch": torch.__version__}
    out = Path(os.environ.get("OUT", ".")) / "gpu_forms.json"
    out.write_text(json.dumps({"device": device, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
