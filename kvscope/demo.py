"""The demo: a session of the built-in engine that plays its script while it is watched."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from kvscope.demo_script import ACTS, Script
from kvscope.finding import Diagnosis
from kvscope.session import Session
from kvscope.session_lab import Controller, Lab
from kvscope.session_moment import Moment
from kvscope.view import View


class _TakesOver(Lab):
    """A laboratory in which the first change ends the script."""

    def __init__(self, control: Controller, script: Script) -> None:
        super().__init__(control)
        self._script = script

    def change(self, changes: Mapping[str, str], mark: str = "") -> str:
        self._script.done = True
        return super().change(changes, mark)


class Demo:
    """Stands where a session stands, and plays the script while it is watched; ``act_s``: seconds an act lasts."""

    def __init__(self, session: Session, control: Controller, act_s: float) -> None:
        self._session = session
        self._script = Script(session, control, act_s)
        self._lab = _TakesOver(control, self._script)

    @property
    def done(self) -> bool:
        """Whether the script has ended, by itself or because a person took over."""
        return self._script.done

    @property
    def status(self) -> str:
        """What the script is doing, in words."""
        return self._script.status

    def poll(self) -> View:
        """Poll the session, then do what the script says for this moment."""
        view = self._session.poll()
        if not self.done:
            self._script.advance(view)
        if not self.done and not self._script.compares:
            view = _uncompared(view)
        return replace(view, status=view.status or self.status)

    def result(self) -> Diagnosis:
        """The last diagnosis, without the warm-up: it is discarded, as in any measurement."""
        found = self._session.diagnose_now()
        return replace(found, segments=tuple(one for one in found.segments if one.name in ACTS))

    def mark(self, name: str | None = None, tags: dict[str, str] | None = None) -> str:
        return self._session.mark(name, tags)

    def next_baseline(self) -> str:
        return self._session.next_baseline()

    @property
    def time(self) -> Moment:
        """The moment on screen."""
        return self._session.time

    @property
    def lab(self) -> Lab:
        """The engine's knobs: whoever turns one takes over from the script."""
        return self._lab

    def look(self, screen: str) -> str:
        return self._session.look(screen)

    def diagnose_now(self) -> Diagnosis:
        return self._session.diagnose_now()

    def apply(self, finding_id: str) -> str:
        """A person took over: the script leaves the rest to them."""
        self._script.done = True
        return self._session.apply(finding_id)

    def toggle_recording(self, path: Path | None = None) -> str:
        return self._session.toggle_recording(path)

    def close(self) -> None:
        self._session.close()


def _uncompared(view: View) -> View:
    """The view without a baseline."""
    whole = view.token_time
    return replace(
        view,
        headlines=tuple(replace(one, baseline=None, change=None, sure=False) for one in view.headlines),
        accounting=tuple(replace(part, baseline=None) for part in view.accounting),
        token_time=replace(whole, baseline=None, change=None, sure=False) if whole is not None else None,
        trends={name: replace(trend, baseline=None, ghost=()) for name, trend in view.trends.items()},
        segments=tuple(replace(span, is_baseline=False) for span in view.segments),
    )
