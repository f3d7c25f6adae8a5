"""The machine, its kernels and what the engine warned of: GPU, host, single calls, events of the log.

Decode keeps multiprocessors busy waiting for memory: busy ones are no sign of compute.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from kvscope.signals.algebra import (
    Chosen,
    Expr,
    FirstOf,
    gauge,
    increase,
    mean_of,
    rate,
    ratio,
    setting,
    share,
)
from kvscope.signals.evaluate import evaluate
from kvscope.signals.reading import Missing, Reading
from kvscope.signals.registry import DOWN, NEITHER, UP, declare, procedure
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
declare(
    "top_function_share",
    gauge("host.top_function_share"),
    DOWN,
    "Share of the host's processor time in its costliest function.",
)
declare("host_cpu_share", gauge("host.cpu_util"), NEITHER, "Busy share of all CPU cores.")
declare(
    "process_cores",
    gauge("host.process_cpu"),
    NEITHER,
    "CPU cores the engine's process keeps busy.",
    unit="cores",
)

_QUIET = "exact: no quota is set"
_QUOTA = ("host.quota_hits", "host.quota_periods")


@procedure(
    "host_throttled_share",
    unit="ratio",
    reads=_QUOTA,
    better=DOWN,
    help="Share of the periods in which the engine's control group used its processor quota up and was stopped.",
    drawn=share("host.quota_hits", of="host.quota_periods"),
)
def host_throttled_share(window: Samples) -> Reading | Missing:
    periods = window.increase_of("host.quota_periods")
    if isinstance(periods, Missing):
        return periods
    if not periods:
        return Reading(0.0, 0.0, "ratio", _QUIET)
    return evaluate(share("host.quota_hits", of="host.quota_periods"), window)


@procedure(
    "host_stopped_share",
    unit="ratio",
    reads=("host.quota_time", "host.quota", "host.cores"),
    better=DOWN,
    help="The most that the processor quota can have stopped of the engine's time.",
)
def host_stopped_share(window: Samples) -> Reading | Missing:
    stopped = per_second(window, "host.quota_time")
    quota, cores = window.setting("host.quota"), window.setting("host.cores")
    if isinstance(stopped, Missing):
        return stopped
    if isinstance(quota, Missing):
        return quota
    if isinstance(cores, Missing):
        return cores
    # Time is added up over the cores that were stopped: no fewer than the quota fills, and each ran its share of it.
    least = max(1.0, math.ceil(quota))
    share_of_time = min(stopped.value / least, 1 - min(1.0, quota / max(1.0, cores)))
    return Reading(share_of_time, 0.0, "ratio", "measured: time stopped, counted by the kernel")


declare("host_quota_cores", gauge("host.quota"), UP, "Processor time the engine's control group may use.", unit="cores")
declare("host_steal_share", gauge("host.steal"), DOWN, "Share of the cores' time that went to other virtual machines.")
declare(
    "numa_remote_share",
    share("host.numa_remote", of="host.numa_pages"),
    DOWN,
    "Share of memory pages taken from another node than the one that asked.",
)
declare(
    "cpu_clock_share",
    gauge("host.cpu_clock") / gauge("host.cpu_clock_max"),
    UP,
    "Clock of the cores / their highest.",
    unit="ratio",
)


def _waited(resource: str) -> Callable[[Samples], Reading | Missing]:
    def formula(window: Samples) -> Reading | Missing:
        return per_second(window, "host.pressure", resource=resource)

    return formula


def per_second(window: Samples, metric: str, **labels: str) -> Reading | Missing:
    """Return a counter's growth a second, of the series with these labels; exact."""
    flow = window.counter(metric, **labels)
    if isinstance(flow, Missing):
        return flow
    passed = min(flow.end_s, window.segment.end_s) - max(flow.start_s, window.segment.start_s)
    if passed <= 0:
        return Missing(f"{metric}: too short a stretch", "watch for longer")
    return Reading(window.whole(flow) / passed, 0.0, "ratio", "measured: counted by the kernel")


