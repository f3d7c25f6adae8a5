"""LMDeploy's page (``lmdeploy:`` names, PyTorch and TurboMind); read in its source."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from kvscope.sources.mapping import Derived, Entry, number

ENGINE = "lmdeploy"
ROLE = "engine"
EXPECTS = "names starting with lmdeploy:"
IDENTITY = {"model_name": "model"}
VERSION_PATH = ""
FLAGS = ("max-batch-size",)

MAP = (
    Entry("lmdeploy:generation_tokens_total", "tokens.generated", "counter", "tokens"),
    Entry("lmdeploy:prompt_tokens_total", "tokens.prompt", "counter", "tokens", caveat="cached tokens count too"),
    Entry("lmdeploy:prompt_tokens_total", "prefix.queries", "counter", "tokens"),
    Entry("lmdeploy:cached_tokens_total", "prefix.hits", "counter", "tokens"),
    Entry("lmdeploy:request_success_total", "requests.finished", "counter", "requests"),
    Entry(
        "lmdeploy:num_requests_failed", "requests.errors", "counter", "requests", caveat="declared a gauge: it grows"
    ),
    Entry(
        "lmdeploy:iteration_tokens_total_count", "batch.steps", "counter", "steps", caveat="the count of a histogram"
    ),
    Entry("lmdeploy:iteration_tokens_total", "batch.tokens_per_step", "histogram", "tokens"),
    Entry("lmdeploy:num_requests_running", "sched.running", "gauge", "requests"),
    Entry("lmdeploy:num_requests_waiting", "sched.waiting", "gauge", "requests"),
    Entry(
        "lmdeploy:num_api_requests_waiting", "sched.waiting", "gauge", "requests", caveat="before the engine's queue"
    ),
    Entry("lmdeploy:gpu_cache_usage_perc", "kv.usage_ratio", "gauge", "ratio", combine="mean", caveat="0 to 1"),
    Entry("lmdeploy:spec_decode_num_drafts_total", "spec.drafts", "counter", "rounds"),
    Entry("lmdeploy:spec_decode_num_draft_tokens_total", "spec.draft_tokens", "counter", "tokens"),
    Entry("lmdeploy:spec_decode_num_accepted_tokens_total", "spec.accepted_tokens", "counter", "tokens"),
    Entry("lmdeploy:time_to_first_token_seconds", "latency.ttft", "histogram", "s"),
    Entry("lmdeploy:time_per_output_token_seconds", "latency.tpot", "histogram", "s"),
    Entry("lmdeploy:iter_token_latency", "latency.itl", "histogram", "s", caveat="seconds; its name does not say so"),
    Entry("lmdeploy:e2e_request_latency_seconds", "latency.e2e", "histogram", "s"),
    Entry("lmdeploy:request_queue_time_seconds", "sched.queue_time", "histogram", "s"),
    Entry("lmdeploy:request_inference_time_seconds", "latency.inference_time", "histogram", "s"),
    Entry("lmdeploy:request_prefill_time_seconds", "latency.prefill_time", "histogram", "s"),
    Entry("lmdeploy:request_decode_time_seconds", "latency.decode_time", "histogram", "s"),
    Entry("lmdeploy:request_prompt_tokens", "request.tokens_in", "histogram", "tokens"),
    Entry("lmdeploy:request_generation_tokens", "request.tokens_out", "histogram", "tokens"),
    Entry("process_start_time_seconds", "process.start_time", "gauge", "s", combine="max"),
)


def detect(names: Collection[str]) -> bool:
    return any(name.startswith("lmdeploy:") for name in names)


def derive(
    infos: Mapping[str, Sequence[Mapping[str, str]]], values: Mapping[str, float], flags: Mapping[str, str]
) -> Derived:
    """Take the limit on running requests from the command line."""
    limit = number(flags, "max-batch-size")
    return Derived({"sched.max_running": limit}, {"cap": f"{limit:g}"}) if limit else Derived()
