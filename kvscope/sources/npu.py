"""Ascend NPUs of this machine, through the text of ``npu-smi``. Untested on hardware: read in its documentation only.

``npu-smi info -l`` lists cards, ``-t usages -i N`` and ``-t power -i N`` tell of one, as ``Name : value`` lines.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence

from kvscope.sources.source import Description, Poll
from probes.sample import Sample

UNTESTED = "NPU readings come from npu-smi text and were never tried on hardware: check them once"
_TIMEOUT_S = 2.0
_LINE = re.compile(r"^\s*([A-Za-z][A-Za-z0-9 ]*?)\s*(?:\(([^)]*)\))?\s*:\s*(-?[0-9]+(?:\.[0-9]+)?)\s*$")

Run = Callable[[Sequence[str]], str]


def available() -> bool:
    """Whether this machine has the program at all."""
    return shutil.which("npu-smi") is not None


def run_npu_smi(arguments: Sequence[str]) -> str:
    """Return what ``npu-smi`` prints; empty when it fails."""
    try:
        done = subprocess.run(["npu-smi", *arguments], capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return ""
    return done.stdout if done.returncode == 0 else ""


def fields(text: str) -> Iterator[tuple[str, str, float]]:
    """Yield (name, unit, value) of every line that holds a number; of several chips, each in turn."""
    for line in text.splitlines():
        matched = _LINE.match(line)
        if matched:
            yield matched[1].strip().lower(), matched[2] or "", float(matched[3])


class NpuSource:
    """Utilisation, memory and power of every card, under the names that GPUs have."""

    def __init__(self, *, wall: Callable[[], float] = time.time, run: Run = run_npu_smi) -> None:
        self._wall, self._run = wall, run
        listed = [round(value) for name, _, value in fields(run(("info", "-l"))) if name == "npu id"]
        self._cards = list(dict.fromkeys(listed))
        self._notices = [UNTESTED] if self._cards else ["no NPU readings: npu-smi lists no card"]

    def describe(self) -> Description:
        return Description("npu", f"{len(self._cards)} NPUs", note="untested on hardware")

    def poll(self) -> Poll:
        t = self._wall()
        samples = [
            Sample(metric, value, t, (("gpu", str(card)),))
            for card in self._cards
            for metric, value in _readings(self._run, card)
        ]
        notices, self._notices = tuple(self._notices), []
        return Poll(samples, notices=notices)

    def close(self) -> None:
        """Nothing is held open."""


def _readings(run: Run, card: int) -> Iterator[tuple[str, float]]:
    """Yield what one card tells; chips of a card that has several are averaged, their memory is added."""
    usages: dict[str, list[float]] = {}
    for name, unit, value in fields(run(("info", "-t", "usages", "-i", str(card)))):
        usages.setdefault(f"{name} {unit}".strip(), []).append(value)
    for field, metric in (("aicore usage rate %", "gpu.util"), ("hbm bandwidth usage rate %", "gpu.mem_bw_util")):
        if found := usages.get(field):
            yield metric, sum(found) / len(found) / 100
    sizes, rates = usages.get("hbm capacity MB", []), usages.get("hbm usage rate %", [])
    if sizes and len(sizes) == len(rates):
        # MB is what the program prints; its documentation means 2^20 bytes by it.
        yield "gpu.mem_used", sum(size * rate / 100 for size, rate in zip(sizes, rates, strict=True)) * (1 << 20)
    power = [value for name, _, value in fields(run(("info", "-t", "power", "-i", str(card)))) if "power" in name]
    if power:
        yield "gpu.power", sum(power)
