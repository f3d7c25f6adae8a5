"""Host tier on a CUDA device: `python -m tests.bench.gpu_hosted [blocks:1x65536 rows:8x65536 ...]`.

All keys and values of a layer lie in pinned host memory, a quarter of the blocks (or 2048 latent rows) is chosen, and
a buffer on the device holds as much as is chosen. Before each step as much of it is given up, at random, as makes
`--hits` of the choice hits: what is chosen is real, how often it is there is set. Times are of graphs; `step` has the
linear work of an 8B Llama layer beside each layer's attention. There, `ahead` chooses and fetches while the layer
before is at work, which an engine can do only as far as it foresees a choice; `inline` where the choice is known.
Writes gpu_hosted.json to $OUT, or here.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from engine.kernels._cuda.attend import attend
from engine.kernels._cuda.hosted import HostedPages
from engine.kernels._cuda.latent import attend_latent
from engine.kernels._cuda.operators import ListReader
from engine.kernels._cuda.tuning import processors
from engine.lab.tables import latent_cuda
from engine.lab.tables.kernels_cuda import KEEP, SHAPE, batches, pool_of
from engine.lab.tables.timing import copy_bandwidth, replayed
from engine.latent.readers import TritonLatentReader
from engine.latent.shape import named

HIDDEN, GROUPED, FFN = 4096, 6144, 14336
Call = Callable[[], object]


def pinned(source: Tensor) -> Tensor:
    target = torch.empty(source.shape, dtype=source.dtype, pin_memory=True)
    return target.copy_(source)


class Layer:
    """``local`` chooses and reads with everything on the device; ``choose``, ``fetch`` and ``read`` from the host."""

    def __init__(self, pages: Tensor, pairs: int, most: int, hits: float) -> None:
        slots = 1 << (most - 1).bit_length()
        buffer = torch.zeros(pairs * slots, pages.shape[1], dtype=pages.dtype, device="cuda")
        self.tier = HostedPages(pinned(pages), buffer, pairs, most)
        first = torch.arange(pairs, device="cuda")[:, None] * slots
        # The buffer is full of the choice, so that any of the slots that hold it will do.
        order = torch.rand(pairs, most, device="cuda").argsort(1)[:, : round(most * (1 - hits))]
        self.given_up = (order + first).flatten()
        self.page_bytes, self.read_bytes = pages[0].nbytes, pairs * most * pages[0].nbytes

    def give_up(self) -> None:
        self.tier.forget(self.given_up)

    def local(self) -> None: ...

    def choose(self) -> None: ...

    def read(self) -> None: ...


class Blocks(Layer):
    """A quarter of the 64-token blocks of each kv head."""

    def __init__(self, batch: int, context: int, hits: float) -> None:
        self.pool = pool_of(batch * context // KEEP.block_tokens, "hot")
        self.reader = ListReader([self.pool], batches(KEEP, batch, context, 1)[0], KEEP)
        self.q = torch.randn(batch, SHAPE.q_heads, SHAPE.head_dim, device="cuda").bfloat16()
        self.work = self.reader.works[0]
        super().__init__(self.pool.hot.flatten(1), self.work.pairs, KEEP.blocks_for(context), hits)
        self.near = replace(self.pool, hot=self.tier.device.view(-1, *self.pool.hot.shape[1:]))
        self.listed = self.work.sharing(self.work.counts)
        self.listed.pages = self.work.pages.clone()
        self.out = torch.empty_like(self.q)

    def local(self) -> None:
        self.reader.select(0, self.q)
        self.reader.attend(0, self.q, None)

    def choose(self) -> None:
        self.reader.select(0, self.q)
        self.tier.find(self.work.pages[0], self.work.counts[0], self.listed.pages[0])

    def read(self) -> None:
        attend(self.q, self.out, self.near, self.listed, SHAPE.head_dim**-0.5, self.reader.launch)


class Rows(Layer):
    """2048 latent rows of each request, chosen by their keys, which stay on the device."""

    def __init__(self, batch: int, context: int, hits: float) -> None:
        shape = named("dsa")
        self.pool, requests, self.q, self.queries, self.weights = latent_cuda.asked(shape, batch, context, 1)[0]
        self.reader = TritonLatentReader(self.pool, requests, processors())
        super().__init__(self.pool.rows, batch, shape.top_k, hits)
        self.slots = torch.zeros_like(self.reader.listed)
        self.scale = shape.width**-0.5

    def local(self) -> None:
        self.reader.select(self.queries, self.weights)
        self.reader.attend(self.q, self.scale)

    def choose(self) -> None:
        self.reader.select(self.queries, self.weights)
        self.tier.find(self.reader.listed, self.reader.counts, self.slots)

    def read(self) -> None:
        reader = self.reader
        attend_latent(
            self.q, reader.out, self.tier.device, self.slots, reader.counts, reader.space, self.scale, reader.launch
        )


KINDS: dict[str, type[Layer]] = {"blocks": Blocks, "rows": Rows}


def check(layer: Layer) -> None:
    """Attention over what was fetched is attention over everything on the device."""
    results = []
    for _ in range(2):
        layer.give_up()
        layer.choose()
        layer.tier.fetch()
        layer.read()
    out = layer.out if isinstance(layer, Blocks) else layer.reader.out
    results.append(out.clone())
    if isinstance(layer, Blocks):
        results.append(layer.reader.attend(0, layer.q, None))
    else:
        layer.local()
        results.append(layer.reader.out)
    torch.testing.assert_close(results[0].float(), results[1].float(), rtol=1e-2, atol=1e-2)


def linear(batch: int) -> Call:
    """The products of one layer's weights, 436 MB, with a batch."""
    shapes = ((GROUPED, HIDDEN), (HIDDEN, HIDDEN), (2 * FFN, HIDDEN), (HIDDEN, FFN))
    weights = [torch.randn(shape, device="cuda").bfloat16() for shape in shapes]
    inputs = [torch.randn(batch, shape[1], device="cuda").bfloat16() for shape in shapes]

    def run() -> None:
        for x, w in zip(inputs, weights, strict=True):
            torch.nn.functional.linear(x, w)

    return run


