"""The laboratory: the built-in engine's knobs, load and named faults, changed while it runs and watched at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Protocol

from kvscope import faults
from kvscope.errors import KvscopeError, UsageError
from kvscope.faults import Fault
from kvscope.signals.reading import Missing
from kvscope.view import Table

_FRESH_S = 10.0
_NOT_OURS = Missing(
    "only the built-in engine has knobs that can be turned from here", "kvscope demo, or kvscope serve and attach"
)
_KNOBS = (("knob", "text"), ("value", ""), ("was", ""))
_FAULTS = (("", "sign"), ("fault", "text"), ("cause", "text"))


class Controller(Protocol):
    """Changes a running engine; only the built-in one has it."""

    def set(self, knobs: Mapping[str, str], mark: str = "") -> object: ...


class Lab:
    """What the engine's settings were when somebody first looked, what they are, and the fault that is on."""

    def __init__(self, controller: Controller | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._controller, self._clock = controller, clock
        self._first: dict[str, str] = {}
        self._now: dict[str, str] = {}
        self._read_s = float("-inf")
        self._fault: Fault | None = None
        self._before: dict[str, str] = {}
        self._told: tuple[str, ...] | None = None

    def change(self, changes: Mapping[str, str], mark: str = "") -> str:
        """Set knobs, starting a segment; returns what was done, in words. UsageError carries the engine's own words."""
        if self._controller is None:
            raise UsageError(f"{_NOT_OURS.reason}; {_NOT_OURS.remedy}")
        told = ", ".join(f"{name} = {value}" for name, value in changes.items())
        self._take(self._controller.set(dict(changes), mark or _segment_name(changes)))
        return f"Set {told}"

    def toggle(self, name: str) -> str:
        """Start a fault; when it is the one that is on, put everything it changed back."""
        if self._fault is not None and self._fault.name == name:
            back, self._fault = self._before, None
            self.change(back, "after-" + name.replace("_", "-"))
            return f"{name} is over: what it changed is back as it was"
        fault = faults.get(name)
        self._look()
        touched = {name: value for name, value in self._now.items() if name in fault.knobs}
        # What another fault, still on, changed goes back to what was before that one.
        before = {**touched, **self._before} if self._fault else touched
        self.change(fault.knobs, name.replace("_", "-"))
        self._fault, self._before = fault, before
        needs = f". Sized for an engine started with {' '.join(fault.options)}" if fault.flags else ""
        return f"{name} is on: {fault.says}{needs}"

    def reset(self) -> str:
        """Put every setting back to what it was at the first look."""
        changed = {name: value for name, value in self._first.items() if self._now.get(name) != value}
        self._fault = None
        return self.change(changed, "reset") if changed else "Everything is as it was"

    def knobs(self) -> Table:
        """Every knob and load setting, the changed ones with what they were."""
        self._look()
        if not self._now:
            return Table(_KNOBS, _NOT_OURS if self._controller is None else Missing("the engine does not answer"))
        rows = []
        for name, value in sorted(self._now.items(), key=lambda pair: (pair[0].startswith("load."), 0)):
            was = self._first.get(name, value)
            rows.append((name, value, was if was != value else ""))
        return Table(_KNOBS, tuple(rows), keys=tuple(str(row[0]) for row in rows))

    def faults(self) -> Table:
        """Every named fault; the one that is on has a sign."""
        if self._controller is None:
            return Table(_FAULTS, _NOT_OURS)
        on = self._fault.name if self._fault else ""
        names = faults.names()
        causes = self._causes()
        rows = tuple(("●" if name == on else "", name, cause) for name, cause in zip(names, causes, strict=True))
        return Table(_FAULTS, rows, keys=names)

    def _causes(self) -> tuple[str, ...]:
        if self._told is None:
            self._told = tuple(faults.get(name).says for name in faults.names())
        return self._told

    def _look(self) -> None:
        if self._controller is None or self._clock() - self._read_s < _FRESH_S:
            return
        self._read_s = self._clock()
        try:
            self._take(self._controller.set({}))
        except KvscopeError:
            self._now = {}

    def _take(self, reply: object) -> None:
        if isinstance(reply, Mapping) and reply:
            self._now = {str(name): str(value) for name, value in reply.items()}
            self._first = self._first or dict(self._now)
            self._read_s = self._clock()


def _segment_name(changes: Mapping[str, str]) -> str:
    return "-".join(f"{name.removeprefix('load.')}={value}" for name, value in list(changes.items())[:2])
