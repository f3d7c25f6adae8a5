"""AMD GPUs of this machine, through amdsmi where it is installed. Untested on hardware.

Names and units as in amdsmi 7.0.2 and its ``amd-smi`` program: MB of 2^20 bytes, microwatts of a power cap, energy in
counts of ``counter_resolution`` microjoules. What a card does not tell is ``"N/A"``, an exception, or the largest
number of its type. Why clocks were held down comes from residencies that the firmware adds up. PCIe is told in both
directions together only, so it is left out.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeGuard

from kvscope.sources.nvml import Since
from kvscope.sources.source import Description, Poll
from probes.sample import Sample

UNTESTED = "readings of AMD GPUs come from amdsmi and were never tried on hardware: check them once"
_MIB, _KIB = float(1 << 20), 1024.0
_LARGEST = float(1 << 63)
_HELD_DOWN = {
    "power": ("ppt_residency_acc",),
    "thermal": (
        *("prochot_residency_acc", "socket_thm_residency_acc", "vr_thm_residency_acc", "hbm_thm_residency_acc"),
    ),
}
"""Reason → counters of the firmware's ticks in which it held the clocks down; the longest of a reason counts."""
_LINKS = ("xgmi_read_data_acc", "xgmi_write_data_acc")


def _clock(smi: Any, one: Any, kind: str, field: str) -> object:
    return smi.amdsmi_get_clock_info(one, smi.AmdSmiClkType[kind])[field]


def _energy(smi: Any, one: Any) -> float:
    told = smi.amdsmi_get_energy_count(one)
    return float(told["energy_accumulator"] * told["counter_resolution"])


def _power(smi: Any, one: Any) -> object:
    """What the card has of the three: MI300 tells the current draw, older cards an average."""
    told = smi.amdsmi_get_power_info(one)
    names = ("current_socket_power", "average_socket_power", "socket_power")
    return next((told[name] for name in names if _number(told.get(name))), None)


_READINGS: dict[str, tuple[float, Callable[[Any, Any], object]]] = {
    "gpu.util": (0.01, lambda smi, one: smi.amdsmi_get_gpu_activity(one)["gfx_activity"]),
    "gpu.mem_bw_util": (0.01, lambda smi, one: smi.amdsmi_get_gpu_activity(one)["umc_activity"]),
    "gpu.mem_used": (_MIB, lambda smi, one: smi.amdsmi_get_gpu_vram_usage(one)["vram_used"]),
    "gpu.power": (1.0, _power),
    "gpu.power_cap": (1e-6, lambda smi, one: smi.amdsmi_get_power_cap_info(one)["power_cap"]),
    "gpu.energy": (1e-6, _energy),
    "gpu.temperature": (
        1.0,
        lambda smi, one: smi.amdsmi_get_temp_metric(
            one, smi.AmdSmiTemperatureType.HOTSPOT, smi.AmdSmiTemperatureMetric.CURRENT
        ),
    ),
    "gpu.clock": (1.0, lambda smi, one: _clock(smi, one, "GFX", "clk")),
    "gpu.clock_max": (1.0, lambda smi, one: _clock(smi, one, "GFX", "max_clk")),
    "gpu.mem_clock": (1.0, lambda smi, one: _clock(smi, one, "MEM", "clk")),
    "gpu.mem_clock_max": (1.0, lambda smi, one: _clock(smi, one, "MEM", "max_clk")),
    "gpu.errors": (1.0, lambda smi, one: smi.amdsmi_get_gpu_total_ecc_count(one)["uncorrectable_count"]),
}
"""Metric → factor to the catalogue's unit, how amdsmi tells it."""


def available(root: Path = Path("/")) -> bool:
    """Whether this machine has a GPU that AMD's driver runs."""
    return (root / "dev" / "kfd").exists()


def load_library() -> Any:
    """Import amdsmi, which prints on standard output where its library is missing, and then fails in various ways."""
    with contextlib.redirect_stdout(io.StringIO()):
        return importlib.import_module("amdsmi")


class AmdSource:
    """Use, memory, power, clocks and faults of every GPU. Without amdsmi it gives one notice and no samples."""

    def __init__(self, *, wall: Callable[[], float] = time.time, load: Callable[[], Any] = load_library) -> None:
        self._wall, self._since = wall, Since()
        self._smi: Any = None
        self._handles: list[Any] = []
        try:
            smi = load()
            smi.amdsmi_init()
            self._smi, self._handles = smi, list(smi.amdsmi_get_processor_handles())
            self._notices = [UNTESTED]
        except ModuleNotFoundError:
            self._notices = ["no GPU readings: amdsmi is not installed (pip install 'kvscope[amd]', or ROCm's own)"]
        except Exception as error:  # amdsmi raises classes of its own, and KeyError where its library is missing.
            self._notices = [f"no GPU readings: amdsmi: {type(error).__name__}: {error}"]

    def describe(self) -> Description:
        return Description("amd", f"{len(self._handles)} GPUs", note="untested on hardware")

    def poll(self) -> Poll:
        t = self._wall()
        samples = [
            Sample(metric, value, t, (("gpu", str(index)), *labels))
            for index, handle in enumerate(self._handles)
            for metric, value, labels in (*self._readings(handle), *self._counted(handle, t, str(index)))
        ]
        notices, self._notices = tuple(self._notices), []
        return Poll(samples, notices=notices)

    def close(self) -> None:
        if self._smi is not None:
            self._smi.amdsmi_shut_down()
            self._smi, self._handles = None, []

    def _unless_refused(self) -> contextlib.suppress:
        """What a card does not tell is left out, and so is what an older amdsmi does not know."""
        return contextlib.suppress(self._smi.AmdSmiException, AttributeError, KeyError)

    def _readings(self, handle: Any) -> Iterator[tuple[str, float, tuple[tuple[str, str], ...]]]:
        for metric, (scale, read) in _READINGS.items():
            with self._unless_refused():
                value = read(self._smi, handle)
                if _number(value):
                    yield metric, float(value) * scale, ()

    def _counted(self, handle: Any, t: float, gpu: str) -> Iterator[tuple[str, float, tuple[tuple[str, str], ...]]]:
        """Shares and rates since the poll before, of what the firmware adds up."""
        told: Mapping[str, Any] = {}
        with self._unless_refused():
            told = self._smi.amdsmi_get_gpu_metrics_info(handle)
        ticks = told.get("accumulation_counter")
        if _number(ticks):
            for reason, names in _HELD_DOWN.items():
                counted = {name: told.get(name) for name in names}
                shares = [self._since(f"{gpu} {name}", ticks, one) for name, one in counted.items() if _number(one)]
                if known := [share for share in shares if share is not None]:
                    yield "gpu.throttled", min(max(known), 1.0), (("reason", reason),)
        moved = [float(one) for name in _LINKS for one in told.get(name) or () if _number(one)]
        rate = self._since(f"{gpu} links", t, sum(moved) * _KIB) if moved else None
        if rate is not None:
            yield "gpu.link", rate, ()


def _number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < _LARGEST
