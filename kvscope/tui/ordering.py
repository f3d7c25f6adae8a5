"""Keys that change something: each becomes one order to the polling thread."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from textual.app import App

from kvscope.finding import Diagnosis, Finding
from kvscope.tui.poller import Order, Poller
from kvscope.tui.screens.main import MainScreen
from kvscope.view import View


class Time(Protocol):
    """The moment on screen; ``kvscope.session_moment.Moment`` is one."""

    def pause(self) -> str: ...

    def scrub(self, steps: int) -> str: ...

    def seek(self, time_s: float | None) -> str: ...

    def centre(self, time_s: float) -> str: ...

    def zoom(self, steps: int) -> str: ...

    def lay_under(self) -> str: ...


class Knobs(Protocol):
    """The built-in engine's settings; ``kvscope.session_lab.Lab`` is one."""

    def change(self, changes: Mapping[str, str], mark: str = "") -> str: ...

    def toggle(self, name: str) -> str: ...

    def reset(self) -> str: ...

    def describe(self, name: str) -> tuple[str, dict[str, str]]: ...


class Watched(Protocol):
    """What the dashboard asks of a session; ``kvscope.session.Session`` is one."""

    @property
    def time(self) -> Time: ...

    @property
    def lab(self) -> Knobs: ...

    def poll(self) -> View: ...

    def mark(self, name: str | None = None, tags: dict[str, str] | None = None) -> str: ...

    def next_baseline(self) -> str: ...

    def look(self, screen: str) -> str: ...

    def diagnose_now(self) -> Diagnosis: ...

    def apply(self, finding_id: str) -> str: ...

    def toggle_recording(self, path: Path | None = None) -> str: ...

    def close(self) -> None: ...


class Ordering(App[None]):
    """The half of the application that talks to the session, through the poller and never directly."""

    def __init__(self, session: Watched, interval_s: float) -> None:
        super().__init__()
        self.session = session
        self.view: View | None = None
        self.poller = Poller(session, self.post_message, interval_s)

    def order(self, order: Order) -> None:
        """Let the polling thread do it; its words come back as a notice."""
        self.poller.ask(order)

    def action_mark(self) -> None:
        """Everything so far is the baseline; a new segment starts."""
        self.order(self.session.mark)

    def action_baseline(self) -> None:
        """Compare with another segment."""
        self.order(self.session.next_baseline)

    def action_pause(self) -> None:
        """Freeze or thaw the view; collecting goes on."""
        self.order(self.session.time.pause)

    def action_scrub(self, steps: int) -> None:
        """Go back or forward in time; the view stands still there."""
        self.order(lambda: self.session.time.scrub(steps))

    def action_now(self) -> None:
        """Back to the newest sample."""
        self.order(lambda: self.session.time.seek(None))

    def action_overlay(self) -> None:
        """Lay the baseline's curves under the current ones, or no longer."""
        self.order(self.session.time.lay_under)

    def action_onset(self) -> None:
        """Show the moment at which the chosen finding began."""
        finding = self._chosen()
        onset = finding.onset_s if finding else None
        if onset is None:
            self.notify("No finding with a known beginning.", timeout=4)
            return
        self.order(lambda: self.session.time.centre(onset))

    def action_diagnose(self) -> None:
        """Ask all playbooks now."""

        def order() -> str:
            found = [
                f for f in self.session.diagnose_now().findings if f.verdict in ("confirmed", "likely", "possible")
            ]
            return f"Diagnosed: {len(found)} finding{'s' if len(found) != 1 else ''}"

        self.order(order)

    def action_zoom(self, steps: int) -> None:
        """Let the charts show a longer or shorter stretch of time."""
        self.order(lambda: self.session.time.zoom(steps))

    def action_record(self) -> None:
        """Start or stop a recording."""
        self.order(self.session.toggle_recording)

    def action_apply(self) -> None:
        """Ask, then apply the proposed experiment of the chosen finding."""
        from kvscope.tui.screens.confirm import ConfirmScreen

        finding = self._to_apply()
        if self.view is None or finding is None or finding.experiment is None:
            self.notify("No finding proposes a change that can be made from here.", timeout=4)
            return
        if not self.view.can_apply:
            hint = finding.experiment.run or finding.experiment.change
            self.notify(
                f"Only the built-in engine can be changed from here. For yours: {hint}", timeout=8, markup=False
            )
            return
        sets = "\n".join(f"{name} = {value}" for name, value in finding.experiment.set)
        held = f"\nheld: {', '.join(finding.experiment.hold)}" if finding.experiment.hold else ""

        def answer(yes: bool | None) -> None:
            if yes:
                self.order(lambda: self.session.apply(finding.id))

        self.push_screen(ConfirmScreen(f"Apply: {finding.experiment.change}?", sets + held), answer)

    def _chosen(self) -> Finding | None:
        """The finding that is open or highlighted, else the first."""
        for screen in reversed(self.screen_stack):
            finding = getattr(screen, "finding", None)
            if isinstance(finding, Finding):
                return finding
        main = next((screen for screen in self.screen_stack if isinstance(screen, MainScreen)), None)
        return main.findings.chosen if main else None

    def _to_apply(self) -> Finding | None:
        """The chosen finding when it sets something; on the overview else the first that does."""
        chosen = self._chosen()
        if any(isinstance(getattr(screen, "finding", None), Finding) for screen in self.screen_stack):
            return chosen if chosen and chosen.experiment and chosen.experiment.set else None
        candidates = [chosen] if chosen else []
        candidates += list(self.view.findings) if self.view else []
        return next((f for f in candidates if f.experiment and f.experiment.set), None)
