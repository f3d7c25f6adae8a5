"""Ascend's npu-exporter: NPU readings beside an engine; read in the source of mind-cluster (npu-exporter v6, 7.x).

Alone it says nothing about serving, so it is no target. A value it cannot read is left out or below 0. vllm-ascend
writes vLLM's own page (it adds no family of its own, 182b75e), so the two together are an Ascend target.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Literal

from kvscope.sources.mapping import Derived, Entry

ENGINE = "npu"
ROLE = "machine"
EXPECTS = "names starting with npu_chip_info_"
IDENTITY: dict[str, str] = {}
VERSION_PATH = ""
FLAGS = ()

_NPU = (("id", "gpu"),)
_OVERALL = "npu_chip_info_overall_utilization"
_A2 = "Atlas A2 and later"
_MB = float(1 << 20)
_PER_MS = 1e3 * _MB


def _gauge(name: str, metric: str, unit: str, scale: float = 1.0, condition: str = "", unless: str = "") -> Entry:
    combine: Literal["mean", "sum"] = "mean" if unit == "percent" else "sum"
    return Entry(name, metric, "gauge", unit, scale, combine, rename=_NPU, condition=condition, unless=unless)


def _link(name: str, metric: str) -> Entry:
    return Entry(
        name,
        metric,
        "gauge",
        "MB/ms",
        _PER_MS,
        rename=_NPU,
        where=(("pcie_bw_type", "avgPcieBw"),),
        condition=_A2,
        caveat="measured over a short stretch at each reading",
    )


MAP = (
    _gauge(_OVERALL, "gpu.util", "percent", 0.01, _A2),
    _gauge("npu_chip_info_utilization", "gpu.util", "percent", 0.01, unless=_OVERALL),
    _gauge("npu_chip_info_cube_utilization", "gpu.tensor_active", "percent", 0.01, _A2),
    _gauge("npu_chip_info_hbm_bandwidth_utilization", "gpu.mem_bw_util", "percent", 0.01, "chips with HBM"),
    _gauge("npu_chip_info_hbm_used_memory", "gpu.mem_used", "MB", _MB, "chips with HBM"),
    _gauge("npu_chip_info_power", "gpu.power", "W"),
    _gauge("npu_chip_info_temperature", "gpu.temperature", "C"),
    Entry("npu_chip_info_aicore_current_freq", "gpu.clock", "gauge", "MHz", combine="max", rename=_NPU),
    *(_link(f"npu_chip_info_pcie_rx_{part}_bw", "gpu.pcie_rx") for part in ("p", "np", "cpl")),
    *(_link(f"npu_chip_info_pcie_tx_{part}_bw", "gpu.pcie_tx") for part in ("p", "np", "cpl")),
    Entry(
        "npu_chip_info_hbm_ecc_total_double_bit_error_cnt",
        "gpu.errors",
        "counter",
        "errors",
        rename=_NPU,
        condition="chips with HBM",
        caveat="declared a gauge",
    ),
)


def detect(names: Collection[str]) -> bool:
    return any(name.startswith("npu_chip_info_") for name in names)


def derive(
    infos: Mapping[str, Sequence[Mapping[str, str]]], values: Mapping[str, float], flags: Mapping[str, str]
) -> Derived:
    """Nothing is said in labels."""
    return Derived()
