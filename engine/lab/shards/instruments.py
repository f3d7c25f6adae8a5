"""Writes one row a step into this rank's own flight recorder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.lab.shards.cells import Cell
from probes.recorder import Recorder, step_columns
from probes.ring import RingWriter
from probes.version import __version__

OWN = (
    *("time.step", "time.decode", "sparse.index_time", "time.attend", "batch.steps", "batch.decode_steps"),
    *("kv.resident_bytes", "sparse.entries_read", "sparse.entries_total"),
    *("rank.kv_bytes", "rank.selected_blocks", "rank.entries_read", "rank.attend_time", "rank.exchange_time"),
    *("rank.wait_time", "rank.bytes_sent"),
)
COMMON = ("tokens.generated", "sched.running", "batch.context_tokens")
"""What the ranks do together, told by the first alone: told by each it would add up to too much."""


class RankRecorder:
    """`path` is the recorder's file. It survives the process, however that ends."""

    def __init__(self, rank: int, size: int, device: str, run: str) -> None:
        names = (*OWN, *COMMON) if rank == 0 else OWN
        columns = step_columns(names, (), 0)
        header: dict[str, Any] = {
            "engine": "kvscope-shards",
            "version": __version__,
            "model": "attention only",
            "device": device,
            "rank": {"index": rank, "of": size, "run": run},
        }
        self._common = rank == 0
        self.ring = RingWriter(header, columns, ("t",), step_bytes=4 << 20)
        self._recorder = Recorder(self.ring, columns, ("t",))

    def start(self, cell: Cell, kv_bytes: int) -> None:
        """Another batch or partition from here on: a segment of its own."""
        tags = {
            "policy": cell.partition,
            "workload": f"{cell.requests} x {cell.context_tokens} tokens, {cell.keys} keys, {cell.share:g} read",
        }
        self._recorder.event("load", tags=tags, mark=f"{cell.partition}-{cell.requests}x{cell.context_tokens}")
        for name in ("kv.resident_bytes", "rank.kv_bytes"):
            self._recorder.set(name, kv_bytes)
        if self._common:
            self._recorder.set("sched.running", cell.requests)
            self._recorder.set("batch.context_tokens", cell.context_tokens)

    def step(self, cell: Cell, step_s: float, spent: Mapping[str, float], blocks: int, sent_bytes: int) -> None:
        """`spent` seconds of index, attend, exchange and wait; `blocks` read over layers, requests and heads."""
        add, entries = self._recorder.add, blocks * cell.block_tokens / (cell.kv_heads * cell.layers)
        add("time.step", step_s)
        add("time.decode", step_s)
        add("batch.steps", 1)
        add("batch.decode_steps", 1)
        add("sparse.index_time", spent["index"])
        for name in ("time.attend", "rank.attend_time"):
            add(name, spent["attend"])
        add("rank.exchange_time", spent["exchange"])
        add("rank.wait_time", spent["wait"])
        add("rank.bytes_sent", sent_bytes)
        add("rank.selected_blocks", blocks)
        for name in ("sparse.entries_read", "rank.entries_read"):
            add(name, entries)
        if self._common:
            add("tokens.generated", cell.requests)
            add("sparse.entries_total", cell.requests * cell.context_tokens)
        self._recorder.commit()

    def lost(self, who: str) -> None:
        """The last word before this rank ends because another did."""
        self.ring.write_event({"kind": "rank_lost", "who": who})
        self.ring.close()
