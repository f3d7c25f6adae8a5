"""``npu-smi`` text as its documentation shows it becomes readings under the names GPUs have. Not tried on hardware."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kvscope.sources.npu import UNTESTED, NpuSource

LIST = """\tTotal Count                    : 2

\tNPU ID                         : 0
\tChip Count                     : 1

\tNPU ID                         : 3
\tChip Count                     : 1
"""
USAGES = """\tNPU ID                         : 0
\tChip Count                     : 1

\tHBM Capacity(MB)               : 65536
\tHBM Usage Rate(%)              : 50
\tAicore Usage Rate(%)           : 80
\tHBM Bandwidth Usage Rate(%)    : 61
\tChip ID                        : 0
"""
POWER = "\tNPU ID                         : 0\n\n\tPower Dissipation(W)           : 310.5\n"


def npu_smi(arguments: Sequence[str]) -> str:
    if "-l" in arguments:
        return LIST
    return USAGES if "usages" in arguments else POWER


def test_every_card_is_read_under_the_names_of_gpus() -> None:
    source = NpuSource(wall=lambda: 5.0, run=npu_smi)
    poll = source.poll()
    found = {(sample.metric, dict(sample.labels)["gpu"]): sample.value for sample in poll.samples}
    assert found["gpu.util", "0"] == pytest.approx(0.8)
    assert found["gpu.mem_bw_util", "3"] == pytest.approx(0.61)
    assert found["gpu.mem_used", "0"] == 32768 * (1 << 20)
    assert found["gpu.power", "3"] == 310.5
    assert poll.notices == (UNTESTED,)
    assert source.poll().notices == ()


@pytest.mark.parametrize("text", ["", "garbage", "NPU ID : x\n", "HBM Capacity(MB) : 1\n"])
def test_other_text_gives_no_number(text: str) -> None:
    assert NpuSource(run=lambda _: text).poll().samples == []
