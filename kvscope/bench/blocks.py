"""What each block size wastes and what its bookkeeping costs, for your lengths; recommends one.

Lengths come from --trace (a log, JSON or CSV), from the finished requests of --target, from --mix, or are the default
long tail: 70 % below 2K tokens, 20 % to 16K, 10 % above.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvscope.bench.result.result import Result

EXAMPLE_TOKEN_BYTES, EXAMPLE_LAYERS = 131072, 32
"""A model of 32 layers with 8 KV heads of 128 in 16 bits, when no --config says otherwise."""
LAYER_BLOCK_BYTES = 8
"""A table entry and a reference count, 4 bytes each, in every layer."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Lengths, model, compression."""
    lengths = parser.add_mutually_exclusive_group()
    lengths.add_argument("--trace", metavar="FILE", help="a log or trace: one request a line, JSON or CSV")
    lengths.add_argument("--target", metavar="TARGET", help="the finished requests of an engine or recording")
    lengths.add_argument("--mix", metavar="SPEC", help="PERCENT:LOW-HIGH,… (70:128-2K,20:2K-16K,10:16K-64K)")
    parser.add_argument(
        "--config", metavar="FILE", help="config.json of the model (default: 32 layers, 128 KiB a token)"
    )
    parser.add_argument("--kv-dtype", default="bf16", metavar="T", help="of the uncompressed KV (bf16)")
    parser.add_argument(
        "--kept", type=float, default=0.28, metavar="SHARE", help="entries that compression keeps (0.28)"
    )
    parser.add_argument(
        "--width", type=float, default=1.0, metavar="SHARE", help="bytes of a kept entry to a full one (1)"
    )
    parser.add_argument("--no-representative", action="store_true", help="blocks carry no mean key to be chosen by")
    parser.add_argument("--current", type=int, default=16, metavar="N", help="the block size in use (16)")


def measure(options: argparse.Namespace) -> Result:
    """Return the result."""
    from kvscope.bench import _blocks_result
    from kvscope.bench._paging import Costs
    from kvscope.errors import UsageError

    for name in ("kept", "width"):
        if not 0 < getattr(options, name) <= 1:
            raise UsageError(f"--{name} {getattr(options, name):g}: expected more than 0 and at most 1")
    if options.current < 1:
        raise UsageError(f"--current {options.current}: expected at least 1")
    lengths, origin = _lengths(options)
    token_bytes, layers, model = _model(options)
    table = float(layers * LAYER_BLOCK_BYTES)
    mean_key = 0.0 if options.no_representative else token_bytes / 2
    full = Costs(token_bytes, table)
    packed = Costs(token_bytes * options.width, table + mean_key, options.kept)
    return _blocks_result.make(lengths, full, packed, options.current, {"lengths": origin, "model": model})


def _lengths(options: argparse.Namespace) -> tuple[list[int], str]:
    from pathlib import Path

    from kvscope.bench.workload import lengths
    from kvscope.bench.workload.trace import read_trace

    if options.trace:
        return [one.tokens_in + one.tokens_out for one in read_trace(Path(options.trace))], options.trace
    if options.target:
        return _of_target(options.target), options.target
    if options.mix:
        return lengths.grid(lengths.parse(options.mix)), options.mix
    return lengths.grid(lengths.DEFAULT), "70 % below 2K, 20 % to 16K, 10 % to 64K"


def _of_target(target: str) -> list[int]:
    from contextlib import closing

    from kvscope.errors import NotEnoughData
    from kvscope.sources import open_target

    with closing(open_target(target)) as source:
        samples = source.poll().samples
    asked, told = (
        {sample.t: sample.value for sample in samples if sample.metric == f"request.tokens_{way}"}
        for way in ("in", "out")
    )
    found = [int(value + told.get(t, 0.0)) for t, value in asked.items()]
    if not found:
        raise NotEnoughData(
            f"{target}: no finished request with its lengths; expected request.tokens_in, one a request"
        )
    return found


def _model(options: argparse.Namespace) -> tuple[float, int, str]:
    """Bytes of a token over all layers, number of layers, name."""
    from pathlib import Path

    from kvscope.plan import geometry
    from kvscope.plan.formulas import plain_bytes

    if not options.config:
        return float(EXAMPLE_TOKEN_BYTES), EXAMPLE_LAYERS, "32 layers, 8 KV heads of 128"
    model = geometry(Path(options.config))
    forms, context = model.forms(options.kv_dtype), 4096
    held = min(model.held(context, forms).total_bytes, plain_bytes(model, context, forms) or float("inf"))
    return held / context, len(model.counted()), model.model_type
