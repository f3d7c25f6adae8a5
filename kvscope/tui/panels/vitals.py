"""The engine's vital signs, a line each."""

from __future__ import annotations

from textual.app import ComposeResult

from kvscope.format import clip
from kvscope.tui.palette import BAD, DIM, FAINT, NOTE, TEXT, paint
from kvscope.tui.panels.panel import Panel
from kvscope.tui.widgets.canvas import Canvas, Line
from kvscope.view import View
from kvscope.vitals import Vital

_AT = 10
_TONES = {"": TEXT, "bad": BAD, "note": NOTE}


class VitalLines(Canvas):
    """Label, then the parts that fit; what the numbers are of stands at the right of the first line."""

    vitals: tuple[Vital, ...] = ()
    over = ""

    def draw(self, width: int, height: int) -> list[Line]:
        rows = [Line(width) for _ in range(height)]
        for at, (row, vital) in enumerate(zip(rows, self.vitals, strict=False)):
            row.put(1, vital.label, paint(FAINT))
            room = width - 1 - (len(self.over) + 2 if at == 0 else 0)
            x = _AT
            for index, (text, tone) in enumerate(vital.parts):
                gap = " · " if index else ""
                if x + len(gap) + len(text) > room and index:
                    break
                row.put(x, gap, paint(FAINT))
                row.put(x + len(gap), clip(text, room - x - len(gap)), paint(_TONES[tone], bold=tone == "bad"))
                x += len(gap) + len(text)
        if rows and self.vitals:
            rows[0].put_right(width - 1, self.over, paint(DIM))
        return rows


class VitalsPanel(Panel):
    TITLE = "Vital signs"
    SLOT = "top"
    TITLED = False
    READS = ("vitals", "over")

    def compose(self) -> ComposeResult:
        yield VitalLines()

    def show(self, view: View) -> None:
        lines = self.query_one(VitalLines)
        lines.vitals, lines.over = view.vitals, view.over
        self.styles.height = max(len(view.vitals), 1)
        lines.redraw()
