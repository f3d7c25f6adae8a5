"""What comes back: of a tier what was stored in it, of a kept prompt what it matched, of memory what a request took,
and of a fleet whether work goes where there is room.
"""

from __future__ import annotations

from itertools import pairwise

from kvscope.signals.algebra import OverCells, gauge, rate, ratio, share
from kvscope.signals.by_cell import cells_of
from kvscope.signals.evaluate import evaluate
from kvscope.signals.inferred import engine_of
from kvscope.signals.reading import Missing, Reading
from kvscope.signals.registry import DOWN, declare, procedure
from kvscope.signals.samples import SEND_WORK, WATCH_LONGER, Cell, Samples
from probes.catalog import REPLICA

_FEWEST_LEVELS = 5
ROUTED = ("router.running", "router.waiting")
"""What a router says of each of its workers."""
_IDLE = 0.05
"""Requests below which a replica ran nothing, but for a moment."""
_BORN_WITH_FIRST_USE = ("sglang", "vllm")
"""Engines whose labelled counters are not on the page before they first grow."""


@procedure(
    "tier_returned_share",
    unit="x",
    reads=("tier.bytes_in", "tier.bytes_out", "tier.tokens_in", "tier.tokens_out", "tier.blocks_in", "tier.blocks_out"),
    help="What a slower tier gave back / what was stored in it, in bytes, else tokens or blocks.",
)
def tier_returned_share(samples: Samples) -> Reading | Missing:
    nothing = "nothing was stored in a slower tier in this segment"
    for unit in ("bytes", "tokens", "blocks"):
        stored, loaded = samples.counter(f"tier.{unit}_out"), samples.counter(f"tier.{unit}_in")
        if isinstance(stored, Missing):
            continue
        if not isinstance(loaded, Missing):
            return evaluate(ratio(f"tier.{unit}_in", f"tier.{unit}_out", "x", nothing), samples)
        others = any(samples.store.keys(f"tier.{one}_in") for one in ("bytes", "tokens", "blocks"))
        grown = samples.increase_of(f"tier.{unit}_out")
        if not others and isinstance(grown, float) and grown > 0 and engine_of(samples) in _BORN_WITH_FIRST_USE:
            return Reading(0.0, 0.0, "x", "inferred: loads are counted from the first one on, and none is")
    return Missing("nobody counts what a slower tier takes and gives", "an engine with a second tier")


@procedure(
    "tier_fill_share",
    unit="ratio",
    reads=("tier.usage_ratio", "tier.used_tokens", "tier.capacity_tokens", "tier.used_bytes", "tier.capacity_bytes"),
    help="Share of a slower tier that holds KV, at the end of the segment.",
)
def tier_fill_share(samples: Samples) -> Reading | Missing:
    for used, room in (("tier.used_tokens", "tier.capacity_tokens"), ("tier.used_bytes", "tier.capacity_bytes")):
        held, fits = samples.setting(used), samples.setting(room)
        if not isinstance(held, Missing) and not isinstance(fits, Missing) and fits > 0:
            return Reading(min(1.0, held / fits), 0.0, "ratio", "measured: used over capacity", 1, 1)
    share_held = samples.setting("tier.usage_ratio")
    if isinstance(share_held, Missing):
        return share_held
    return Reading(share_held, 0.0, "ratio", "measured: as reported", 1, 1)


@procedure(
    "prefix_back_share",
    unit="ratio",
    reads=("prefix.reusable", "prefix.matched", "prefix.queries"),
    help="Prompt tokens that came before / looked up: counted, else what a kept prompt still matches.",
)
def prefix_back_share(samples: Samples) -> Reading | Missing:
    nothing = "no prompt token was looked up in this segment"
    counted = evaluate(share("prefix.reusable", "prefix.queries", nothing), samples)
    if isinstance(counted, Reading):
        return counted
    return evaluate(share("prefix.matched", "prefix.queries", nothing), samples)


@procedure(
    "prefix_cut_tokens",
    unit="tokens",
    reads=("prefix.matched", "prefix.hits", "request.tokens_computed"),
    help="Tokens of a prompt that a kept prefix matched and that were computed all the same, a request.",
)
def prefix_cut_tokens(samples: Samples) -> Reading | Missing:
    matched, found = samples.increase_of("prefix.matched"), samples.increase_of("prefix.hits")
    if isinstance(matched, Missing):
        return matched
    if isinstance(found, Missing):
        return found
    asked = [value for _, values in samples.slices("request.tokens_computed").values() for value in values]
    grown = samples.increase_of("request.tokens_computed.count")
    requests = float(len(asked)) or (0.0 if isinstance(grown, Missing) else grown)
    if requests <= 0:
        return Missing("no request is told in this segment", SEND_WORK)
    return Reading(max(0.0, matched - found) / requests, 0.0, "tokens", "measured: counted", 1, round(requests))