def ahead(layers: list[Layer], work: Call) -> Call:
    """Each layer's choice is made and fetched on a stream beside the layer before."""
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]

    def bring(layer: Layer) -> None:
        layer.choose()
        layer.tier.fetch()

    def run() -> None:
        bring(layers[0])
        for layer, following in zip(layers, [*layers[1:], None], strict=True):
            main = torch.cuda.current_stream()
            if following is not None:
                side.wait_stream(main)
                with torch.cuda.stream(side):
                    bring(following)
            work()
            layer.read()
            main.wait_stream(side)

    return run


def measured(kind: str, batch: int, context: int, hits: float, copy: float) -> dict[str, Any]:
    """Microseconds a layer: alone, and in a step of layers with their linear work."""
    layers = [KINDS[kind](batch, context, hits) for _ in range(2 if batch > 1 else 6)]
    work, count = linear(batch), len(layers)
    for layer in layers:
        check(layer)

    def each(*names: str, before: Call = lambda: None) -> float:
        def run() -> None:
            for layer in layers:
                before()
                for name in names:
                    (layer.tier.fetch if name == "fetch" else getattr(layer, name))()

        return replayed([run], least=4, replays=7) / count

    given_up = each("give_up")
    for layer in layers:
        layer.tier.hits.zero_()
    alone = each("give_up", "choose", "fetch", "read") - given_up
    found = torch.stack([layer.tier.hits for layer in layers]).sum(0).tolist()
    together = ahead(layers, work)

    def foreseen() -> None:
        for layer in layers:
            layer.give_up()
        together()

    missed = round(layers[0].read_bytes * (1 - hits))
    fetch_us = each("give_up", "choose", "fetch") - each("give_up", "choose")
    return {
        "kind": kind, "batch": batch, "context": context, "hits": found[0] / sum(found), "copy": copy,
        "local_us": each("local"), "hosted_us": alone, "fetch_us": fetch_us, "missed_bytes": missed,
        "link_gb_s": missed / fetch_us / 1e3, "find_us": each("give_up", "choose") - given_up,
        "step_local_us": each("local", before=work),
        "step_inline_us": each("give_up", "choose", "fetch", "read", before=work) - given_up,
        "step_ahead_us": replayed([foreseen], least=4, replays=7) / count - given_up,
    }  # fmt: skip


@torch.inference_mode()
def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.gpu_hosted", description=__doc__)
    parser.add_argument("shapes", nargs="*", default=["blocks:1x65536", "rows:8x65536"], metavar="KIND:BATCHxCONTEXT")
    parser.add_argument("--hits", type=float, default=0.9)
    options = parser.parse_args()
    copy, rows = copy_bandwidth(), []
    for word in options.shapes:
        kind, _, size = word.partition(":")
        batch, context = map(int, size.split("x"))
        row = measured(kind, batch, context, options.hits, copy)
        rows.append(row)
        print({key: round(value, 3) if isinstance(value, float) else value for key, value in row.items()}, flush=True)
        for path in ("hosted", "step_inline", "step_ahead"):
            base = row["local_us" if path == "hosted" else "step_local_us"]
            print(f"  {path}: {row[path + '_us'] / base:.2f} of all on the device", flush=True)
        torch.cuda.empty_cache()
    out = Path(os.environ.get("OUT", ".")) / "gpu_hosted.json"
    out.write_text(json.dumps({"device": torch.cuda.get_device_name(), "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
