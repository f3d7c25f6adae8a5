"""The machine an engine runs on: processors, the quota of its control group, pressure, and the engine's process.

Counters come from the kernel as they are: ``cpu.stat`` of the process's group (version 1 or 2), ``/proc/pressure``,
``numastat`` of the memory nodes. What a machine does not tell is left out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

from kvscope.sources.source import Description, Poll
from probes.sample import Sample

CLOCK_EVERY_S = 10.0
"""Reading the clock of a hundred cores takes milliseconds."""
RESOURCES = ("cpu", "memory", "io")


class HostSource:
    """Processor and memory readings; use since the poll before, so the first poll has none of it."""

    def __init__(
        self, pid: int | None = None, *, wall: Callable[[], float] = time.time, root: Path = Path("/")
    ) -> None:
        self._wall = wall
        self._pid = pid
        self._root = root
        self._process: psutil.Process | None = None
        self._notices: list[str] = []
        self._primed = False
        self._clock_due = 0.0
        if pid is not None:
            try:
                self._process = psutil.Process(pid)
            except psutil.Error:
                self._notices.append(f"process {pid} is not there: no processor and memory readings of it")

    def describe(self) -> Description:
        return Description("host", "this machine" if self._pid is None else f"this machine, pid {self._pid}")

    def poll(self) -> Poll:
        t = self._wall()
        samples = []
        spent = psutil.cpu_times_percent(interval=None)
        busy = psutil.cpu_percent(interval=None) / 100
        if self._primed:
            samples.append(Sample("host.cpu_util", busy, t))
            samples.append(Sample("host.cores", float(psutil.cpu_count() or 1), t))
            if hasattr(spent, "steal"):
                samples.append(Sample("host.steal", spent.steal / 100, t))
        samples += self._clocks(t)
        samples += self._process_samples(t)
        group = group_of(self._pid, self._root) if self._pid is not None else None
        samples += [Sample(metric, value, t) for metric, value in quota(group).items()]
        samples += [
            Sample("host.pressure", value, t, (("resource", resource),)) for resource, value in self._pressure(group)
        ]
        samples += [Sample(metric, value, t) for metric, value in numa(self._root).items()]
        self._primed = True
        notices, self._notices = tuple(self._notices), []
        return Poll(samples, notices=notices)

    def close(self) -> None:
        """Nothing is held open."""

    def _clocks(self, t: float) -> list[Sample]:
        if t < self._clock_due:
            return []
        self._clock_due = t + CLOCK_EVERY_S
        clock = psutil.cpu_freq()
        found = [("host.cpu_clock", clock.current), ("host.cpu_clock_max", clock.max)] if clock else []
        return [Sample(metric, value, t) for metric, value in found if value]

    def _pressure(self, group: Path | None) -> Iterator[tuple[str, float]]:
        """Yield seconds in which some task waited, of the engine's group where it counts its own, else of the machine.

        The root group's figures are the machine's.
        """
        for resource in RESOURCES:
            places = [self._root / "proc" / "pressure" / resource]
            if group is not None:
                places.insert(0, group / f"{resource}.pressure")
            waited = next(filter(None, map(_waited, places)), None)
            if waited is not None:
                yield resource, waited

    def _process_samples(self, t: float) -> list[Sample]:
        if self._process is None:
            return []
        try:
            with self._process.oneshot():
                cores = self._process.cpu_percent(interval=None) / 100
                resident = float(self._process.memory_info().rss)
        except psutil.Error as error:
            self._notices.append(f"process {self._pid}: no more readings ({type(error).__name__})")
            self._process = None
            return []
        samples = [Sample("host.process_rss", resident, t)]
        if self._primed:
            samples.append(Sample("host.process_cpu", cores, t))
        return samples


def group_of(pid: int, root: Path = Path("/")) -> Path | None:
    """Return the folder of the control group that holds a process's quota: the tightest from its own group upwards.

    Without any quota, its own group that counts processor time. None where there is none.
    """
    found: list[Path] = []
    for line in _text(root / "proc" / str(pid) / "cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        names = controllers.split(",")
        if controllers and "cpu" not in names:
            continue
        mounts = (controllers, "cpu") if controllers else ("", "unified")
        for mount in mounts:
            base = root / "sys" / "fs" / "cgroup" / mount
            here = base / path.lstrip("/")
            while here.is_relative_to(base) and ".." not in here.parts:
                if (here / "cpu.stat").is_file():
                    found.append(here)
                if here == base:
                    break
                here = here.parent
    limits = [(limit, place) for place in found if (limit := _cores(place)) is not None]
    return min(limits)[1] if limits else next(iter(found), None)


def quota(group: Path | None) -> dict[str, float]:
    """Return the quota of a group and how often it was used up; nothing where no group counts."""
    if group is None:
        return {}
    said = dict(line.split()[:2] for line in _text(group / "cpu.stat").splitlines() if len(line.split()) == 2)
    numbers = {name: float(value) for name, value in said.items() if value.isdecimal()}
    if "nr_throttled" not in numbers:
        # Nobody set a quota here, so nobody was ever stopped by one.
        return {"host.quota_periods": 0.0, "host.quota_hits": 0.0, "host.quota_time": 0.0} if numbers else {}
    stopped = numbers.get("throttled_usec", 0.0) * 1e-6 + numbers.get("throttled_time", 0.0) * 1e-9
    found = {
        "host.quota_periods": numbers.get("nr_periods", 0.0),
        "host.quota_hits": numbers["nr_throttled"],
        "host.quota_time": stopped,
    }
    cores = _cores(group)
    return found if cores is None else {"host.quota": cores, **found}


def numa(root: Path = Path("/")) -> dict[str, float]:
    """Return pages taken from memory, and those from another node than the one that asked; nothing with one node."""
    counts: dict[str, float] = {}
    nodes = sorted((root / "sys" / "devices" / "system" / "node").glob("node[0-9]*"))
    for node in nodes if len(nodes) > 1 else ():
        for line in _text(node / "numastat").splitlines():
            name, _, value = line.partition(" ")
            counts[name] = counts.get(name, 0.0) + (float(value) if value.strip().isdecimal() else 0.0)
    if "other_node" not in counts:
        return {}
    remote = counts["other_node"]
    return {"host.numa_remote": remote, "host.numa_pages": remote + counts.get("local_node", 0.0)}


def _cores(group: Path) -> float | None:
    """Return the processor time a group may use, in cores; None where it may use all there is."""
    words = _text(group / "cpu.max").split() or [
        _text(group / "cpu.cfs_quota_us").strip(),
        _text(group / "cpu.cfs_period_us").strip(),
    ]
    if len(words) != 2 or not all(word.isdecimal() for word in words) or float(words[1]) <= 0:
        return None
    return float(words[0]) / float(words[1])


def _waited(path: Path) -> float | None:
    """Return the seconds of ``some … total=microseconds``."""
    for line in _text(path).splitlines():
        total = line.rpartition("total=")[2]
        if line.startswith("some") and total.isdecimal():
            return float(total) * 1e-6
    return None


def _text(path: Path) -> str:
    """Return a small file of the kernel's, or nothing where it may not be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
