"""Where samples come from; ``open_target`` turns what a user typed into a source."""

from __future__ import annotations

from pathlib import Path

from kvscope.sources._base import Source


def open_target(
    text: str, *, speed: float | None = None, timeout_s: float | None = None, machine: bool = False
) -> Source:
    """Open an address (``host:port``, ``http://…``), a process id, or a file (recorder, recording, scrapes, trace).

    ``speed`` plays files at that many times real time instead of all at once. ``machine`` adds processor and GPU
    readings when the engine runs on this machine. SourceError when there is nothing to read behind the target,
    UsageError when it is no target at all.
    """
    source = _open(text, speed, timeout_s)
    pid = getattr(source, "pid", None)
    if not machine or pid is None:
        return source
    from kvscope.sources import npu
    from kvscope.sources._merged import MergedSource
    from kvscope.sources.host import HostSource
    from kvscope.sources.nvml import NvmlSource

    beside: list[Source] = [HostSource(pid), NvmlSource()]
    if npu.available():
        beside.append(npu.NpuSource())
    return MergedSource(source, beside)


def _open(text: str, speed: float | None, timeout_s: float | None) -> Source:
    from kvscope.sources import _find, _scrape

    if text.isdecimal() and not Path(text).exists():
        return _ring(_find.ring_of_pid(int(text)))
    fleet = _fleet(text, timeout_s)
    if fleet is not None:
        return fleet
    if _scrape.is_url(text) and not Path(text).exists():
        return _scrape.ScrapeSource(text, timeout_s=timeout_s or _scrape.TIMEOUT_S)
    path = Path(text).expanduser()
    kind = _find.kind_of_file(path)
    if kind == "ring":
        return _ring(path)
    if kind == "recording":
        from kvscope.sources.recording import RecordingSource

        return RecordingSource(path, speed=speed)
    if kind == "trace":
        from kvscope.sources.trace import TraceSource

        return TraceSource(path)
    from kvscope.sources.series import SeriesSource

    return SeriesSource(path, speed=speed, single=kind == "page")


def _fleet(text: str, timeout_s: float | None) -> Source | None:
    """Return a source of several engines when the target names them: a Prometheus, or addresses with commas."""
    from kvscope.sources import _promapi, _scrape, fleet

    if _promapi.is_prometheus(text):
        from kvscope.sources import prometheus

        return prometheus.PrometheusSource(text, timeout_s=timeout_s or prometheus.TIMEOUT_S)
    if fleet.is_fleet(text) and not Path(text).exists():
        return fleet.FleetSource(fleet.addresses(text), timeout_s=timeout_s or _scrape.TIMEOUT_S)
    return None


def _ring(path: Path) -> Source:
    from kvscope.sources.ring import RingSource

    return RingSource(path)
