"""A session that stands still: it gives the view it holds, and notes what it was asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from kvscope.finding import Diagnosis
from kvscope.view import View


class StillTime:
    """Stands in for a session's moment."""

    def __init__(self, session: StillSession) -> None:
        self.session = session

    def _note(self, text: str) -> str:
        self.session.asked.append(text)
        return ""

    def pause(self) -> str:
        self.session.view = replace(self.session.view, paused=not self.session.view.paused)
        return self._note(f"paused={self.session.view.paused}")

    def scrub(self, steps: int) -> str:
        return self._note(f"scrub {steps}")

    def seek(self, time_s: float | None) -> str:
        return self._note(f"seek {time_s}")

    def centre(self, time_s: float) -> str:
        return self._note(f"centre {time_s:.0f}")

    def zoom(self, steps: int) -> str:
        return self._note(f"zoom {steps}")

    def lay_under(self) -> str:
        return self._note("lay_under")


class StillLab:
    """Stands in for a session's laboratory."""

    def __init__(self, session: StillSession) -> None:
        self.session = session

    def change(self, changes: Mapping[str, str], mark: str = "") -> str:
        self.session.asked.append(f"change {dict(changes)}")
        return "Set"

    def toggle(self, name: str) -> str:
        self.session.asked.append(f"toggle {name}")
        return "On"

    def reset(self) -> str:
        self.session.asked.append("reset")
        return "Reset"

    def describe(self, name: str) -> tuple[str, dict[str, str]]:
        return "what it does", {"kernels": "generic"}


class StillSession:
    """Stands in for a Session in tests of the screen."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.asked: list[str] = []
        self.time, self.lab = StillTime(self), StillLab(self)

    def poll(self) -> View:
        return self.view

    def mark(self, name: str | None = None, tags: dict[str, str] | None = None) -> str:
        self.asked.append("mark")
        return "Baseline set"

    def next_baseline(self) -> str:
        self.asked.append("next_baseline")
        return "Compared with: full"

    def look(self, screen: str) -> str:
        self.asked.append(f"look {screen}")
        return ""

    def diagnose_now(self) -> Diagnosis:
        self.asked.append("diagnose")
        return self.view.diagnosis or Diagnosis({}, (), ())

    def apply(self, finding_id: str) -> str:
        self.asked.append(f"apply {finding_id}")
        return "Applied"

    def toggle_recording(self, path: Path | None = None) -> str:
        self.asked.append("record")
        return "Recording"

    def close(self) -> None:
        self.asked.append("close")
