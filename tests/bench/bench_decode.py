"""Decode throughput against `transformers` on the same weights: `python -m tests.bench.bench_decode`.

Both sides run in this process, float32, the same threads, and take turns, so that noise falls on both alike. The
contexts are filled with random keys and values on both sides (reading costs the same whatever they hold), so only
decode steps are timed: every token is one forward pass over the batch. The engine's are whole steps: schedule, run,
settle; the rival's are those of `generate` with a cache given to it.
"""

from __future__ import annotations

import argparse
import json
import sys
from statistics import median
from time import monotonic, perf_counter
from typing import Any

import numba
import torch

from engine.knobs import Knobs
from engine.llm import Engine
from engine.memory import keep_freed_memory
from engine.model import ModelConfig
from engine.packing import pack
from engine.weights import open_model
from engine.weights._base import Loaded
from tests.unit.engine.reference import as_transformers

BLOCK = 32


def filled_engine(loaded: Loaded, batch: int, context: int, room: int, knobs: dict[str, str]) -> Engine:
    """An engine in which ``batch`` requests have their whole prompt stored and decode from the next step on."""
    shape = loaded.config
    blocks = batch * -(-(context + room + 1) // BLOCK) + 4
    pool = blocks * BLOCK * 8 * shape.layers * shape.kv_heads * shape.head_dim
    live = Knobs(max_running=batch, watermark=0.0).with_text(knobs)
    made = Engine(shape, loaded.model, live, pool_bytes=pool, max_context=context + room, block_tokens=BLOCK)
    made.warm_up()
    generator = torch.Generator().manual_seed(0)
    for _ in range(batch):
        made.submit(tuple(torch.randint(0, shape.vocab_size, (context,), generator=generator).tolist()), room)
    made.scheduler.schedule(monotonic())
    made.cache.pool.floats.normal_(generator=generator)
    for request in made.scheduler.running:
        request.computed = context
        made.cache.blocks.filled[torch.tensor(request.block_table)] = BLOCK
        made.scheduler.computed(request)
        request.accept(1, monotonic())
    assert len(made.scheduler.running) == batch
    return made


class Rival:
    """`generate` on a cache of random keys and values that is cut back to its first length before each turn."""

    def __init__(self, model: Any, shape: ModelConfig, batch: int, context: int) -> None:
        from transformers import DynamicCache

        self.model, self.context = model, context
        self.cache: Any = DynamicCache()
        for layer in range(shape.layers):
            k, v = torch.randn(2, batch, shape.kv_heads, context, shape.head_dim)
            self.cache.update(k, v, layer)
        self.ids = torch.ones(batch, context + 1, dtype=torch.long)
        self.mask = torch.ones_like(self.ids)

    def turn(self, tokens: int) -> float:
        """Seconds for this many tokens of every request."""
        if (grown := self.cache.get_seq_length() - self.context) > 0:
            self.cache.crop(-grown)
        started = perf_counter()
        self.model.generate(
            self.ids,
            attention_mask=self.mask,
            past_key_values=self.cache,
            max_new_tokens=tokens,
            min_new_tokens=tokens,
            do_sample=False,
        )
        return perf_counter() - started


def engine_turn(made: Engine, tokens: int) -> float:
    started = perf_counter()
    for _ in range(tokens):
        made.step()
    return perf_counter() - started


def compare(
    loaded: Loaded, rival: Rival, batch: int, context: int, tokens: int, rounds: int, knobs: dict[str, str]
) -> dict[str, Any]:
    """Tokens a second of both, medians over rounds after an untimed one."""
    made = filled_engine(loaded, batch, context, (rounds + 1) * tokens + 1, knobs)
    seconds: list[tuple[float, float]] = []
    for turn in range(rounds + 1):
        both = rival.turn(tokens), engine_turn(made, tokens)
        if turn:
            seconds.append(both)
    theirs, ours = (batch * tokens / median(side) for side in zip(*seconds, strict=True))
    ratio = median(there / here for there, here in seconds)
    return {"batch": batch, "context": context, "engine": ours, "transformers": theirs, "ratio": ratio}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--contexts", type=int, nargs="+", default=[256, 4096])
    parser.add_argument("--tokens", type=int, default=8, help="tokens a turn")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a knob of the engine")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    keep_freed_memory()
    torch.set_num_threads(options.threads)
    numba.set_num_threads(min(options.threads, numba.config.NUMBA_NUM_THREADS))
    loaded = open_model(options.model)
    theirs = as_transformers(loaded)
    pack(loaded.model)
    knobs = dict(item.split("=", 1) for item in options.set)
    rows = []
    for context in options.contexts:
        with torch.inference_mode():
            rival = Rival(theirs, loaded.config, options.batch, context)
            row = compare(loaded, rival, options.batch, context, options.tokens, options.rounds, knobs)
        rows.append(row)
        if not options.json:
            print(
                f"{loaded.name}, float32, {options.threads} threads, batch {row['batch']}, context {context}: "
                f"engine {row['engine']:.1f} tokens/s, transformers {row['transformers']:.1f}, × {row['ratio']:.2f}",
                flush=True,
            )
    if options.json:
        json.dump({"rows": rows}, sys.stdout)


if __name__ == "__main__":
    main()
