"""One side of a comparison: the quantities of a benchmark's result file, or every signal of a recording's segment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kvscope import signals
from kvscope.errors import UsageError, nearest
from kvscope.result.result import Better, Quantity
from kvscope.signals.reading import Missing, Reading
from kvscope.store import Segment, Store
from probes import border

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Side:
    """Quantities by name; ``missing`` says why others have no value; ``others`` are segments not looked at.

    ``once``: a benchmark that could have repeated itself did not, so what two runs differ by is not in its errors.
    """

    target: str
    segment: str
    tags: Mapping[str, str]
    quantities: Mapping[str, Quantity]
    missing: Mapping[str, str] = field(default_factory=dict)
    others: tuple[str, ...] = ()
    once: bool = False
    limit: str = ""
    """What limits the engine, in a line; empty where nobody asked."""
    account: Mapping[str, Any] = field(default_factory=dict)
    """The whole account as a report gives it."""


def is_result(text: str) -> bool:
    """Whether a target is a result file of a kvscope benchmark; those of other tools are told by what is in them."""
    path = Path(text)
    if path.suffix != ".json" or not path.is_file():
        return False
    from kvscope.sources.stated.result import looks_result

    with path.open("rb") as file:
        return not looks_result(file.read(1 << 20))


def of_benchmark(path: Path) -> Side:
    """Read a result of another tool's benchmark. SourceError when it is none that is known."""
    from kvscope.sources.stated import result

    found = result.read(path)
    better: dict[str, Better] = {"higher": "higher", "lower": "lower"}
    numbers = [Quantity(one.name, one.value, one.unit, one.error, better.get(one.better, "")) for one in found.numbers]
    return Side(str(path), found.tool, found.tags, {one.name: one for one in numbers})


def with_said(side: Side, same: frozenset[str], changed: frozenset[str], index: int) -> Side:
    """Return a side with what a person says of both: the same in A and B, or changed between them."""
    tags = dict(side.tags) | dict.fromkeys(same, "the same, as you say")
    return replace(side, tags=tags | dict.fromkeys(changed, ("before", "after, as you say")[index]))


def of_result(path: Path) -> Side:
    """Read a result file; UsageError when it is none."""
    try:
        found = border.document(border.read_file(path), str(path))
        if found["schema"] != SCHEMA:
            raise UsageError(f"{path}: schema {found['schema']!r}, expected {SCHEMA}")
        quantities = [Quantity.from_json(one) for one in found["quantities"]]
        tags = {str(key): str(value) for key, value in found.get("tags", {}).items()}
        once = (found.get("settings") or {}).get("repeat") == 1
        return Side(str(path), str(found["bench"]), tags, {one.name: one for one in quantities}, once=once)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{path}: {error!r}; expected the JSON result of a kvscope bench command") from None


def of_store(store: Store, target: str, tags: Mapping[str, str], segment: str | None = None) -> Side:
    """Compute every signal over a segment (the last one without a name); UsageError names the segments there are."""
    segments = store.segments
    names = tuple(dict.fromkeys(one.name for one in segments))
    if segment is not None and segment not in names:
        raise UsageError(f"{target}: no segment {segment!r}{nearest(segment, names)}; there are: {', '.join(names)}")
    chosen = store.segment(segment) if segment is not None else segments[-1]
    found, missing = _signals(store, chosen)
    rest = tuple(name for name in names if name != chosen.name)
    return Side(target, chosen.name, {**tags, **chosen.tags}, found, missing, rest)


def _signals(store: Store, segment: Segment) -> tuple[dict[str, Quantity], dict[str, str]]:
    found, missing = {}, {}
    compute: Callable[[str], Reading | Missing] = lambda name: signals.compute(name, store, segment)  # noqa: E731
    for name in signals.names():
        reading = compute(name)
        if isinstance(reading, Missing):
            missing[name] = reading.reason
        else:
            found[name] = Quantity(name, reading.value, reading.unit, reading.error)
    return found, missing