for _resource in ("memory", "cpu", "io"):
    procedure(
        f"{_resource}_pressure_share",
        unit="ratio",
        reads=("host.pressure",),
        better=DOWN,
        help=f"Share of the time in which some task waited for {'the processor' if _resource == 'cpu' else _resource}.",
    )(_waited(_resource))


@procedure(
    "host_starved_share",
    unit="ratio",
    reads=("host.steal", "host.pressure"),
    better=DOWN,
    help="The larger of the time other virtual machines took and the time in which some task waited for memory.",
)
def host_starved_share(window: Samples) -> Reading | Missing:
    both = [evaluate(gauge("host.steal"), window), per_second(window, "host.pressure", resource="memory")]
    told = [one for one in both if isinstance(one, Reading)]
    return max(told, key=lambda one: one.value) if told else both[0]


@procedure(
    "device_throttled_share",
    unit="ratio",
    reads=("gpu.throttled", "gpu.throttle_time"),
    better=DOWN,
    help="Share of the time in which power, heat or the hardware held a device's clocks down, of the worst device.",
)
def device_throttled_share(window: Samples) -> Reading | Missing:
    shares = [_held_down(window, dict(labels)) for labels in window.keys("gpu.throttled")]
    shares += [
        one.value
        for labels in window.keys("gpu.throttle_time")
        if isinstance(one := per_second(window, "gpu.throttle_time", **dict(labels)), Reading)
    ]
    if not shares:
        return window.absent("gpu.throttled")
    return Reading(min(1.0, max(shares)), 0.0, "ratio", "measured: the driver's reasons")


def _held_down(window: Samples, labels: dict[str, str]) -> float:
    """Return the mean of one device's and one reason's flag; a clock that a person set is not held down."""
    values = [value for _, part in window.slices("gpu.throttled", False, **labels).values() for value in part]
    return sum(values) / len(values) if values and labels.get("reason") != "setting" else 0.0


def _of_the_worst(metric: str, unit: str) -> Callable[[Samples], Reading | Missing]:
    def formula(window: Samples) -> Reading | Missing:
        means = [sum(values) / len(values) for _, values in window.slices(metric).values()]
        return Reading(max(means), 0.0, unit, "measured") if means else window.absent(metric)

    return formula


procedure(
    "device_temperature", unit="C", reads=("gpu.temperature",), better=DOWN, help="Temperature of the hottest device."
)(_of_the_worst("gpu.temperature", "C"))
procedure(
    "device_xid",
    unit="code",
    reads=("gpu.xid",),
    better=DOWN,
    help="The last error that the driver reported of a device (XID); 0: none.",
)(_of_the_worst("gpu.xid", "code"))
declare(
    "device_clock_share",
    gauge("gpu.clock") / gauge("gpu.clock_max"),
    UP,
    "Clock of the devices / their highest.",
    unit="ratio",
)
declare(
    "device_power_share",
    gauge("gpu.power") / gauge("gpu.power_cap"),
    NEITHER,
    "Power drawn / power allowed.",
    unit="ratio",
)
declare(
    "device_memory_errors", increase("gpu.errors"), DOWN, "Memory errors that could not be corrected.", unit="errors"
)
declare("link_bytes_per_s", gauge("gpu.link"), NEITHER, "Moved over links between GPUs per second.")
declare(
    "joules_per_mtoken",
    FirstOf(
        (
            ratio("gpu.energy", "tokens.generated", "J") * 1e6,
            gauge("gpu.power") / rate("tokens.generated") * 1e6,
        ),
        ("measured: the devices' own counters", "measured: power while the segment lasted"),
    ),
    DOWN,
    "Energy of all devices for a million generated tokens, idle time included.",
    unit="J",
    label="joules per million tokens",
)

declare(
    "money_per_mtoken",
    setting("config.price_per_hour") / 3600 / rate("tokens.generated") * 1e6,
    DOWN,
    "What a million generated tokens cost, idle time included, at the price of an hour that was told (--price).",
    unit="money",
    label="money per million tokens",
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
