"""NVIDIA GPUs of this machine, through NVML where it is installed."""

from __future__ import annotations

import importlib
import time
import warnings
from collections.abc import Callable
from typing import Any

from kvscope.sources.source import Description, Poll
from probes.sample import Sample


def load_library() -> Any:
    """Import NVML's binding; ModuleNotFoundError where it is not installed."""
    with warnings.catch_warnings():
        # The old package of that name says at import that it is deprecated; nothing a user of ours can act on.
        warnings.simplefilter("ignore")
        return importlib.import_module("pynvml")


class NvmlSource:
    """Utilisation, memory and power of every GPU. Without NVML it gives one notice and no samples."""

    def __init__(self, *, wall: Callable[[], float] = time.time, load: Callable[[], Any] = load_library) -> None:
        self._wall = wall
        self._notices: list[str] = []
        self._nvml: Any = None
        self._handles: list[Any] = []
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
        for metric, read in (
            ("gpu.util", lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100),
            ("gpu.mem_bw_util", lambda: nvml.nvmlDeviceGetUtilizationRates(handle).memory / 100),
            ("gpu.mem_used", lambda: float(nvml.nvmlDeviceGetMemoryInfo(handle).used)),
            ("gpu.power", lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000),
        ):
            try:
                found.append(Sample(metric, read(), t, labels))
            except nvml.NVMLError:
                continue
        return found
