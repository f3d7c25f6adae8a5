"""Which steady states of the built-in engine make the first six playbooks say what."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kvscope.recording import write_fixture
from tests.states import AFTERWARDS, WINDOWS
from tests.synthetic import TAGS, State, Stretch, stream

Situation = Sequence[Stretch]

DENSE = State()
SLOW_ACCESS = {"host": 0.05, "linear": 0.15, "index": 0.22, "gather": 0.38, "attend": 0.12, "decompress": 0.05}
FAST_ACCESS = {"host": 0.12, "linear": 0.40, "index": 0.09, "attend": 0.34, "sample": 0.04}
CALM = {"host": 0.07, "linear": 0.22, "index": 0.06, "attend": 0.58, "transfer": 0.01, "sample": 0.02}
THRASH = {"host": 0.06, "linear": 0.18, "index": 0.05, "attend": 0.46, "transfer": 0.22, "sample": 0.02}

COMPRESSED = DENSE.but(
    tokens_per_s=330.0,
    resident=7.0e7,
    assumed=7.4e7,
    token_measured=2150.0,
    kept=0.25,
    hit=0.25,
    hot=0.10,
    shares=SLOW_ACCESS,
    token_assumed=2150.0,
)
BLOCK_KERNELS = COMPRESSED.but(tokens_per_s=640.0, shares=FAST_ACCESS)
RESERVED = DENSE.but(running=5, waiting=9, cap=16, reserved=2.4e8, assumed=2.2e8)
STILL_RESERVED = RESERVED.but(
    resident=7.0e7, token_measured=2150.0, kept=0.25, hit=0.25, hot=0.10, shares=FAST_ACCESS, tokens_per_s=410.0
)
HANDED_OUT = STILL_RESERVED.but(running=12, waiting=2, assumed=1.7e8, token_assumed=2150.0, resident=1.6e8)
CAPPED = DENSE.but(running=4, waiting=10, cap=4, resident=4e7, assumed=4.2e7, shares={"host": 0.2, "linear": 0.5})
UNCAPPED = CAPPED.but(running=8, waiting=6, cap=8, resident=8e7, assumed=8.4e7, tokens_per_s=640.0)
COLD_PREFIX = COMPRESSED.but(ttft=0.61, prefill_decompress=0.38, tokens_per_s=470.0, shares=FAST_ACCESS, waiting=0)
QUIET_DENSE = DENSE.but(waiting=0, running=6)
TIERED = DENSE.but(hot=0.97, kept=0.25, hit=0.25, shares=CALM, switches_per_token=0.02, waiting=0, running=6)
THRASHING = TIERED.but(hot=0.78, shares=THRASH, switches_per_token=0.35, tpot=0.0247)
OBEDIENT = TIERED.but(context=6000.0)
DISOBEDIENT = OBEDIENT.but(hit=0.62)


def compared(before: State, after: State, **tags: str) -> Situation:
    """Two segments under the names the memory playbooks look for."""
    return [Stretch("dense", before), Stretch("compressed", after, tags)]


def changed(before: State, after: State, **tags: str) -> Situation:
    """Two segments named before and after."""
    return [Stretch("before", before), Stretch("after", after, tags)]


def tried(before: State, after: State, then: State) -> Situation:
    """Three segments: the comparison, and the experiment."""
    return [Stretch("dense", before), Stretch("compressed", after), Stretch("experiment", then)]


def once(state: State) -> Situation:
    """One segment."""
    return [Stretch("now", state)]


_NO_TIMES = ("time.gather", "sparse.index_time", "decompress.time")

THROUGHPUT: dict[str, Situation] = {
    "likely": compared(DENSE, COMPRESSED),
    "possible": compared(DENSE, COMPRESSED.but(drop=("time.host",))),
    "unexplained": compared(DENSE, BLOCK_KERNELS.but(tokens_per_s=400.0, shares={"host": 0.55, "linear": 0.2})),
    "needs_data": compared(DENSE.but(drop=_NO_TIMES), COMPRESSED.but(drop=_NO_TIMES)),
    "silent": compared(DENSE, BLOCK_KERNELS),
    "confirmed": tried(DENSE, COMPRESSED, BLOCK_KERNELS),
    "refuted": tried(DENSE, COMPRESSED, COMPRESSED.but(tokens_per_s=340.0)),
}
CONCURRENCY: dict[str, Situation] = {
    "likely": compared(RESERVED, STILL_RESERVED),
    "possible": compared(RESERVED, STILL_RESERVED.but(cap=5)),
    "unexplained": compared(RESERVED, STILL_RESERVED.but(assumed=9.0e7, token_assumed=2150.0)),
    "needs_data": compared(RESERVED, STILL_RESERVED, workload="chat"),
    "silent": compared(RESERVED, HANDED_OUT),
    "confirmed": tried(RESERVED, STILL_RESERVED, HANDED_OUT),
    "refuted": tried(RESERVED, STILL_RESERVED, STILL_RESERVED),
}
CAP: dict[str, Situation] = {
    "likely": once(CAPPED),
    "needs_data": once(CAPPED.but(drop=("sched.running",))),
    "silent": once(CAPPED.but(waiting=0)),
    "confirmed": [Stretch("now", CAPPED), Stretch("experiment", UNCAPPED, {"cap": "8"})],
    "refuted": [Stretch("now", CAPPED), Stretch("experiment", UNCAPPED.but(tokens_per_s=400.0), {"cap": "8"})],
}
TTFT: dict[str, Situation] = {
    "likely": compared(QUIET_DENSE, COLD_PREFIX),
    "possible": compared(QUIET_DENSE, COLD_PREFIX.but(queue=0.2)),
    "unexplained": compared(QUIET_DENSE, COLD_PREFIX.but(prefill_decompress=0.02)),
    "needs_data": compared(QUIET_DENSE, COLD_PREFIX.but(drop=("prefill.decompress_time",))),
    "silent": compared(QUIET_DENSE, COLD_PREFIX.but(ttft=0.4)),
    "confirmed": tried(QUIET_DENSE, COLD_PREFIX, COLD_PREFIX.but(ttft=0.5, prefill_decompress=0.2)),
    "refuted": tried(QUIET_DENSE, COLD_PREFIX, COLD_PREFIX.but(prefill_decompress=0.2)),
}
TIERS: dict[str, Situation] = {
    "likely": changed(TIERED, THRASHING),
    "possible": changed(TIERED, THRASHING.but(running=8)),
    "unexplained": changed(TIERED, THRASHING.but(shares=CALM)),
    "needs_data": changed(TIERED, THRASHING.but(drop=("tier.hot_accesses",))),
    "silent": changed(TIERED, TIERED),
    "confirmed": [*changed(TIERED, THRASHING), Stretch("experiment", TIERED)],
    "refuted": [*changed(TIERED, THRASHING), Stretch("experiment", THRASHING.but(switches_per_token=0.1))],
}
POLICY: dict[str, Situation] = {
    "likely": once(DISOBEDIENT),
    "possible": once(DISOBEDIENT.but(context=400.0)),
    "unexplained": once(DISOBEDIENT.but(hit=0.42)),
    "needs_data": once(DISOBEDIENT.but(drop=("sparse.entries_read",))),
    "silent": once(OBEDIENT),
    "confirmed": [Stretch("now", DISOBEDIENT), Stretch("experiment", OBEDIENT)],
    "refuted": [Stretch("now", DISOBEDIENT), Stretch("experiment", DISOBEDIENT)],
}
FIRING: dict[str, dict[str, Situation]] = {
    "memory-down-throughput-flat": THROUGHPUT,
    "memory-down-concurrency-flat": CONCURRENCY,
    "admission-capped": CAP,
    "ttft-up-decompress": TTFT,
    "tpot-up-tier-switching": TIERS,
    "sparse-policy-not-active": POLICY,
}
BUSY = DENSE.but(running=12, waiting=0, cap=32, resident=3.0e8, assumed=3.2e8)
QUIET: dict[str, Situation] = {
    "dense-unchanged": changed(QUIET_DENSE, QUIET_DENSE),
    "dense-low-load": changed(*[QUIET_DENSE.but(running=1, tokens_per_s=60.0, steps_per_s=60.0)] * 2),
    "dense-high-load": changed(BUSY, BUSY),
    "tiered-unchanged": changed(TIERED, TIERED),
    "compression-that-pays": compared(QUIET_DENSE, BLOCK_KERNELS.but(waiting=0, running=6)),
    "one-segment": once(QUIET_DENSE),
}


def write(recordings: Path, quiet: Path) -> list[Path]:
    """Write every recording, those of no fault into ``quiet``, and return their paths."""
    firing = {
        recordings / f"{rule}.{verdict}.jsonl": (situation, seed)
        for rule, verdicts in FIRING.items()
        for seed, (verdict, situation) in enumerate(verdicts.items())
    }
    calm = {
        quiet / f"synthetic-{name}.jsonl": (situation, 100 + seed)
        for seed, (name, situation) in enumerate(QUIET.items())
    }
    source = {"kind": "ring", "engine": TAGS["engine"], "version": TAGS["version"], "target": "synthetic"}
    for path, (situation, seed) in (firing | calm).items():
        rows = WINDOWS if path.stem.endswith(AFTERWARDS) else 14
        write_fixture(path, stream(situation, rows=rows, every_s=2.0, seed=seed), source=source, synthetic=True)
    return [*firing, *calm]
