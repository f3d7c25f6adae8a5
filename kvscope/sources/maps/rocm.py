"""AMD's device metrics exporter: GPU readings beside an engine; read in its source at afd0fe81 (1.5.2).

Alone it says nothing about serving, so it is no target. A prefix may be configured: ``amd_`` is the documented one.
In partitioned modes the first partition reports for the whole GPU and the others report 0.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Literal

from kvscope.sources.mapping import Derived, Entry

ENGINE = "rocm"
ROLE = "machine"
EXPECTS = "names such as gpu_gfx_activity"
IDENTITY: dict[str, str] = {}
VERSION_PATH = ""
FLAGS = ()
PREFIXES = ("amd_",)

_GPU = (("gpu_id", "gpu"),)
_PROFILER = "profiler metrics: off while another profiler holds the counters"
_MI300 = "MI300 and later"
_HELD_BACK = (
    ("ppt", "power"),
    ("socket_thermal", "thermal"),
    ("vr_thermal", "thermal"),
    ("hbm_thermal", "thermal"),
    ("processor_hot", "thermal"),
)
"""AMD's name for what held the clocks down, and ours."""


def _gauge(name: str, metric: str, unit: str, scale: float = 1.0, condition: str = "", caveat: str = "") -> Entry:
    combine: Literal["mean", "sum"] = "mean" if unit == "percent" else "sum"
    return Entry(name, metric, "gauge", unit, scale, combine, rename=_GPU, condition=condition, caveat=caveat)


MAP = (
    _gauge("gpu_gfx_activity", "gpu.util", "percent", 0.01),
    _gauge("gpu_umc_activity", "gpu.mem_bw_util", "percent", 0.01, caveat="share of time, not of peak bytes"),
    _gauge("gpu_prof_sm_active", "gpu.sm_active", "percent", 0.01, _PROFILER, "vector instructions only"),
    _gauge("gpu_prof_tensor_active_percent", "gpu.tensor_active", "percent", 0.01, _PROFILER),
    _gauge("gpu_used_vram", "gpu.mem_used", "MB", float(1 << 20), caveat="MB of 2^20 bytes"),
    _gauge("gpu_power_usage", "gpu.power", "W"),
    _gauge("gpu_junction_temperature", "gpu.temperature", "C", condition=_MI300),
    Entry(
        "gpu_clock",
        "gpu.clock",
        "gauge",
        "MHz",
        combine="max",
        rename=_GPU,
        where=(("clock_type", "system"),),
        caveat="the fastest of the compute dies",
    ),
    Entry("gpu_energy_consumed", "gpu.energy", "counter", "uJ", 1e-6, rename=_GPU, caveat="declared a gauge"),
    Entry("gpu_ecc_uncorrect_total", "gpu.errors", "counter", "errors", rename=_GPU, caveat="declared a gauge"),
    *(
        Entry(
            f"gpu_violation_{theirs}_residency_percentage",
            "gpu.throttled",
            "gauge",
            "percent",
            0.01,
            rename=_GPU,
            labels=(("reason", ours),),
            condition=_MI300,
        )
        for theirs, ours in _HELD_BACK
    ),
)


def detect(names: Collection[str]) -> bool:
    return any(entry.name in names for entry in MAP)


def derive(
    infos: Mapping[str, Sequence[Mapping[str, str]]], values: Mapping[str, float], flags: Mapping[str, str]
) -> Derived:
    """Nothing is said in labels."""
    return Derived()
