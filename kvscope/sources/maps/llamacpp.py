"""llama.cpp's server (``--metrics``, and ``--slots`` for the pool); read in its documentation."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from kvscope.sources.mapping import Derived, Entry, json_number, number

ENGINE = "llama.cpp"
ROLE = "engine"
EXPECTS = "names starting with llamacpp:"
IDENTITY: dict[str, str] = {}
VERSION_PATH = ""
_SLOTS, _SIZE = ("parallel", "np"), ("ctx-size", "c")
_ONE_POOL, _OWN_POOLS = ("kv-unified", "kvu"), ("no-kv-unified", "no-kvu")
FLAGS = (*_SLOTS, *_SIZE, *_ONE_POOL, *_OWN_POOLS)
SIDE_PATH = "/slots"
SIDE_FLAG = "--slots"

_RATE = "tokens per second of the last report, in spite of its name: the counters say more"
_OLD = "old builds only: newer ones say it in /slots"

MAP = (
    Entry("llamacpp:tokens_predicted_total", "tokens.generated", "counter", "tokens"),
    Entry("llamacpp:prompt_tokens_total", "tokens.prefilled", "counter", "tokens", caveat="computed ones only"),
    Entry("llamacpp:prompt_seconds_total", "time.prefill_requests", "counter", "s"),
    Entry("llamacpp:tokens_predicted_seconds_total", "time.decode_requests", "counter", "s"),
    Entry("llamacpp:requests_processing", "sched.running", "gauge", "requests"),
    Entry("llamacpp:requests_deferred", "sched.waiting", "gauge", "requests", caveat="wait for a slot"),
    Entry("llamacpp:n_decode_total", "batch.steps", "counter", "steps"),
    Entry(
        "llamacpp:n_tokens_max",
        "batch.longest_context",
        "gauge",
        "tokens",
        combine="max",
        caveat="declared a counter: it is a high-water mark",
    ),
    Entry("llamacpp:spec_decode_num_drafts_total", "spec.drafts", "counter", "rounds"),
    Entry("llamacpp:spec_decode_num_draft_tokens_total", "spec.draft_tokens", "counter", "tokens"),
    Entry("llamacpp:spec_decode_num_accepted_tokens_total", "spec.accepted_tokens", "counter", "tokens"),
    Entry(
        "llamacpp:kv_cache_usage_ratio",
        "kv.usage_ratio",
        "gauge",
        "ratio",
        combine="mean",
        condition="an old build",
        caveat=_OLD,
    ),
    Entry("llamacpp:kv_cache_tokens", "kv.used_tokens", "gauge", "tokens", condition="an old build", caveat=_OLD),
)


def detect(names: Collection[str]) -> bool:
    return any(name.startswith("llamacpp:") for name in names)


def derive(
    infos: Mapping[str, Sequence[Mapping[str, str]]], values: Mapping[str, float], flags: Mapping[str, str]
) -> Derived:
    """Take the number of slots from the command line where ``/slots`` does not tell it, and the share of the pool."""
    found: dict[str, float] = {}
    slots = _first(flags, _SLOTS)
    if slots and "sched.max_running" not in values:
        found["sched.max_running"] = slots
    used, capacity = values.get("kv.used_tokens"), values.get("kv.capacity_tokens")
    if capacity and used is not None and "kv.usage_ratio" not in values:
        found["kv.usage_ratio"] = min(1.0, used / capacity)
    one = _one_pool(flags, capacity, values.get("sched.max_running", slots))
    if one is not None:
        found["config.kv_unified"] = float(one)
    return Derived(found)


def _first(flags: Mapping[str, str], names: Collection[str]) -> float | None:
    return next((value for name in names if (value := number(flags, name)) is not None), None)


def _one_pool(flags: Mapping[str, str], capacity: float | None, slots: float | None) -> bool | None:
    """Return whether slots share one pool, as the command line says it; None where it does not.

    ``/slots`` tells each slot the whole of a shared pool, which is the size asked for; of their own, a part of it.
    """
    if any(name in flags for name in (*_ONE_POOL, *_OWN_POOLS)):
        return any(name in flags for name in _ONE_POOL)
    asked = _first(flags, _SIZE)
    if not asked or not capacity or not slots or slots < 2:
        return None
    return capacity / slots > 0.75 * asked


def read_side(document: object) -> dict[str, float]:
    """Read ``/slots``: one entry a slot. Tokens held are known only where a build says how long a slot's prompt is."""
    slots = [slot for slot in document if isinstance(slot, dict)] if isinstance(document, list) else []
    sizes = [_tokens(slot, "n_ctx") for slot in slots]
    if not sizes or None in sizes:
        return {}
    found = {
        "kv.capacity_tokens": sum(size for size in sizes if size is not None),
        "sched.max_running": float(len(slots)),
    }
    held = [_held(slot) for slot in slots if slot.get("is_processing")]
    if None not in held:
        found["kv.used_tokens"] = sum(tokens for tokens in held if tokens is not None)
    return found


def _held(slot: Mapping[str, object]) -> float | None:
    prompt = _tokens(slot, "n_prompt_tokens")
    after = slot.get("next_token")
    first = after[0] if isinstance(after, list) and after else after
    decoded = _tokens(first, "n_decoded") if isinstance(first, dict) else 0.0
    return None if prompt is None or decoded is None else prompt + decoded


def _tokens(slot: Mapping[str, object], name: str) -> float | None:
    found = json_number(slot.get(name))
    return found if found is not None and found >= 0 else None
