"""NVIDIA's DCGM exporter: GPU readings beside an engine. Alone it says nothing about serving, so it is no target."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from kvscope.sources.mapping import Derived, Entry

ENGINE = "dcgm"
ROLE = "machine"
EXPECTS = "names starting with DCGM_FI_"
IDENTITY = {"modelName": "device"}
VERSION_PATH = ""
FLAGS = ()

_GPU = ("gpu",)
_PROFILING = "profiling fields: not on every GPU, and not while a profiler holds the counters"
_ACTIVE = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
_DRAM = "DCGM_FI_PROF_DRAM_ACTIVE"
_OFF = "off in the default list of counters"
_HELD = (("POWER", "power"), ("THERMAL", "thermal"), ("BOARD_LIMIT", "board"), ("RELIABILITY", "reliability"))

MAP = (
    Entry(_ACTIVE, "gpu.util", "gauge", "ratio", combine="mean", keep=_GPU, condition=_PROFILING),
    Entry(
        "DCGM_FI_DEV_GPU_UTIL", "gpu.util", "gauge", "percent", scale=0.01, combine="mean", keep=_GPU, unless=_ACTIVE
    ),
    Entry(
        _DRAM,
        "gpu.mem_bw_util",
        "gauge",
        "ratio",
        combine="mean",
        keep=_GPU,
        condition=_PROFILING,
        caveat="share of cycles, not of peak bytes",
    ),
    Entry(
        "DCGM_FI_DEV_MEM_COPY_UTIL",
        "gpu.mem_bw_util",
        "gauge",
        "percent",
        scale=0.01,
        combine="mean",
        keep=_GPU,
        unless=_DRAM,
    ),
    Entry(
        "DCGM_FI_PROF_SM_ACTIVE",
        "gpu.sm_active",
        "gauge",
        "ratio",
        combine="mean",
        keep=_GPU,
        condition=_OFF,
    ),
    Entry(
        "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
        "gpu.tensor_active",
        "gauge",
        "ratio",
        combine="mean",
        keep=_GPU,
        condition=_PROFILING,
    ),
    Entry("DCGM_FI_DEV_FB_USED", "gpu.mem_used", "gauge", "MiB", scale=float(1 << 20), keep=_GPU),
    Entry("DCGM_FI_DEV_POWER_USAGE", "gpu.power", "gauge", "W", keep=_GPU),
    Entry("DCGM_FI_DEV_POWER_MGMT_LIMIT", "gpu.power_cap", "gauge", "W", keep=_GPU, condition=_OFF),
    Entry("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "gpu.energy", "counter", "mJ", scale=1e-3, keep=_GPU),
    Entry("DCGM_FI_DEV_GPU_TEMP", "gpu.temperature", "gauge", "C", keep=_GPU),
    Entry("DCGM_FI_DEV_SM_CLOCK", "gpu.clock", "gauge", "MHz", keep=_GPU),
    Entry("DCGM_FI_DEV_MAX_SM_CLOCK", "gpu.clock_max", "gauge", "MHz", keep=_GPU, condition=_OFF),
    Entry("DCGM_FI_DEV_MEM_CLOCK", "gpu.mem_clock", "gauge", "MHz", keep=_GPU),
    Entry("DCGM_FI_DEV_MAX_MEM_CLOCK", "gpu.mem_clock_max", "gauge", "MHz", keep=_GPU, condition=_OFF),
    Entry("DCGM_FI_DEV_XID_ERRORS", "gpu.xid", "gauge", "code", keep=_GPU),
    Entry("DCGM_FI_PROF_NVLINK_RX_BYTES", "gpu.link", "gauge", "B/s", keep=_GPU, condition=_PROFILING),
    Entry("DCGM_FI_PROF_NVLINK_TX_BYTES", "gpu.link", "gauge", "B/s", keep=_GPU, condition=_PROFILING),
    Entry("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "gpu.errors", "counter", "errors", keep=_GPU, condition=_OFF),
    *(
        Entry(
            f"DCGM_FI_DEV_{theirs}_VIOLATION",
            "gpu.throttle_time",
            "counter",
            "ns",
            scale=1e-9,
            keep=_GPU,
            labels=(("reason", ours),),
            condition=_OFF,
            caveat="microseconds before DCGM 3",
        )
        for theirs, ours in _HELD
    ),
    Entry("DCGM_FI_PROF_PCIE_RX_BYTES", "gpu.pcie_rx", "gauge", "B/s", keep=_GPU, condition=_PROFILING),
    Entry("DCGM_FI_PROF_PCIE_TX_BYTES", "gpu.pcie_tx", "gauge", "B/s", keep=_GPU, condition=_PROFILING),
)


def detect(names: Collection[str]) -> bool:
    return any(name.startswith("DCGM_FI_") for name in names)


def derive(
    infos: Mapping[str, Sequence[Mapping[str, str]]], values: Mapping[str, float], flags: Mapping[str, str]
) -> Derived:
    """Nothing is said in labels."""
    return Derived()
