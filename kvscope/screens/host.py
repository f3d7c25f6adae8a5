"""The machine: cores, GPUs, and what of a step the host takes."""

from __future__ import annotations

from kvscope.screens import Chart, Screen
from kvscope.screens.reader import Reader
from kvscope.signals.reading import Missing
from kvscope.view import Table

_NO_GPUS = Missing(
    "no source reports a GPU", "run kvscope on its machine with nvidia-ml-py (kvscope[gpu]), or attach dcgm-exporter"
)
_COLUMNS = {
    "busy": "gpu_util_share",
    "memory busy": "gpu_mem_bw_share",
    "SMs": "gpu_sm_share",
    "tensor": "gpu_tensor_share",
    "memory": "gpu_memory_used_bytes",
    "power": "gpu_power_w",
}


def gpus(reader: Reader) -> Table:
    """One row a GPU: how busy, how full, what power."""
    return reader.cells("gpu", "GPU", _COLUMNS, _NO_GPUS)


SCREEN = Screen(
    title="Host",
    order=50,
    needs=("host.cpu_util", "gpu.util", "gpu.mem_used", "time.host", "host.process_cpu"),
    help="The machine: cores, GPUs, and what of a step the host takes.",
    facts=(
        "host_cpu_share",
        "process_cores",
        "gpu_util_share",
        "gpu_sm_share",
        "gpu_tensor_share",
        "gpu_mem_bw_share",
        "gpu_memory_over_compute",
        "pcie_rx_bytes_per_s",
        "host_share",
    ),
    charts=(
        Chart("Cores and host time", (("host_cpu_share",), ("host_share",))),
        Chart("GPU", (("gpu_util_share", "gpu_mem_bw_share"),)),
    ),
    table=("GPU by GPU", gpus),
)
