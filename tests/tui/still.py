"""A session that stands still: it gives the view it holds, and notes what it was asked."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from kvscope.finding import Diagnosis
from kvscope.view import View


class StillSession:
    """Stands in for a Session in tests of the screen."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.asked: list[str] = []

    def poll(self) -> View:
        return self.view

    def mark(self, name: str | None = None, tags: dict[str, str] | None = None) -> str:
        self.asked.append("mark")
        return "Baseline set"

    def next_baseline(self) -> str:
        self.asked.append("next_baseline")
        return "Compared with: full"

    def zoom(self, steps: int) -> str:
        self.asked.append(f"zoom {steps}")
        return ""

    def look(self, screen: str) -> str:
        self.asked.append(f"look {screen}")
        return ""

    def set_paused(self, paused: bool) -> None:
        self.asked.append(f"paused={paused}")
        self.view = replace(self.view, paused=paused)

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
