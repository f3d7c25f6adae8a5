"""Text Generation Inference's page; read in its source (in maintenance mode). Its counters carry no ``_total``."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from kvscope.sources.mapping import Derived, Entry

ENGINE = "tgi"
ROLE = "engine"
EXPECTS = "names starting with tgi_"
IDENTITY: dict[str, str] = {}
VERSION_PATH = "/info"
FLAGS = ("max-concurrent-requests",)

_BUDGET = "the worst case of the batch's requests, not what they hold: a budget, never a fill level"

MAP = (
    Entry("tgi_request_generated_tokens_sum", "tokens.generated", "counter", "tokens", caveat="added at request end"),
    Entry("tgi_request_input_length_sum", "tokens.prompt", "counter", "tokens", caveat="added at request end"),
    Entry("tgi_request_success", "requests.finished", "counter", "requests"),
    Entry("tgi_request_failure", "requests.errors", "counter", "requests"),
    Entry("tgi_batch_inference_count", "batch.steps", "counter", "steps"),
    Entry("tgi_batch_current_size", "sched.running", "gauge", "requests"),
    Entry("tgi_queue_size", "sched.waiting", "gauge", "requests"),
    Entry(
        "tgi_batch_max_total_tokens",
        "kv.capacity_tokens",
        "gauge",
        "tokens",
        caveat="the token budget; its description calls it tgi_batch_total_tokens",
    ),
    Entry("tgi_batch_current_max_tokens", "kv.budget_tokens", "gauge", "tokens", caveat=_BUDGET),
    Entry("tgi_batch_next_size", "batch.requests_per_step", "histogram", "requests"),
    Entry(
        "tgi_batch_forward_duration",
        "latency.step",
        "histogram",
        "s",
        where=(("method", "decode"),),
        caveat="decode steps; prefill ones are left out",
    ),
    Entry("tgi_request_duration", "latency.e2e", "histogram", "s"),
    Entry("tgi_request_queue_duration", "sched.queue_time", "histogram", "s"),
    Entry("tgi_request_inference_duration", "latency.inference_time", "histogram", "s"),
    Entry("tgi_request_mean_time_per_token_duration", "latency.tpot", "histogram", "s"),
    Entry("tgi_request_input_length", "request.tokens_in", "histogram", "tokens"),
    Entry("tgi_request_generated_tokens", "request.tokens_out", "histogram", "tokens"),
)


def detect(names: Collection[str]) -> bool:
    return any(name.startswith("tgi_") for name in names)


def derive(
    infos: Mapping[str, Sequence[Mapping[str, str]]], values: Mapping[str, float], flags: Mapping[str, str]
) -> Derived:
    """Nothing more: the budget is not read as usage, so the fill of the pool stays unknown."""
    return Derived()
