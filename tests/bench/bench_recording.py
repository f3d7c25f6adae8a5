"""What a day's recording takes: cost of a tick and of a fold, bytes on disk, and the time to diagnose it.

``python -m tests.bench.bench_recording [HOURS]``. The series are those of a vLLM page (two engines' worth, 500 of them)
and the values are invented: counters that grow by a random load, gauges that wander. The file says ``synthetic``.
"""

from __future__ import annotations

import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from kvscope.recording import Recorder
from kvscope.sources._page import PageReader
from kvscope.sources.maps import vllm
from kvscope.sources.source import Description
from probes.catalog import metric_of
from probes.sample import Sample
from tests.bench.bench_sources import PAGE

SERIES, START = 500, 1_790_000_000.0


def series() -> list[Sample]:
    """The first sample of each series."""
    page = [
        sample for sample in PageReader(vllm).read(PAGE.read_text(), START).samples if sample.metric[:7] != "engine."
    ]
    copies = [sample._replace(labels=(*sample.labels, ("replica", str(n)))) for n in range(3) for sample in page]
    return copies[:SERIES]


def ticks(seconds: int) -> Iterator[list[Sample]]:
    """One poll a second; a minute in five is idle."""
    rng, now = random.Random(0), series()
    kinds = [(metric.kind if (metric := metric_of(sample.metric)) else "gauge") for sample in now]
    whole = [sample.value == int(sample.value) and not sample.metric.endswith(".sum") for sample in now]
    for second in range(seconds):
        busy = second % 300 >= 60
        for index, (kind, integer) in enumerate(zip(kinds, whole, strict=True)):
            step = rng.random()
            if kind == "gauge":
                value = float(int(step * 20)) if integer else step
            elif busy and (step > 0.5 or not integer):
                value = now[index].value + (int(step * 40) if integer else step)
            else:
                value = now[index].value
            now[index] = now[index]._replace(value=value, t=START + second)
        yield list(now)


def main(hours: float) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "day.db"
        recorder = Recorder(path, Description("vllm", "synthetic", "vllm"), synthetic=True)
        costs = []
        for samples in ticks(int(hours * 3600)):
            began = time.process_time()
            recorder.add(samples)
            costs.append(time.process_time() - began)
        recorder.close()
        print(
            f"{len(costs)} ticks of {SERIES} series: {median(costs) * 1e3:.2f} ms of CPU a tick (median), "
            f"{sum(costs) / len(costs) * 1e3:.2f} with folding, longest {max(costs) * 1e3:.0f} ms; "
            f"{path.stat().st_size / 1e6:.0f} MB"
        )
        began, before = time.monotonic(), _children_s()
        done = subprocess.run([sys.executable, "-m", "kvscope", "diagnose", path], capture_output=True, check=False)
        assert done.returncode in (0, 1), done.stderr
        took, cpu = time.monotonic() - began, _children_s() - before
        print(f"diagnosed in {took:.2f} s, {cpu:.2f} s of CPU, start of the process included")


def _children_s() -> float:
    """Seconds of CPU of the processes that were started from here and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 24.0)
