"""The machine: cores, GPUs, and what of a step the host takes."""

from __future__ import annotations

from kvscope.screens import Chart, Screen
from kvscope.screens.reader import NOW_S, Fact, Reader
from kvscope.signals.reading import Missing
from kvscope.view import Table

_NO_GPUS = Missing(
    "no source reports a GPU", "run kvscope on its machine with nvidia-ml-py (kvscope[gpu]), or attach dcgm-exporter"
)
_COLUMNS = {
    "busy": ("gpu.util", "ratio"),
    "memory busy": ("gpu.mem_bw_util", "ratio"),
    "SMs": ("gpu.sm_active", "ratio"),
    "tensor": ("gpu.tensor_active", "ratio"),
    "memory": ("gpu.mem_used", "B"),
    "power": ("gpu.power", "W"),
}


def gpus(reader: Reader) -> Table:
    """One row a GPU: how busy, how full, what power; over the last seconds."""
    columns = (("GPU", ""), *((name, unit) for name, (_, unit) in _COLUMNS.items()))
    store, end = reader.store, reader.end_s
    found = sorted({labels for metric, _ in _COLUMNS.values() for labels in store.keys(metric)})
    if not found:
        return Table(columns, _NO_GPUS)
    rows = []
    for labels in found:
        values = [store.series(metric, labels, end - NOW_S, end)[1] for metric, _ in _COLUMNS.values()]
        rows.append((dict(labels).get("gpu", "?"), *(sum(one) / len(one) if one else None for one in values)))
    return Table(columns, tuple(rows))


SCREEN = Screen(
    title="Host",
    order=50,
    help="The machine: cores, GPUs, and what of a step the host takes.",
    facts=(
        Fact("all cores", "host_cpu_share"),
        Fact("engine cores", "process_cores"),
        Fact("GPU busy", "gpu_util_share"),
        Fact("GPU SMs", "gpu_sm_share"),
        Fact("tensor pipes", "gpu_tensor_share"),
        Fact("memory busy", "gpu_mem_bw_share"),
        Fact("memory/comp.", "gpu_memory_over_compute"),
        Fact("PCIe in", "pcie_rx_bytes_per_s"),
        Fact("host in step", "host_share", -1),
    ),
    charts=(
        Chart("Cores and host time", (("host_cpu",), ("host_share",))),
        Chart("GPU", (("gpu_util", "gpu_memory"),), spare=True),
    ),
    table=("GPU by GPU", gpus),
)
