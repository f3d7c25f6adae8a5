"""What a device's own tool printed, pasted from a terminal: tables of nvidia-smi, rocm-smi and npu-smi.

nvidia-smi 470 to 580, rocm-smi of ROCm 6 and 7 (``Concise Info``), npu-smi 23 to 25 (``npu-smi info``). Several prints
in one text follow one another; a time printed above one is its time.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator
from pathlib import Path

from kvscope.errors import SourceError
from kvscope.sources.saved import read_text
from kvscope.sources.source import Description, Poll
from probes import border
from probes.sample import Sample

_MIB = float(1 << 20)
_SPACING_S = 60.0
_HEADS = re.compile(r"\| NVIDIA-SMI |ROCm System Management Interface|\| npu-smi ")
_WHEN = re.compile(r"\b(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) ([A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4})")
_NVIDIA_NAME = re.compile(r"^\|\s+(?P<gpu>\d{1,3})\s+(?P<name>\S.*?)\s+(?:On|Off|N/A)?\s*\|\s+[0-9A-Fa-f]{8}:")
_NVIDIA_ROW = re.compile(
    r"^\|\s*\S+\s+(?P<temp>\d+)C\s+P\d+\s+(?P<power>\d+|N/A)W?\s*/\s*(?P<cap>\d+|N/A)W?\s*\|"
    r"\s*(?P<used>\d+)MiB\s*/\s*(?P<total>\d+)MiB\s*\|\s*(?P<util>\d+|N/A)%?"
)
_ROCM_ROW = re.compile(
    r"^(?P<gpu>\d{1,3})\s+\d+\s+0x\w+,\s*\d+\s+(?P<temp>[\d.]+)°C\s+(?P<power>[\d.]+)W\s.*?"
    r"(?P<clock>\d+)Mhz\s+\d+Mhz\s+\S+\s+\S+\s+(?P<cap>[\d.]+)W\s+(?P<memory>\d+)%\s+(?P<util>\d+)%"
)
_NPU_NAME = re.compile(
    r"^\|\s*(?P<gpu>\d{1,3})\s+(?P<name>\w+)\s*\|\s*\w+\s*\|\s*(?P<power>[\d.]+|-)\s+(?P<temp>\d+)\s"
)
_NPU_ROW = re.compile(
    r"^\|\s*\d+\s*(?:\d+)?\s*\|\s*[0-9A-Fa-f:.]+\s*\|\s*(?P<util>\d+)\s+.*?(?P<used>\d+)\s*/\s*(?P<total>\d+)\s*\|$"
)


def looks_printed(start: bytes) -> bool:
    """Whether a text starts as one of these tables does."""
    return _HEADS.search(start[:4096].decode("utf-8", errors="replace")) is not None


class PrintedSource:
    """Reads the prints of a file whole. SourceError when no row means anything."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._dated = True
        self._device = ""
        self._samples = sorted(self._read(read_text(path)), key=lambda one: one.t)
        if not self._samples:
            raise SourceError(
                f"{path}: the head of a device's table, but no row that is known of nvidia-smi or its like"
            )

    def describe(self) -> Description:
        tags = {"device": self._device} if self._device else {}
        return Description("table", str(self._path), "", tags=tags, dated=self._dated)

    def poll(self) -> Poll:
        samples, self._samples = self._samples, []
        said = () if self._dated else ("no print says when it was made: taken as a minute apart; the order is right",)
        return Poll(samples, notices=said, ended=True)

    def close(self) -> None:
        """Nothing is held open."""

    def _read(self, text: str) -> Iterator[Sample]:
        t = self._path.stat().st_mtime - 3600.0
        told: float | None = None
        gpu = "0"
        for line in text.splitlines():
            if (when := _WHEN.search(line)) is not None:
                told = _time(when[1])
            if _HEADS.search(line):
                self._dated = self._dated and told is not None
                t, told = told if told is not None else t + _SPACING_S, None
            named = _NVIDIA_NAME.match(line) or _NPU_NAME.match(line)
            if named is not None:
                gpu = named["gpu"]
                self._device = self._device or border.printable(named["name"].strip(), 80)
                yield from _of(named.groupdict(), gpu, t)
                continue
            row = _NVIDIA_ROW.match(line) or _ROCM_ROW.match(line) or _NPU_ROW.match(line)
            if row is not None:
                found = row.groupdict()
                gpu = found.get("gpu") or gpu
                yield from _of(found, gpu, t)


_MEANT = {
    "util": ("gpu.util", 0.01),
    "used": ("gpu.mem_used", _MIB),
    "power": ("gpu.power", 1.0),
    "cap": ("gpu.power_cap", 1.0),
    "temp": ("gpu.temperature", 1.0),
    "clock": ("gpu.clock", 1.0),
}


def _of(found: dict[str, str], gpu: str, t: float) -> Iterator[Sample]:
    for name, (metric, scale) in _MEANT.items():
        text = found.get(name) or ""
        if text.replace(".", "", 1).isdecimal() and len(text) < 16:
            yield Sample(metric, float(text) * scale, t, (("gpu", gpu),))
    total = found.get("total") or ""
    if total.isdecimal() and 0 < len(total) < 16:
        yield Sample("config.device_memory_bytes", float(total) * _MIB, t)


def _time(words: str) -> float | None:
    try:
        found = datetime.datetime.strptime(words, "%b %d %H:%M:%S %Y")
    except ValueError:
        return None
    return found.replace(tzinfo=datetime.UTC).timestamp()
