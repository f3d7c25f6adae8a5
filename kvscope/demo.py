"""The demo: a session of the built-in engine that plays its script while it is watched."""

from __future__ import annotations

from dataclasses import replace

from kvscope.demo_script import ACTS, Script
from kvscope.finding import Diagnosis
from kvscope.order import Apply, Order, ResetKnobs, SetKnob, ToggleFault
from kvscope.session import Session
from kvscope.session.lab import Controller
from kvscope.state import State
from kvscope.view import View


class Demo:
    """Stands where a session stands, and plays the script while it is watched; ``act_s``: seconds an act lasts."""

    def __init__(self, session: Session, control: Controller, act_s: float) -> None:
        self._session = session
        self._script = Script(session, control, act_s)

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

    def do(self, asked: Order) -> str:
        """Obey; whoever changes the engine takes over from the script."""
        if isinstance(asked, Apply | SetKnob | ToggleFault | ResetKnobs):
            self._script.done = True
        return self._session.do(asked)

    def result(self) -> Diagnosis:
        """The last diagnosis, without the warm-up: it is discarded, as in any measurement."""
        found = self._session.diagnose_now()
        return replace(found, segments=tuple(one for one in found.segments if one.name in ACTS))

    def close(self) -> None:
        """Close the session."""
        self._session.close()


def _uncompared(view: View) -> View:
    """The view without a baseline, and without findings: before anything was changed none of them is the story."""
    whole = view.token_time
    return replace(
        view,
        diagnosis=replace(view.diagnosis, findings=()) if view.diagnosis else None,
        state=State("reading", "The story begins: nothing was changed yet"),
        headlines=tuple(replace(one, baseline=None, change=None, sure=False) for one in view.headlines),
        accounting=tuple(replace(part, baseline=None) for part in view.accounting),
        token_time=replace(whole, baseline=None, change=None, sure=False) if whole is not None else None,
        trends={name: replace(trend, baseline=None, ghost=()) for name, trend in view.trends.items()},
        segments=tuple(replace(span, is_baseline=False) for span in view.segments),
    )
