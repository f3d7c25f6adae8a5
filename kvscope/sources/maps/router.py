"""Routers before engines: vLLM production-stack, SGLang's router, llm-d's and AIBrix's gateways; read in their sources.

A router is never judged as an engine: what it says of its workers stands under the worker's name.
Sources: production-stack ``src/vllm_router/services/metrics_service`` (a6c01db0), SGLang ``sgl-model-gateway``
(``smg_``; ``sgl_router_`` before 0.3), llm-d's scheduler (520af478: ``inference_extension_``, ``inference_pool_``,
``inference_objective_``), AIBrix ``pkg/metrics`` (e3e10f9e: ``gateway_``).

Looked at and left: latencies that a router saw (the engine's own are better), averages over a pool that hide which
member queues, routing's own overhead, circuit breakers, discovery, semantic caches, databases, tools.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from kvscope.sources.mapping import Derived, Entry

ENGINE = "router"
ROLE = "router"
EXPECTS = "names starting with vllm:current_qps, sgl_router_, smg_, inference_pool_ or gateway_in_flight_requests"
IDENTITY: Mapping[str, str] = {}
VERSION_PATH = ""
FLAGS = ()

_STACK = ("vllm:current_qps", "vllm:avg_decoding_length", "vllm:healthy_pods_total", "vllm:num_prefill_requests")
"""Families that production-stack's router has beside ones that are spelt as its engines' are."""
_OWN = (
    "sgl_router_",
    "smg_",
    "inference_pool_",
    "inference_extension_",
    "inference_model_",
    "inference_objective_",
    "aibrix_",
    "gateway_in_flight_requests",
    "gateway_request",
    "realtime_num_requests_running",
    "vllm_router:",
)
_SERVER = (("server", "worker"),)
_POD = (("pod", "worker"),)

MAP = (
    Entry("vllm:num_requests_running", "router.running", "gauge", "requests", rename=_SERVER),
    Entry("vllm:num_requests_waiting", "router.waiting", "gauge", "requests", rename=_SERVER),
    Entry(
        "vllm:num_prefill_requests",
        "router.running",
        "gauge",
        "requests",
        rename=_SERVER,
        unless="vllm:num_requests_running",
        caveat="those in prefill",
    ),
    Entry(
        "vllm:num_decoding_requests",
        "router.running",
        "gauge",
        "requests",
        rename=_SERVER,
        unless="vllm:num_requests_running",
        caveat="those in decode",
    ),
    Entry("vllm:request_latency_seconds_count", "router.requests", "counter", "requests", rename=_SERVER),
    Entry("sgl_router_processed_requests_total", "router.requests", "counter", "requests", keep=("worker",)),
    Entry("sgl_router_running_requests", "router.running", "gauge", "requests", keep=("worker",)),
    Entry("smg_worker_requests_total", "router.requests", "counter", "requests", keep=("worker",)),
    Entry("smg_worker_requests_active", "router.running", "gauge", "requests", keep=("worker",)),
    Entry(
        "inference_pool_per_pod_queue_size",
        "router.waiting",
        "gauge",
        "requests",
        rename=(("model_server_pod", "worker"),),
    ),
    Entry("realtime_num_requests_running", "router.running", "gauge", "requests", rename=_POD),
    Entry("num_requests_waiting", "router.waiting", "gauge", "requests", rename=_POD, caveat="the engine's word"),
    Entry("gateway_requests_with_usage_total", "router.requests", "counter", "requests", rename=_POD),
)


def is_router(names: Collection[str]) -> bool:
    """Whether a page is a router's, though some of its names are spelt as an engine's."""
    return any(name.startswith(_OWN) for name in names) or any(name in names for name in _STACK)


def detect(names: Collection[str]) -> bool:
    return is_router(names)


def derive(
    infos: Mapping[str, Sequence[Mapping[str, str]]], values: Mapping[str, float], flags: Mapping[str, str]
) -> Derived:
    """Nothing stands in labels."""
    return Derived()
