"""The machine beside the engine."""

from __future__ import annotations

from kvscope.signals.reading import Missing, Reading
from kvscope.signals.registry import signal
from kvscope.signals.window import Window


@signal("host_cpu_share", unit="ratio", needs=("host.cpu_util",), help="Busy share of all CPU cores.")
def host_cpu_share(window: Window) -> Reading | Missing:
    return window.mean("host.cpu_util", "ratio")


@signal("process_cores", unit="cores", needs=("host.process_cpu",), help="CPU cores the engine's process keeps busy.")
def process_cores(window: Window) -> Reading | Missing:
    return window.mean("host.process_cpu", "cores")


@signal("gpu_util_share", unit="ratio", needs=("gpu.util",), help="Share of time some kernel ran; not how well.")
def gpu_util_share(window: Window) -> Reading | Missing:
    return window.mean("gpu.util", "ratio")


@signal(
    "gpu_mem_bw_share",
    unit="ratio",
    needs=("gpu.mem_bw_util",),
    help="Share of time the device's memory interface was active.",
)
def gpu_mem_bw_share(window: Window) -> Reading | Missing:
    return window.mean("gpu.mem_bw_util", "ratio")
