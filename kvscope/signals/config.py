"""What an engine was told: settings that decide what can go wrong, alone or against what is measured."""

from __future__ import annotations

from collections.abc import Callable

from kvscope.signals.latency import mean_of
from kvscope.signals.reading import Missing, Reading
from kvscope.signals.registry import signal
from kvscope.signals.window import Window
from probes.catalog import CATALOG

SETTINGS = {
    "kv_bits": ("config.kv_bits", "bits", "Bits of one stored KV element."),
    "kv_type_off_path": ("config.kv_type_off_path", "flag", "1 where no device kernel takes the KV's types."),
    "memory_utilization": ("config.memory_utilization", "ratio", "Share of the device's memory the engine may take."),
    "graph_memory_estimated": (
        "config.graph_memory_estimated",
        "flag",
        "1 where estimated memory of graphs is taken out of the KV pool.",
    ),
    "reserved_output_tokens": ("config.reserved_output_tokens", "tokens", "Tokens booked ahead for a request."),
    "window_kv": ("config.window_kv", "flag", "1 where some layers keep only a window of their KV."),
    "state_checkpoints": ("config.state_checkpoints", "flag", "1 where recurrent state is kept at checkpoints."),
    "sparse_index": ("config.sparse_index", "flag", "1 where index keys beside the KV choose what attention reads."),
    "speculative": ("config.speculative", "flag", "1 where tokens are guessed ahead and checked."),
    "max_batched_tokens": ("config.max_batched_tokens", "tokens", "Tokens that a step may compute."),
    "index_buffer_bytes": ("kv.index_buffer_bytes", "B", "Bytes of the buffer that scores every position."),
}
"""Signal → the setting it reads, unit, help."""


def _reader(metric: str, unit: str) -> Callable[[Window], Reading | Missing]:
    return lambda window: window.setting_reading(metric, unit)


def _others() -> dict[str, tuple[str, str, str]]:
    """Every other numeric setting of the catalogue, under its own name."""
    told = {metric for metric, _, _ in SETTINGS.values()}
    return {
        name.removeprefix("config."): (name, line.unit, line.help)
        for name, line in CATALOG.items()
        if name.startswith("config.") and line.kind == "gauge" and name not in told
    }


SETTINGS |= _others()

for _name, (_metric, _unit, _help) in SETTINGS.items():
    signal(_name, unit=_unit, needs=(_metric,), help=_help)(_reader(_metric, _unit))


def _over(top: Reading | Missing, bottom: Reading | Missing, unit: str) -> Reading | Missing:
    if isinstance(top, Missing):
        return top
    if isinstance(bottom, Missing):
        return bottom
    if bottom.value <= 0:
        return Missing("the setting is reported as 0", "a source that reports the setting")
    value = top.value / bottom.value
    error = (top.error**2 + (value * bottom.error) ** 2) ** 0.5 / bottom.value
    source = top.source if top.batches >= bottom.batches else bottom.source
    return Reading(value, error, unit, source, max(top.batches, bottom.batches), max(top.samples, bottom.samples))


@signal(
    "kv_replication_factor",
    unit="x",
    needs=("config.tensor_parallel", "config.kv_heads"),
    help="Ranks that a layer is split over / its KV heads: above 1 ranks hold copies of the same KV.",
)
def kv_replication_factor(window: Window) -> Reading | Missing:
    ranks = window.setting_reading("config.tensor_parallel", "ranks")
    return _over(ranks, window.setting_reading("config.kv_heads", "heads"), "x")


@signal(
    "running_over_graph_batch",
    unit="x",
    needs=("sched.running", "config.graph_max_batch"),
    help="Running requests / the largest batch for which a graph was captured: above 1 steps run without a graph.",
)
def running_over_graph_batch(window: Window) -> Reading | Missing:
    running = window.mean("sched.running", "requests")
    return _over(running, window.setting_reading("config.graph_max_batch", "requests"), "x")


@signal(
    "prompt_over_alignment",
    unit="x",
    needs=("request.tokens_in", "config.prefix_alignment"),
    help="Prompt tokens of a request / the multiple in which prefixes are cached: below 1 nothing can be cached.",
)
def prompt_over_alignment(window: Window) -> Reading | Missing:
    prompt = mean_of(window, "request.tokens_in", "tokens")
    return _over(prompt, window.setting_reading("config.prefix_alignment", "tokens"), "x")


@signal(
    "chunks_per_prompt",
    unit="steps",
    needs=("request.tokens_in", "config.max_batched_tokens"),
    help="Steps that a prompt's prefill takes at the tokens a step may compute.",
)
def chunks_per_prompt(window: Window) -> Reading | Missing:
    prompt = mean_of(window, "request.tokens_in", "tokens")
    return _over(prompt, window.setting_reading("config.max_batched_tokens", "tokens"), "steps")


@signal(
    "topk_over_prompt",
    unit="x",
    needs=("config.sparse_topk", "request.tokens_in"),
    help="Tokens sparse attention reads / prompt tokens: near 1 there is nothing to leave out.",
)
def topk_over_prompt(window: Window) -> Reading | Missing:
    topk = window.setting_reading("config.sparse_topk", "tokens")
    return _over(topk, mean_of(window, "request.tokens_in", "tokens"), "x")
