"""Say what a model's KV cache will weigh in an engine's pool, before the engine starts: per token, request and GPU.

MODEL is a config.json or its folder, a GGUF file (its header is read), the id of a model in the local Hugging Face
cache, the URL of a running server, or a server's log. A layer arrangement, model type or key that is not understood is
refused (exit 2). Exit 1: it does not fit.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvscope.plan.bound import Bound, Estimate
    from kvscope.plan.engines import Ask, Options, Split
    from kvscope.plan.memory import Given
    from kvscope.plan.plan import Plan
    from kvscope.plan.target import Reported, Target

GROUP = "plan and measure"
EXAMPLES = ("kvscope plan --config config.json --context 128K --users 64 --kv-dtype fp8",)


def configure(parser: argparse.ArgumentParser) -> None:
    """The model, the engine, the requests, the memory."""
    parser.add_argument("model", nargs="?", metavar="MODEL", help="config.json, folder, GGUF, model id, URL or log")
    parser.add_argument("--config", metavar="FILE", help="the model of a server or log that names none; or MODEL")
    parser.add_argument("--context", metavar="N", help="tokens of each request, 32768 or 32K (the model's longest)")
    parser.add_argument("--users", type=int, default=1, metavar="N", help="requests at the same time (1)")
    parser.add_argument("--mix", metavar="SPEC", help="also the mean over lengths: default, or 70:128-2K,30:2K-16K")
    _engine(parser)
    _types(parser)
    _memory(parser)
    parser.add_argument("--explain", action="store_true", help="the rules and formulas behind each figure")
    parser.add_argument("--curve", metavar="FILE", help="also what this measured curve says (bench curve --curve-file)")
    parser.add_argument("--format", help="text, json or html (text)")


def _engine(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("engine and deployment")
    group.add_argument(
        "--engine", metavar="E", help="none, vllm, sglang, llama.cpp, ollama, trtllm, lmdeploy, transformers; vllm@0.20"
    )
    group.add_argument("--tp", type=int, default=1, metavar="N", help="tensor-parallel ranks (1)")
    group.add_argument("--pp", type=int, default=1, metavar="N", help="pipeline stages (1)")
    group.add_argument(
        "--dp-attention",
        type=int,
        nargs="?",
        const=0,
        default=1,
        metavar="N",
        help="attention groups in TP (all of TP)",
    )
    group.add_argument("--ep", type=int, default=1, metavar="N", help="expert-parallel ranks (1)")
    group.add_argument("--block-size", type=int, metavar="N", help="tokens a block or page (the engine's)")
    group.add_argument("--max-num-batched-tokens", type=int, metavar="N", help="of a step or prefill chunk")
    group.add_argument("--swa-full-tokens-ratio", type=float, metavar="F", help="SGLang: window pool to full pool")
    group.add_argument("--mamba-full-memory-ratio", type=float, metavar="F", help="SGLang: states to KV")
    group.add_argument("-np", "--parallel", dest="slots", type=int, default=1, metavar="N", help="llama.cpp: slots (1)")
    group.add_argument("-ub", "--ubatch-size", type=int, metavar="N", help="llama.cpp: micro-batch (512)")
    group.add_argument(
        "--swa-full",
        action="store_true",
        help="windows as large as full layers (llama.cpp; other engines: no pool for windows)",
    )
    group.add_argument("--kv-unified", action="store_true", help="llama.cpp: slots share the context")
    group.add_argument(
        "--draft-tokens", type=int, default=0, metavar="N", help="speculated a step; counts draft layers"
    )
    group.add_argument("--prefix-caching", action=argparse.BooleanOptionalAction, help="prefix caching (the engine's)")


def _types(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("number types")
    group.add_argument("--kv-dtype", default="auto", metavar="T", help="bf16, fp8, q8_0, ... or K:V (the checkpoint's)")
    group.add_argument("--index-dtype", metavar="T", help="of a sparse index's keys (fp8 with a scale)")
    group.add_argument("--state-dtype", metavar="T", help="of recurrent states (the checkpoint's, else the engine's)")


def _memory(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("memory of one GPU")
    group.add_argument("--gpu", metavar="NAME", help="H200, A100-80, RTX-4090, ...: memory, bandwidth and peak")
    group.add_argument("--memory", metavar="BYTES", help="the KV pool (24GiB), or all memory with --weights or --gpu")
    group.add_argument("--weights", metavar="BYTES", help="of the whole model (the checkpoint's, or by formula)")
    group.add_argument("--utilisation", type=float, metavar="F", help="share of memory the engine takes (its own)")
    group.add_argument("--reserve", metavar="BYTES", help="activations and graphs (estimated)")


def run(options: argparse.Namespace) -> int:
    """Print the plan; 1 when the requests do not fit."""
    from kvscope.errors import EXIT_FINDING, EXIT_OK
    from kvscope.plan import engines
    from kvscope.plan.bound import bound_of, estimates
    from kvscope.plan.memory import left_for_kv
    from kvscope.plan.plan import make_plan
    from kvscope.plan.target import open_target

    wanted = _format(options)
    target = open_target(_model(options), options.config if options.model else None)
    engine, release = engines.find(options.engine or target.engine or "none")
    ask = _ask(options, target, release)
    memory = left_for_kv(engine.NAME, ask, _given(options, target))
    found = make_plan(target.name, engine, ask, options.users, memory, _mix(options))
    said = estimates(ask.model, ask.context, ask.forms)
    if options.curve:
        said = (*said, _curve(options, ask))
    fits = found.whole.max_concurrency
    bound = bound_of(ask, memory.device if memory else None, fits)
    print(_render(wanted, found, bound, said, target.reported, options.explain))
    return EXIT_FINDING if found.fits is False else EXIT_OK


def _render(
    wanted: str, plan: Plan, bound: Bound | None, said: tuple[Estimate, ...], reported: Reported | None, explain: bool
) -> str:
    from kvscope.plan import report

    if wanted == "json":
        return report.as_json(plan, bound, said, reported)
    if wanted == "html":
        from kvscope.plan.report import as_html

        return as_html(plan, bound, report.as_text(plan, bound, said, reported, True, []))
    from kvscope.plan.report import drawn

    return report.as_text(plan, bound, said, reported, explain, drawn(plan, bound))


def _format(options: argparse.Namespace) -> str:
    from kvscope.errors import UsageError, nearest

    known = ("text", "json", "html")
    wanted = options.format or "text"
    if wanted not in known:
        raise UsageError(f"--format {wanted!r}{nearest(wanted, known)}; expected text, json or html")
    return str(wanted)


def _model(options: argparse.Namespace) -> str:
    from kvscope.errors import UsageError

    if not (options.model or options.config):
        raise UsageError("expected a MODEL: a config.json, its folder, a GGUF file, a model id, a URL or a log")
    return str(options.model or options.config)


def _ask(options: argparse.Namespace, target: Target, release: tuple[int, ...]) -> Ask:
    from dataclasses import replace

    from kvscope.amounts import byte_count, token_count
    from kvscope.errors import UsageError
    from kvscope.plan.engines import Ask
    from kvscope.plan.weights import measured

    model = target.model
    if options.weights:
        given = byte_count(options.weights, "--weights")
        model = replace(model, weights=measured(model.weights, given, "as said"))
    context = token_count(options.context, "--context") if options.context else target.context or model.max_context
    if context is None:
        raise UsageError(f"{model.where}: the config names no longest context; expected --context N")
    kv = options.kv_dtype if options.kv_dtype != "auto" else target.kv_dtype or "auto"
    return Ask(
        model,
        model.forms(kv, options.index_dtype),
        context,
        _split(options, target),
        _options(options, target, release),
    )


def _split(options: argparse.Namespace, target: Target) -> Split:
    from kvscope.plan.engines import Split

    tp = options.tp if options.tp != 1 else target.tp or 1
    return Split(tp, options.pp, tp if options.dp_attention == 0 else options.dp_attention, options.ep)


def _options(options: argparse.Namespace, target: Target, release: tuple[int, ...]) -> Options:
    from kvscope import devices
    from kvscope.errors import UsageError
    from kvscope.plan import forms
    from kvscope.plan.engines import Options

    for name in ("block_size", "max_num_batched_tokens", "slots", "ubatch_size"):
        value = getattr(options, name)
        if value is not None and not 1 <= value <= 1 << 24:
            raise UsageError(f"--{name.replace('_', '-')} {value}: expected 1 to {1 << 24}")
    for name in ("swa_full_tokens_ratio", "mamba_full_memory_ratio"):
        value = getattr(options, name)
        if value is not None and not 0 < value <= 100:
            raise UsageError(f"--{name.replace('_', '-')} {value}: expected more than 0")
    if not 0 <= options.draft_tokens <= 64:
        raise UsageError(f"--draft-tokens {options.draft_tokens}: expected 0 to 64")
    if options.state_dtype:
        forms.get(options.state_dtype, "--state-dtype")
    return Options(
        release=release,
        block_size=options.block_size or target.block_size,
        batched_tokens=options.max_num_batched_tokens or target.batched_tokens,
        swa_ratio=options.swa_full_tokens_ratio,
        slots=options.slots if options.slots != 1 else target.slots or 1,
        micro_batch=options.ubatch_size,
        swa_full=options.swa_full,
        unified=options.kv_unified,
        draft_tokens=options.draft_tokens,
        prefix_caching=target.prefix_caching if options.prefix_caching is None else options.prefix_caching,
        state_ratio=options.mamba_full_memory_ratio,
        state_dtype=options.state_dtype,
        memory_bytes=devices.find(options.gpu).memory_bytes if options.gpu else None,
    )


def _given(options: argparse.Namespace, target: Target) -> Given:
    from kvscope import devices
    from kvscope.amounts import byte_count
    from kvscope.errors import UsageError
    from kvscope.plan.memory import Given

    if options.weights and not (options.memory or options.gpu):
        raise UsageError("--weights without --memory or --gpu: expected the memory that they are taken off")
    if options.utilisation is not None and not 0 < options.utilisation <= 1:
        raise UsageError(f"--utilisation {options.utilisation}: expected a share above 0, at most 1")
    return Given(
        memory=byte_count(options.memory, "--memory") if options.memory else target.pool_bytes,
        device=devices.find(options.gpu) if options.gpu else None,
        weights=byte_count(options.weights, "--weights") if options.weights else None,
        share=options.utilisation,
        reserve=byte_count(options.reserve, "--reserve") if options.reserve else None,
    )


def _mix(options: argparse.Namespace) -> tuple[int, ...]:
    if not options.mix:
        return ()
    from kvscope.bench.workload import lengths

    return tuple(lengths.grid(lengths.DEFAULT if options.mix == "default" else lengths.parse(options.mix), 200))


def _curve(options: argparse.Namespace, ask: Ask) -> Estimate:
    """What a measured curve says; UsageError for a file that is none."""
    from pathlib import Path

    from kvscope.plan.bound import curve_estimate, curve_of

    pieces, margin = curve_of(Path(options.curve))
    return curve_estimate(pieces, margin, ask.model, ask.context, ask.forms)
