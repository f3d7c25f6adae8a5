"""Token-time accounting of a trace: which kind of work every instant of every step belongs to."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kvscope.sources.trace import steps as steps_of
from kvscope.sources.trace import timeline
from kvscope.sources.trace.events import KERNEL, LAUNCH, OP, Trace
from kvscope.sources.trace.rules import HOST, UNKNOWN, Rules
from kvscope.sources.trace.steps import PREFILL, UNTOLD, Step, Steps
from kvscope.sources.trace.timeline import Meaning, Segment

FEWEST_STEPS = 3
PIECES = 12
"""A trace of fewer decode steps than an error needs is cut into pieces of equal time as well."""

_COPIES = ("copy_h2d", "copy_d2h", "copy_d2d")


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of one step: its end (µs), µs by kind of work, bytes copied (in, out), whether the step ends here."""

    end: float
    step: Step
    work: dict[str, float]
    bytes_in: int
    bytes_out: int
    whole: bool


@dataclass(frozen=True, slots=True)
class Gap:
    """µs in which the device had nothing to do, and the kinds of work around it."""

    us: float
    after: str
    before: str


@dataclass(frozen=True, slots=True)
class Account:
    """Pieces in time order, from ``start`` (µs) on; ``unknown`` are µs by name, ``hidden`` µs behind other work."""

    start: float
    pieces: tuple[Piece, ...]
    steps: Steps
    on_device: bool
    devices: int
    unknown: Counter[str]
    hidden: float
    gaps: tuple[Gap, ...] = ()


@dataclass(frozen=True, slots=True)
class _Line:
    """One time line: what ran when, where the steps end in it, what the CPU did meanwhile."""

    shown: list[Segment]
    hidden: float
    ends: list[float]
    start: float
    busy: list[Segment]
    devices: int = 0


def account(trace: Trace, rules: Rules) -> Account | None:
    """Return where the time of a trace goes, or None when nothing in it can be timed."""
    steps = steps_of.find(trace, rules)
    lane = steps.lane if steps.lane >= 0 else _busiest_lane(trace)
    starts = [step.start for step in steps.found]
    threads = {lane, *(trace.lane[i] for i, kind in enumerate(trace.kind) if kind in (OP, LAUNCH))} - {-1}
    order = {thread: timeline.ordered(trace, thread) for thread in threads}
    said = {thread: timeline.meanings(trace, found, starts, rules) for thread, found in order.items()}
    kernels = [index for index, kind in enumerate(trace.kind) if kind == KERNEL]
    if kernels:
        line = _device_line(trace, rules, kernels, said, starts, _ran(trace, order.get(lane, []), said.get(lane, {})))
    elif lane >= 0:
        line = _cpu_line(trace, order, said, lane, starts)
    else:
        return None
    if not line.ends or line.ends[-1] <= line.start:
        return None
    found = steps.found or (Step(line.start, UNTOLD),)
    segments = timeline.filled(line.shown, line.start, line.ends[-1], rules.idle_gap_s * 1e6, line.busy)
    unknown: Counter[str] = Counter()
    for start, end, work, index in segments:
        if work == UNKNOWN:
            unknown[trace.names[trace.name[index]]] += int(end - start)
    pieces = _pieces(line, found, segments, _copied(trace, rules, kernels))
    gaps = tuple(_gaps(segments)) if kernels else ()
    return Account(line.start, tuple(pieces), steps, bool(kernels), line.devices, unknown, line.hidden, gaps)


def _gaps(segments: Sequence[Segment]) -> Iterable[Gap]:
    """Yield where nothing was on the device while an operator of the host ran, or only briefly nothing did."""
    after = "the start"
    for at, (start, end, work, index) in enumerate(segments):
        if index < 0 and work == HOST:
            before = next((one[2] for one in segments[at + 1 : at + 4] if one[3] >= 0), "the end")
            yield Gap(end - start, after, before)
        elif index >= 0:
            after = work


def _pieces(
    line: _Line, steps: Sequence[Step], segments: Sequence[Segment], copied: Sequence[tuple[float, int, int]]
) -> list[Piece]:
    cuts = {line.start, *line.ends}
    if sum(step.phase != PREFILL for step in steps) < FEWEST_STEPS:
        width = (line.ends[-1] - line.start) / PIECES
        cuts |= {line.start + width * i for i in range(1, PIECES)}
    edges = sorted(cut for cut in cuts if cut >= line.start)
    ends = set(line.ends)
    moved = [[0, 0] for _ in edges]
    for at, into, out in copied:
        piece = min(max(bisect_right(edges, at) - 1, 0), len(edges) - 1)
        moved[piece][0] += into
        moved[piece][1] += out
    pieces = []
    for i, work in enumerate(timeline.cut(segments, edges)):
        step = steps[min(bisect_right(line.ends, edges[i]), len(steps) - 1)]
        pieces.append(Piece(edges[i + 1], step, work, moved[i][0], moved[i][1], edges[i + 1] in ends))
    return pieces


