"""What the GPU is busy with. Decode keeps multiprocessors busy waiting for memory: busy ones are no sign of compute."""

from __future__ import annotations

from kvscope.signals.reading import Missing, Reading
from kvscope.signals.registry import signal
from kvscope.signals.window import Window


@signal("gpu_sm_share", unit="ratio", needs=("gpu.sm_active",), help="Share of the multiprocessors that have work.")
def gpu_sm_share(window: Window) -> Reading | Missing:
    return window.mean("gpu.sm_active", "ratio")


@signal("gpu_tensor_share", unit="ratio", needs=("gpu.tensor_active",), help="Share of time the tensor pipes work.")
def gpu_tensor_share(window: Window) -> Reading | Missing:
    return window.mean("gpu.tensor_active", "ratio")


@signal(
    "gpu_memory_over_compute",
    unit="x",
    needs=("gpu.mem_bw_util", "gpu.tensor_active"),
    help="Share of time memory is read / share the tensor pipes work: above 1 the GPU is bound by memory, not compute.",
)
def gpu_memory_over_compute(window: Window) -> Reading | Missing:
    memory, compute = window.mean("gpu.mem_bw_util", "ratio"), window.mean("gpu.tensor_active", "ratio")
    if isinstance(memory, Missing):
        return memory
    if isinstance(compute, Missing):
        return compute
    if compute.value <= 0:
        return Missing("the tensor pipes never worked in this segment", "send the engine some work")
    value = memory.value / compute.value
    error = (memory.error**2 + (value * compute.error) ** 2) ** 0.5 / compute.value
    return Reading(value, error, "x", memory.source, memory.batches, memory.samples)


@signal("pcie_rx_bytes_per_s", unit="B/s", needs=("gpu.pcie_rx",), help="Received by all GPUs over PCIe per second.")
def pcie_rx_bytes_per_s(window: Window) -> Reading | Missing:
    return window.mean("gpu.pcie_rx", "B/s")
