"""A process that looks like an engine with many layers: it writes step rows and finished requests, and nothing else."""

from __future__ import annotations

import subprocess
import sys
from contextlib import AbstractContextManager
from pathlib import Path

PROGRAM = """
import math, sys, time
from pathlib import Path
from probes.ring import RingWriter

layers, directory, past_s = int(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3])
counters = {"time.step": 1.0, "time.prefill": 0.1, "time.decode": 0.9, "tokens.generated": 400.0, "batch.steps": 40.0,
    "time.host": 0.05, "time.linear": 0.2, "time.attend": 0.4, "sparse.index_time": 0.1, "time.gather": 0.1,
    "decompress.time": 0.02, "tier.transfer_time": 0.01, "time.sample": 0.01, "sparse.entries_read": 3e5,
    "sparse.entries_total": 1e6, "tier.hot_accesses": 800.0, "tier.cold_accesses": 200.0}
gauges = {"sched.running": 8.0, "sched.waiting": 4.0, "sched.max_running": 8.0, "kv.resident_bytes": 2e8,
    "kv.reserved_bytes": 4e8, "kv.usage_ratio": 0.5, "sparse.kept_share_target": 0.25}
by_layer = ["kv.bytes_per_layer", "kv.hot_entries", "kv.cold_entries", "sparse.layer_entries_read",
    "sparse.layer_entries_total", "tier.layer_hot_accesses", "tier.layer_cold_accesses"]
columns = ["t", *counters, *gauges, *(f"{name}[{layer}]" for name in by_layer for layer in range(layers))]
requests = ["t", "request.tokens_in", "request.tokens_out", "latency.ttft", "latency.tpot", "latency.e2e"]
writer = RingWriter({"engine": "kvscope", "version": "1", "model": "made up", "device": "cpu"}, columns, requests,
    directory=directory)
print(writer.path, flush=True)
began = time.monotonic() - past_s
step = 0.05
at = 0
while True:
    at += 1
    now = began + at * step
    time.sleep(max(now - time.monotonic(), 0))
    wiggle = 1 + 0.05 * math.sin(at / 30)
    row = [now, *(rate * at * step for rate in counters.values()), *(value * wiggle for value in gauges.values())]
    for index, name in enumerate(by_layer):
        one = at * 1e3 if "access" in name or "layer_entries" in name else 3e6 * wiggle
        row += [one * (1 + 0.2 * math.sin(layer + index)) for layer in range(layers)]
    writer.write_step(row)
    if at % 4 == 0:
        writer.write_request([now, 2048.0, 64.0, 0.8 * wiggle, 0.02 * wiggle, 2.1])
"""


class Target(AbstractContextManager["Target"]):
    """Runs while the context lasts; ``ring`` is its flight recorder, which begins ``past_s`` seconds ago."""

    def __init__(self, layers: int, directory: Path, past_s: float = 0.0) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(layers), str(directory), str(past_s)],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.ring = Path(self.process.stdout.readline().strip())

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()