@procedure(
    "idle_replicas_beside_queues",
    unit="replicas",
    reads=("sched.running", "sched.waiting", *ROUTED),
    help="Replicas that ran nothing while others had requests waiting: 0 where none waits anywhere.",
    better=DOWN,
)
def idle_replicas_beside_queues(samples: Samples) -> Reading | Missing:
    from kvscope.signals.replicas import names, pools

    fleet = names(samples.store)
    if len(fleet) < 2:
        workers = cells_of(samples, ROUTED, "worker")
        if len(workers) < 2:
            return Missing("one engine: there is nothing to compare it with", "watch the fleet: host1:8000,host2:8000")
        told = [[_load_of(samples.only(cell), ROUTED) for cell in workers]]
        says = "a router's word on its workers"
    else:
        pair = ("sched.running", "sched.waiting")
        groups = list(pools(samples.store, samples.segment).values()) or [tuple(fleet)]
        told = [[_load_of(samples.only(Cell(REPLICA, one)), pair) for one in group] for group in groups]
        says = "replicas"
    known = [[pair for pair in group if pair is not None] for group in told]
    count = sum(map(len, known))
    if count < 2:
        return Missing("fewer than two replicas tell what runs and waits", WATCH_LONGER)
    # A decode replica cannot take what waits to be prefilled.
    idle = sum(
        sum(running < _IDLE and waiting < _IDLE for running, waiting in group)
        for group in known
        if any(waiting >= 1 for _, waiting in group)
    )
    return Reading(float(idle), 0.0, "replicas", f"measured: of {count} {says}", 1, count)


def _load_of(samples: Samples, metrics: tuple[str, str]) -> tuple[float, float] | None:
    """Return mean requests running and waiting of one replica; a router that tells one of them means 0 by the other."""
    found = [evaluate(gauge(one), samples) for one in metrics]
    known = [one.value for one in found if isinstance(one, Reading)]
    if len(known) < (1 if metrics == ROUTED else 2):
        return None
    running, waiting = (one.value if isinstance(one, Reading) else 0.0 for one in found)
    return running, waiting


for _metric, _counted in {
    "router.requests": "Requests sent to the worker that got most / the mean of a router's workers.",
    "router.kv_blocks": "KV blocks of the worker that holds most / the mean of a router's workers.",
    "router.prefill_tokens": "Prompt tokens before the worker with most / the mean of a router's workers.",
}.items():
    _amount = rate(_metric) if _metric == "router.requests" else gauge(_metric)
    _name = f"{_metric.replace('.', '_')}_ratio"
    declare(_name, OverCells(_amount, "worker", "most_over_mean"), DOWN, _counted)


@procedure(
    "device_memory_growth",
    unit="x",
    reads=("gpu.mem_used",),
    help="Device memory in use at the end / at the start, where it only ever rose; 1 where it fell again.",
)
def device_memory_growth(samples: Samples) -> Reading | Missing:
    found = samples.level("gpu.mem_used")
    if isinstance(found, Missing):
        return found
    _, values = found
    if len(values) < _FEWEST_LEVELS or values[0] <= 0:
        return Missing(f"only {len(values)} readings of device memory", WATCH_LONGER)
    fell = any(after < 0.98 * before for before, after in pairwise(values))
    return Reading(1.0 if fell else values[-1] / values[0], 0.0, "x", "measured: first and last", 1, len(values))


@procedure(
    "tier_asked_tokens",
    unit="tokens",
    reads=("tier.queries",),
    help="Prompt tokens looked up in a slower tier in the whole segment: counted.",
)
def tier_asked_tokens(samples: Samples) -> Reading | Missing:
    asked = samples.increase_of("tier.queries")
    return asked if isinstance(asked, Missing) else Reading(asked, 0.0, "tokens", "measured: counted", 1, 1)


@procedure(
    "request_length_growth",
    unit="x",
    reads=("request.tokens_in", "request.tokens_computed"),
    help="Prompt tokens of the later half of the requests / of the earlier half.",
)
def request_length_growth(samples: Samples) -> Reading | Missing:
    for metric in ("request.tokens_in", "request.tokens_computed"):
        pairs = samples.observed(metric)
        if not isinstance(pairs, Missing) and len(pairs[1]) >= _FEWEST_LEVELS:
            half = len(pairs[1]) // 2
            early, late = sum(pairs[1][:half]) / half, sum(pairs[1][-half:]) / half
            return Reading(late / max(early, 1.0), 0.0, "x", "measured: each request", 1, len(pairs[1]))
    return Missing("nobody tells requests one by one", "the server's log, or its API's answers")
