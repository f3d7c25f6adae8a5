"""The machine, its kernels and what the engine warned of: GPU, host, single calls, events of the log.

Decode keeps multiprocessors busy waiting for memory: busy ones are no sign of compute.
"""

from __future__ import annotations

from kvscope.signals.algebra import Chosen, Expr, gauge, increase, mean_of, setting
from kvscope.signals.evaluate import evaluate
from kvscope.signals.reading import Missing, Reading
from kvscope.signals.registry import DOWN, NEITHER, UP, declare
from kvscope.signals.samples import Samples
from probes.catalog import CATALOG

declare("gpu_sm_share", gauge("gpu.sm_active"), NEITHER, "Share of the multiprocessors that have work.")
declare("gpu_tensor_share", gauge("gpu.tensor_active"), UP, "Share of time the tensor pipes work.")
declare("gpu_util_share", gauge("gpu.util"), NEITHER, "Share of time some kernel ran; not how well.")
declare(
    "gpu_mem_bw_share", gauge("gpu.mem_bw_util"), NEITHER, "Share of time the device's memory interface was active."
)
declare(
    "gpu_memory_over_compute",
    gauge("gpu.mem_bw_util") / gauge("gpu.tensor_active"),
    NEITHER,
    "Share of time memory is read / share the tensor pipes work: above 1 the GPU is bound by memory, not compute.",
    unit="x",
)
declare("gpu_memory_used_bytes", gauge("gpu.mem_used"), NEITHER, "Device memory in use, all GPUs.", label="GPU memory")
declare("gpu_power_w", gauge("gpu.power"), NEITHER, "Power draw, all GPUs.", label="GPU power")
declare("pcie_rx_bytes_per_s", gauge("gpu.pcie_rx"), NEITHER, "Received by all GPUs over PCIe per second.")
declare("host_cpu_share", gauge("host.cpu_util"), NEITHER, "Busy share of all CPU cores.")
declare(
    "process_cores",
    gauge("host.process_cpu"),
    NEITHER,
    "CPU cores the engine's process keeps busy.",
    unit="cores",
)

CALLS = {
    "prefill_attention_s": ("kernel.prefill_attention", "One attention kernel call of prefill, mean."),
    "decode_attention_s": ("kernel.decode_attention", "One attention kernel call of decode, mean."),
    "kv_write_s": ("kernel.kv_write", "Writing new KV into the cache, a layer and step, mean."),
    "request_overhead_s": ("host.request_overhead", "Time of a request spent outside the device, mean."),
}
"""Signal → the observation it averages and its help."""

_called = {name: declare(name, mean_of(metric), DOWN, help) for name, (metric, help) in CALLS.items()}


def _write_over_attention(samples: Samples) -> Expr | Missing:
    calls = {name: evaluate(_called[name], samples) for name in ("prefill_attention_s", "decode_attention_s")}
    told = {name: one.value for name, one in calls.items() if isinstance(one, Reading) and one.value > 0}
    if not told:
        return next((one for one in calls.values() if isinstance(one, Missing)), Missing("attention took no time"))
    return _called["kv_write_s"] / _called[max(told, key=lambda name: told[name])]


declare(
    "kv_write_over_attention",
    Chosen(_write_over_attention, ("kernel.kv_write", "kernel.prefill_attention", "kernel.decode_attention"), "x"),
    DOWN,
    "Time of writing KV / time of the larger attention call beside it.",
)
declare(
    "kv_write_launches",
    setting("kernel.kv_write_launches"),
    DOWN,
    "Kernels launched to write KV, a layer and step.",
    unit="launches",
)
declare("compile_events", increase("compile.events"), DOWN, "Kernels and graphs compiled or captured in this segment.")
for _line in CATALOG.values():
    if _line.name.startswith("events."):
        declare(f"{_line.name.removeprefix('events.')}_events", increase(_line.name), DOWN, _line.help, unit="events")
