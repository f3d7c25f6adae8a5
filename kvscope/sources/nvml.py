"""NVIDIA GPUs of this machine, through NVML where it is installed."""

from __future__ import annotations

import contextlib
import importlib
import time
import warnings
from collections.abc import Callable
from typing import Any

from kvscope.sources.source import Description, Poll
from probes.sample import Sample

_READINGS: dict[str, Callable[[Any, Any], float]] = {
    "gpu.util": lambda nvml, one: nvml.nvmlDeviceGetUtilizationRates(one).gpu / 100,
    "gpu.mem_bw_util": lambda nvml, one: nvml.nvmlDeviceGetUtilizationRates(one).memory / 100,
    "gpu.mem_used": lambda nvml, one: nvml.nvmlDeviceGetMemoryInfo(one).used,
    "gpu.power": lambda nvml, one: nvml.nvmlDeviceGetPowerUsage(one) / 1000,
    "gpu.power_cap": lambda nvml, one: nvml.nvmlDeviceGetEnforcedPowerLimit(one) / 1000,
    "gpu.energy": lambda nvml, one: nvml.nvmlDeviceGetTotalEnergyConsumption(one) / 1000,
    "gpu.temperature": lambda nvml, one: nvml.nvmlDeviceGetTemperature(one, nvml.NVML_TEMPERATURE_GPU),
    "gpu.clock": lambda nvml, one: nvml.nvmlDeviceGetClockInfo(one, nvml.NVML_CLOCK_SM),
    "gpu.clock_max": lambda nvml, one: nvml.nvmlDeviceGetMaxClockInfo(one, nvml.NVML_CLOCK_SM),
    "gpu.mem_clock": lambda nvml, one: nvml.nvmlDeviceGetClockInfo(one, nvml.NVML_CLOCK_MEM),
    "gpu.mem_clock_max": lambda nvml, one: nvml.nvmlDeviceGetMaxClockInfo(one, nvml.NVML_CLOCK_MEM),
    "gpu.errors": lambda nvml, one: nvml.nvmlDeviceGetTotalEccErrors(
        one, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
    ),
}
"""Metric → how NVML tells it, in the catalogue's unit."""
HELD_DOWN = {"power": 0x4 | 0x80, "thermal": 0x20 | 0x40, "setting": 0x2, "hardware": 0x8}
"""Why clocks are held down → bits of NVML's reasons (nvmlClocksEventReasons); an idle GPU's low clock is none."""
_KIB = 1024.0
_LINKS = {
    "NVML_FI_DEV_PCIE_COUNT_RX_BYTES": ("gpu.pcie_rx", 1.0),
    "NVML_FI_DEV_PCIE_COUNT_TX_BYTES": ("gpu.pcie_tx", 1.0),
    "NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX": ("gpu.link", _KIB),
    "NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX": ("gpu.link", _KIB),
}
"""Counters of bytes moved, by the name of NVML's field → metric, bytes a count."""


def load_library() -> Any:
    """Import NVML's binding; ModuleNotFoundError where it is not installed."""
    with warnings.catch_warnings():
        # The old package of that name says at import that it is deprecated; nothing a user of ours can act on.
        warnings.simplefilter("ignore")
        return importlib.import_module("pynvml")


class Since:
    """How fast counters grew since they were last told; None at first, and after one was set back."""

    def __init__(self) -> None:
        self._before: dict[str, tuple[float, float]] = {}

    def __call__(self, key: str, at: float, total: float) -> float | None:
        """``total`` of the counter ``key`` when ``at`` (a time, or ticks) was reached."""
        before, self._before[key] = self._before.get(key), (at, total)
        if before is None or at <= before[0] or total < before[1]:
            return None
        return (total - before[1]) / (at - before[0])


class NvmlSource:
    """Use, memory, power, clocks and faults of every GPU. Without NVML it gives one notice and no samples."""

    def __init__(self, *, wall: Callable[[], float] = time.time, load: Callable[[], Any] = load_library) -> None:
        self._wall = wall
        self._notices: list[str] = []
        self._nvml: Any = None
        self._handles: list[Any] = []
        self._since = Since()
        try:
            nvml = load()
            nvml.nvmlInit()
            self._handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
            self._nvml = nvml
        except ModuleNotFoundError:
            self._notices.append("no GPU readings: NVML is not installed (pip install 'kvscope[gpu]')")
        except Exception as error:  # NVML raises classes of its own, made when it is loaded.
            self._notices.append(f"no GPU readings: {error}")

    def describe(self) -> Description:
        return Description("nvml", f"{len(self._handles)} GPUs")

    def poll(self) -> Poll:
        t = self._wall()
        samples: list[Sample] = []
        for index, handle in enumerate(self._handles):
            samples += self._read(handle, t, str(index))
        notices, self._notices = tuple(self._notices), []
        return Poll(samples, notices=notices)

    def close(self) -> None:
        if self._nvml is not None:
            self._nvml.nvmlShutdown()
            self._nvml, self._handles = None, []

    def _read(self, handle: Any, t: float, gpu: str) -> list[Sample]:
        """Return what this GPU tells; what it does not support (power of a MIG slice, say) is left out."""
        nvml, labels = self._nvml, (("gpu", gpu),)
        found = []
        for metric, read in _READINGS.items():
            with self._unless_refused():
                found.append(Sample(metric, float(read(nvml, handle)), t, labels))
        with self._unless_refused():
            held = nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
            for reason, bits in HELD_DOWN.items():
                found.append(Sample("gpu.throttled", float(bool(held & bits)), t, (*labels, ("reason", reason))))
        with self._unless_refused():
            found += self._rates(handle, t, gpu)
        return found

    def _unless_refused(self) -> contextlib.suppress:
        """What a card or a driver does not tell is left out, and so is what an older binding does not know."""
        return contextlib.suppress(self._nvml.NVMLError, AttributeError)

    def _rates(self, handle: Any, t: float, gpu: str) -> list[Sample]:
        """Bytes a second over links and PCIe since the poll before, from counters: a rate takes NVML 20 ms."""
        known = {name: told for name, told in _LINKS.items() if hasattr(self._nvml, name)}
        if not known:
            return []
        values = self._nvml.nvmlDeviceGetFieldValues(handle, [getattr(self._nvml, name) for name in known])
        moved: dict[str, float] = {}
        for (metric, scale), value in zip(known.values(), values, strict=True):
            if value.nvmlReturn == 0:
                moved[metric] = moved.get(metric, 0.0) + value.value.ullVal * scale
        found = []
        for metric, total in moved.items():
            rate = self._since(f"{gpu} {metric}", t, total)
            if rate is not None:
                found.append(Sample(metric, rate, t, (("gpu", gpu),)))
        return found