def _device_line(
    trace: Trace,
    rules: Rules,
    kernels: Sequence[int],
    said: dict[int, dict[int, Meaning]],
    starts: Sequence[float],
    busy: list[Segment],
) -> _Line:
    """The busiest device's kernels and copies; a step lasts until the last kernel it launched has ended."""
    launches = {trace.link[i]: i for i, kind in enumerate(trace.kind) if kind == LAUNCH and trace.link[i] >= 0}
    devices: Counter[str] = Counter()
    for index in kernels:
        devices[trace.lanes[trace.lane[index]][0]] += int(trace.duration[index]) + 1
    device = devices.most_common(1)[0][0]
    work: list[Segment] = []
    ends = [float("-inf")] * (len(starts) + 1)
    for index in kernels:
        if trace.lanes[trace.lane[index]][0] != device:
            continue
        launch = launches.get(trace.link[index], -1)
        meaning = (
            said.get(trace.lane[launch], {}).get(launch, Meaning("", False)) if launch >= 0 else Meaning("", False)
        )
        start, end = trace.start[index], trace.start[index] + trace.duration[index]
        work.append((start, end, _kernel_work(trace, index, meaning, rules), index))
        step = bisect_right(starts, trace.start[launch] if launch >= 0 else start)
        ends[step] = max(ends[step], end)
    shown, hidden = timeline.exposed(work)
    # What was launched before the first step may still run when the step begins.
    begin = max(starts[0], ends[0]) if starts else shown[0][0]
    return _Line(shown, hidden, _rising(ends[1:] or ends, begin), begin, busy, len(devices))


def _cpu_line(
    trace: Trace,
    order: dict[int, list[int]],
    said: dict[int, dict[int, Meaning]],
    lane: int,
    starts: Sequence[float],
) -> _Line:
    """Self times of the operators of the thread that runs the model; other threads count while it does nothing."""
    process = trace.lanes[lane][1]
    front = _ran(trace, order[lane], said[lane])
    others: list[Segment] = []
    for thread, found in order.items():
        if thread != lane and trace.lanes[thread][1] == process:
            others += _ran(trace, found, said[thread])
    if not front:
        return _Line([], 0.0, [], 0.0, [])
    shown = timeline.behind(front, others)
    total = sum(end - start for start, end, _, _ in [*front, *others])
    hidden = total - sum(end - start for start, end, _, _ in shown)
    ends = [*starts[1:], max(front[-1][1], starts[-1] if starts else 0.0)]
    return _Line(shown, hidden, ends, starts[0] if starts else front[0][0], [])


def _ran(trace: Trace, order: Sequence[int], said: dict[int, Meaning]) -> list[Segment]:
    """Return when operators ran; time an annotation or a module spends itself is a gap between operators."""
    found = timeline.self_times(trace, order, lambda index: said[index].work or UNKNOWN)
    return [segment for segment in found if trace.kind[segment[3]] in (OP, LAUNCH)]


def _kernel_work(trace: Trace, index: int, meaning: Meaning, rules: Rules) -> str:
    """Say what device work is: by a name that leaves no doubt, else by what launched it, else by its name."""
    verdict = rules.kernel(trace.names[trace.name[index]])
    if verdict is not None and verdict.work in _COPIES:
        small = 0 <= trace.size[index] < rules.kv_copy_bytes
        if verdict.work == "copy_d2d":
            return meaning.work if meaning.sure else "elementwise" if small else verdict.work
        return HOST if small else verdict.work
    if verdict is not None and not verdict.weak:
        return verdict.work
    if meaning.work not in ("", HOST):
        return meaning.work
    return verdict.work if verdict is not None else UNKNOWN


def _copied(trace: Trace, rules: Rules, kernels: Iterable[int]) -> list[tuple[float, int, int]]:
    """Return (start, bytes to the device, bytes from it) of the copies large enough to carry KV."""
    found = []
    for index in kernels:
        verdict, size = rules.kernel(trace.names[trace.name[index]]), trace.size[index]
        if verdict is not None and verdict.work in _COPIES[:2] and size >= rules.kv_copy_bytes:
            into = verdict.work == "copy_h2d"
            found.append((trace.start[index], size if into else 0, 0 if into else size))
    return found


def _busiest_lane(trace: Trace) -> int:
    time: Counter[int] = Counter()
    for index, kind in enumerate(trace.kind):
        if kind == OP:
            time[trace.lane[index]] += int(trace.duration[index]) + 1
    return time.most_common(1)[0][0] if time else -1


def _rising(ends: Sequence[float], start: float) -> list[float]:
    found = []
    for end in ends:
        start = max(start, end)
        found.append(start)
    return found
