"""Count what a model's KV cache weighs, from its config.json: per token, layer, request and user, and what fits.

Reads a Hugging Face config.json (or its folder) of plain, windowed, latent (MLA), sparse (DSA), compressed
(DeepSeek V4) and hybrid models. Beside the count stands what rules of thumb would have said, and where they part.
"""

from __future__ import annotations

import argparse


def configure(parser: argparse.ArgumentParser) -> None:
    """The model, the requests, the memory."""
    parser.add_argument("--config", required=True, metavar="FILE", help="config.json of the model, or its folder")
    parser.add_argument("--context", required=True, metavar="N", help="tokens of each request (32768 or 32K)")
    parser.add_argument("--users", type=int, default=1, metavar="N", help="requests at the same time (1)")
    parser.add_argument("--kv-dtype", default="bf16", metavar="T", help="fp32, fp16, bf16, fp8, int8 or int4 (bf16)")
    parser.add_argument("--index-dtype", metavar="T", help="of a sparse index's keys, also mxfp4 (as --kv-dtype)")
    parser.add_argument("--memory", metavar="BYTES", help="device memory for KV (80GB, 24GiB), or all with --weights")
    parser.add_argument("--weights", metavar="BYTES", help="taken off --memory first: weights and working space")
    parser.add_argument("--format", help="text or json (text)")


def run(options: argparse.Namespace) -> int:
    """Print the plan."""
    from pathlib import Path

    from kvscope.commands._amounts import byte_count, token_count
    from kvscope.errors import UsageError, nearest
    from kvscope.plan import make_plan, read_config
    from kvscope.plan.dtypes import Widths
    from kvscope.plan.report import as_json, as_text

    renders = {"text": as_text, "json": as_json}
    wanted = options.format or "text"
    if wanted not in renders:
        raise UsageError(f"--format {wanted!r}{nearest(wanted, renders)}; expected text or json")
    if options.weights and not options.memory:
        raise UsageError("--weights without --memory: expected the memory that they are taken off")
    memory = byte_count(options.memory, "--memory") if options.memory else None
    if memory is not None and options.weights:
        memory -= byte_count(options.weights, "--weights")
        if memory < 1:
            raise UsageError(f"--weights {options.weights}: expected less than --memory {options.memory}")
    widths = Widths.named(options.kv_dtype, options.index_dtype)
    context = token_count(options.context, "--context")
    print(renders[wanted](make_plan(read_config(Path(options.config)), context, options.users, widths, memory)))
    return 0
