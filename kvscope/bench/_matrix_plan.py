"""What a diagnosis matrix runs: faults by severity, healthy controls by load, and pairs of faults, each by seed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import combinations

from kvscope import faults
from kvscope.errors import UsageError, nearest
from kvscope.faults import Fault, Truth

QUIET = "none"
"""Slugs of controls, on which nothing should be said, begin so."""
KINDS = ("faults", "healthy", "pairs")
SCALED_FLAGS, SCALED_KNOBS = ("--pool-mib",), ("load.document_tokens", "host_mib")
QUICK = ("generic_kernel", "nothing_wrong")
_NORMAL = "nothing_wrong"
"""The fault whose settings count as undisturbed when two others are laid over each other."""


@dataclass(frozen=True, slots=True)
class Case:
    """One engine to start: what is expected of it, and under which seeds of its load it is measured.

    ``expected`` are slugs, none of them for a control. ``sound`` are the knobs without the fault, where there are any,
    ``faulty`` are those that bring it about. ``truths`` are what the engine's counters must then say.
    """

    kind: str
    names: tuple[str, ...]
    severity: str
    expected: tuple[str, ...]
    options: tuple[str, ...]
    sound: Mapping[str, str]
    faulty: Mapping[str, str]
    truths: tuple[Truth, ...]
    from_start: bool

    @property
    def label(self) -> str:
        """Names and severity."""
        return f"{'+'.join(self.names)}/{self.severity}"


def cases(kinds: Iterable[str], only: Iterable[str] = (), severities: Iterable[str] = ()) -> tuple[Case, ...]:
    """Return every case of these kinds, of these faults (all by default), at these severities (all by default)."""
    wanted, levels = tuple(only) or faults.names(), tuple(severities) or faults.SEVERITIES
    for name in wanted:
        faults.get(name)
    for level in levels:
        if level not in faults.SEVERITIES:
            raise UsageError(f"--severity {level!r}{nearest(level, faults.SEVERITIES)}")
    single = [case for name in wanted for case in _single(name, levels)]
    found = [case for case in single if case.kind in kinds]
    return (*found, *(_pairs(wanted) if "pairs" in kinds else ()))


def scaled(case: Case, times: int, device: str) -> Case:
    """The case on a device, documents and pool so many times as large: what keeps a CPU busy is little for a GPU."""
    words = [str(int(value) * times) if name in SCALED_FLAGS else value for name, value in _with_names(case.options)]
    knobs = [
        {name: str(int(value) * times) if name in SCALED_KNOBS else value for name, value in one.items()}
        for one in (case.sound, case.faulty)
    ]
    return replace(case, options=(*words, "--device", device), sound=knobs[0], faulty=knobs[1])


def _with_names(words: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Each word with the flag before it."""
    return zip(("", *words), words, strict=False)


def part(all_cases: tuple[Case, ...], text: str) -> tuple[Case, ...]:
    """Return part ``i/n``, counted from 1: every n-th case."""
    index, slash, count = text.partition("/")
    if not slash or not index.isdecimal() or not count.isdecimal() or not 1 <= int(index) <= int(count):
        raise UsageError(f"--part {text!r}: expected I/N such as 1/4")
    return all_cases[int(index) - 1 :: int(count)]


def seeds(text: str) -> range:
    """Return the seeds that ``N`` (0 to N-1) or ``FIRST-LAST`` (both included) stands for."""
    first, dash, last = text.partition("-")
    low, high = (first, last) if dash else ("0", str(int(first) - 1) if first.isdecimal() else "")
    if not low.isdecimal() or not high.isdecimal() or int(low) > int(high):
        raise UsageError(f"--seeds {text!r}: expected N, at least 1, or FIRST-LAST such as 20-22")
    return range(int(low), int(high) + 1)


def _single(name: str, levels: tuple[str, ...]) -> Iterator[Case]:
    for level in faults.get(name).severities:
        if level in levels:
            fault = faults.get(name, level)
            quiet = fault.slug.startswith(QUIET)
            yield _case("healthy" if quiet else "faults", (fault,), level, () if quiet else (fault.slug,))


def _pairs(names: Iterable[str]) -> Iterator[Case]:
    """Pairs of causes whose settings do not touch: laid over each other, both can be there.

    What needs the undisturbed engine's policy is not there under another one, though it never sets it.
    """
    real = [fault for name in names if not (fault := faults.get(name)).slug.startswith(QUIET) and not fault.from_start]
    for one, other in combinations(real, 2):
        mine, theirs = _deviation(one), _deviation(other)
        if one.knobs.get("policy") != other.knobs.get("policy"):
            continue
        if one.slug != other.slug and not set(mine) & set(theirs) and not _loads(mine, theirs):
            yield _case("pairs", (one, other), "clear", (one.slug, other.slug))


def _case(kind: str, parts: tuple[Fault, ...], level: str, expected: tuple[str, ...]) -> Case:
    normal = faults.get(_NORMAL)
    knobs, flags = dict(normal.knobs), dict(normal.flags)
    if len(parts) == 1:
        knobs, flags = dict(parts[0].knobs), dict(parts[0].flags)
    else:
        for fault in parts:
            for name, value in _deviation(fault).items():
                (flags if name in faults.FLAGS else knobs)[name] = value
    fixes = {name: value for fault in parts for name, value in fault.fix.items()}
    fixed = all(fault.fix for fault in parts)
    return Case(
        kind,
        tuple(fault.name for fault in parts),
        level,
        expected,
        tuple(word for name, value in flags.items() for word in (f"--{name.replace('_', '-')}", value)),
        {**knobs, **fixes} if fixed else {},
        knobs,
        tuple(truth for fault in parts for truth in fault.truth),
        parts[0].from_start,
    )


def _deviation(fault: Fault) -> dict[str, str]:
    """What a fault sets otherwise than the undisturbed engine; the number of clients alone is no deviation."""
    normal = faults.get(_NORMAL)
    usual = {**normal.knobs, **normal.flags, "load.clients": fault.knobs.get("load.clients", "")}
    return {name: value for name, value in {**fault.knobs, **fault.flags}.items() if usual.get(name) != value}


def _loads(*deviations: Mapping[str, str]) -> bool:
    """Whether more than one of them needs a load of its own: two loads cannot be laid over each other."""
    return sum(any(name.startswith("load.") for name in one) for one in deviations) > 1
