"""How an engine process is started: parsed from its command line, fixed for its life."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

from engine.knobs import KnobError, Knobs
from engine.lab.workload import PREFIX, Load


@dataclass(frozen=True, slots=True)
class Settings:
    """``pool_bytes`` of KV; ``threads`` for torch and for compiled kernels; ``port`` 0 asks for a free one.

    ``max_context`` 0 asks for what model and pool can hold.
    """

    knobs: Knobs
    load: Load
    pool_bytes: int
    block_tokens: int
    max_context: int
    threads: int
    host: str
    port: int
    probes: bool
    stdin_guard: bool
    model: str = "shipped"
    device: str = "cpu"
    dtype: str = "auto"


def parse(argv: Sequence[str]) -> Settings:
    """Read the command line; KnobError for a knob, SystemExit(2) with usage for anything else."""
    parser = argparse.ArgumentParser(prog="python -m engine", description=__doc__)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a knob, or load.NAME")
    parser.add_argument("--model", default="shipped", help="shipped, smollm2, random:SHAPE, a .gguf file, a directory")
    parser.add_argument("--device", default="cpu", help="of the model and its KV: cpu, cuda, any of torch's")
    parser.add_argument("--dtype", default="auto", help="auto (the device's own), float32, bfloat16")
    parser.add_argument("--pool-mib", type=int, default=768, help="KV pool in MiB")
    parser.add_argument("--block-tokens", type=int, default=32, help="tokens per block")
    parser.add_argument("--max-context", type=int, default=0, help="longest request in tokens (0: what fits)")
    parser.add_argument("--threads", type=int, default=2, help="threads for torch and compiled kernels")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--port", type=int, default=0, help="port to listen on; 0 takes a free one")
    parser.add_argument("--no-probes", action="store_true", help="write no flight recorder")
    parser.add_argument("--stdin-guard", action="store_true", help="end when standard input closes")
    options = parser.parse_args(argv)
    knobs, load = apply(Knobs(), Load(), pairs(options.set))
    return Settings(
        knobs,
        load,
        options.pool_mib << 20,
        options.block_tokens,
        options.max_context or (max(load.longest, 1024) if load.clients or options.model == "shipped" else 0),
        options.threads,
        options.host,
        options.port,
        not options.no_probes,
        options.stdin_guard,
        options.model,
        options.device,
        options.dtype,
    )


def pairs(items: Sequence[str]) -> dict[str, str]:
    """Split ``NAME=VALUE`` words; KnobError for a word that has no name or no equals sign."""
    split = [item.partition("=") for item in items]
    for item, (name, equals, _) in zip(items, split, strict=True):
        if not name or not equals:
            raise KnobError(f"knob {item!r}: expected NAME=VALUE")
    return {name: value for name, _, value in split}


def apply(knobs: Knobs, load: Load, changes: dict[str, str]) -> tuple[Knobs, Load]:
    """Apply changes to knobs and load together; KnobError and no change when one is wrong."""
    of_load = {name.removeprefix(PREFIX): value for name, value in changes.items() if name.startswith(PREFIX)}
    of_engine = {name: value for name, value in changes.items() if not name.startswith(PREFIX)}
    return knobs.with_text(of_engine), load.with_text(of_load)
