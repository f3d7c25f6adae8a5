"""Count what a model's KV cache weighs, from its config.json: per token, layer, request and user, and what fits.

Reads a Hugging Face config.json (or its folder) of plain, windowed, latent (MLA), sparse (DSA), compressed
(DeepSeek V4) and hybrid models. Beside the count stands what rules of thumb would have said, and where they part.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from kvscope.plan import ModelConfig
    from kvscope.plan.forms import KvForms


def configure(parser: argparse.ArgumentParser) -> None:
    """The model, the requests, the memory."""
    parser.add_argument("--config", required=True, metavar="FILE", help="config.json of the model, or its folder")
    parser.add_argument("--context", required=True, metavar="N", help="tokens of each request (32768 or 32K)")
    parser.add_argument("--users", type=int, default=1, metavar="N", help="requests at the same time (1)")
    parser.add_argument("--kv-dtype", default="bf16", metavar="T", help="fp32, fp16, bf16, fp8, int8 or int4 (bf16)")
    parser.add_argument("--index-dtype", metavar="T", help="of a sparse index's keys, also mxfp4 (as --kv-dtype)")
    parser.add_argument("--memory", metavar="BYTES", help="device memory for KV (80GB, 24GiB), or all with --weights")
    parser.add_argument("--weights", metavar="BYTES", help="taken off --memory first: weights and working space")
    parser.add_argument(
        "--mix", metavar="SPEC", help="also the mean over these lengths: default, or 70:128-2K,30:2K-16K"
    )
    parser.add_argument("--curve", metavar="FILE", help="also what this measured curve says (bench curve --curve-file)")
    parser.add_argument("--format", help="text or json (text)")


def run(options: argparse.Namespace) -> int:
    """Print the plan."""
    from dataclasses import replace
    from pathlib import Path

    from kvscope.commands._amounts import byte_count, token_count
    from kvscope.errors import UsageError, nearest
    from kvscope.plan import read_config
    from kvscope.plan.forms import KvForms
    from kvscope.plan.formulas import curve_estimate
    from kvscope.plan.plan import make_plan
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
    widths = KvForms.named(options.kv_dtype, options.index_dtype)
    config, context = read_config(Path(options.config)), token_count(options.context, "--context")
    found = make_plan(config, context, options.users, widths, memory)
    if options.mix:
        found = replace(found, mix_bytes=_mix_bytes(options.mix, config, widths))
    if options.curve:
        said = curve_estimate(*_curve(Path(options.curve)), config, context, widths)
        found = replace(found, estimates=(*found.estimates, said))
    print(renders[wanted](found))
    return 0


def _mix_bytes(text: str, config: ModelConfig, widths: KvForms) -> float:
    from kvscope.bench.workload import lengths
    from kvscope.plan.plan import held_bytes

    drawn = lengths.grid(lengths.DEFAULT if text == "default" else lengths.parse(text), 200)
    return sum(held_bytes(config, length, widths) for length in drawn) / len(drawn)


def _curve(path: Path) -> tuple[tuple[tuple[int, float], ...], float]:
    """Pieces and margin of a curve file; UsageError."""
    import json

    from kvscope.errors import UsageError

    try:
        content = json.loads(path.read_text())
        pieces = tuple((int(start), float(value)) for start, value in content["curve"])
        margin = float(content.get("margin", 0.0))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"--curve {path}: {error!r}; expected a file of kvscope bench curve --curve-file") from None
    if not pieces or pieces[0][0] != 0:
        raise UsageError(f"--curve {path}: begins at {pieces[0][0] if pieces else 'nothing'}, expected 0 tokens")
    return pieces, margin
