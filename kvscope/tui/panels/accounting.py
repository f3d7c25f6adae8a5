"""What a whole consists of, as a bar and in numbers: an output token's time, and the amounts a screen takes apart."""

from __future__ import annotations

from dataclasses import dataclass

from textual.app import ComposeResult

from kvscope.format import clip, quantity
from kvscope.signals.reading import Missing, Reading
from kvscope.tui.palette import BRIGHT, DIM, FAINT, INK, NOTE, TEXT, paint, part_colour
from kvscope.tui.panels.panel import Panel
from kvscope.tui.widgets.canvas import Canvas, Line
from kvscope.tui.widgets.time_axis import notice
from kvscope.view import Share, View, Whole


class Wholes(Canvas):
    """Draws them beneath each other: name and amount, the bar, the parts in numbers, what is told of it."""

    def __init__(self) -> None:
        super().__init__()
        self.wholes: tuple[Whole, ...] = ()
        self.empty = ""

    def draw(self, width: int, height: int) -> list[Line]:
        rows = [Line(width) for _ in range(height)]
        if not self.wholes and rows:
            text = clip(self.empty or "No data yet", width)
            rows[height // 2].put(max((width - len(text)) // 2, 0), text, paint(DIM))
        y = 0
        for whole in self.wholes:
            y += self._whole(rows[y:], whole, width)
        return rows

    def _whole(self, rows: list[Line], whole: Whole, width: int) -> int:
        """Draw one, and return how many rows it took."""
        if not rows:
            return 0
        rows[0].put(0, whole.label, paint(DIM))
        if isinstance(whole.parts, Missing):
            words = f"unknown: {whole.parts.reason}"
            rows[0].put(len(whole.label) + 2, clip(words, width - len(whole.label) - 2), paint(TEXT))
            if len(rows) > 1 and whole.parts.remedy:
                rows[1].put(len(whole.label) + 2, clip(whole.parts.remedy, width - len(whole.label) - 2), paint(DIM))
            return 2
        total = sum(amount for _, _, amount in whole.parts)
        rows[0].put_right(width, _amount(total, whole.unit), paint(BRIGHT, bold=True))
        if len(rows) > 1 and total > 0:
            self._bar(rows[1], whole.parts, total, width)
        y = 2 + self._legend(rows[2:], whole, total, width)
        for line in whole.told:
            if y < len(rows):
                rows[y].put(
                    0, clip(line, width), paint(NOTE if line.startswith(("turns: unk", "stranded: unk")) else DIM)
                )
                y += 1
        return y + (1 if y + 5 < len(rows) else 0)

    def _bar(self, row: Line, parts: tuple[tuple[str, str, float], ...], total: float, width: int) -> None:
        done = 0.0
        for index, (name, label, amount) in enumerate(parts):
            start, done = round(done / total * width), done + amount
            end, colour = round(done / total * width), part_colour(name, index)
            hatched = name in ("free", "stranded")
            char, style = ("░" if name == "free" else "▒", paint(colour)) if hatched else (" ", paint(INK, colour))
            row.put(start, char * (end - start), style)
            if not hatched and end - start >= len(label) + 2:
                row.put(start + 1, label, paint(INK, colour, bold=True))

    def _legend(self, rows: list[Line], whole: Whole, total: float, width: int) -> int:
        assert not isinstance(whole.parts, Missing)
        x = y = 0
        for index, (name, label, amount) in enumerate(whole.parts):
            share = f"{amount / total * 100:.0f} %" if total > 0 else ""
            text = f"{label} {_amount(amount, whole.unit)} {share}"
            if x and x + len(text) + 2 > width:
                x, y = 0, y + 1
            if y >= len(rows):
                return y
            mark = "░" if name == "free" else "▒" if name == "stranded" else "█"
            rows[y].put(x, mark, paint(part_colour(name, index)))
            rows[y].put(x + 2, clip(text, width - x - 2), paint(TEXT if amount else FAINT))
            x += len(text) + 4
        return y + 1


class WholesPanel(Panel):
    TITLE = "Pool"
    READS = ("page",)
    HELP = "What a whole amount consists of."

    def __init__(self, title: str, empty: str) -> None:
        super().__init__("wholes", title)
        self.empty = empty

    def compose(self) -> ComposeResult:
        yield Wholes()

    def known(self, view: View) -> bool:
        """Whether there is one whose parts somebody told, or words for where nothing is opened."""
        wholes = view.page.wholes if view.page else ()
        return any(not isinstance(one.parts, Missing) for one in wholes) or (not wholes and bool(self.empty))

    def show(self, view: View) -> None:
        wholes = self.query_one(Wholes)
        told = view.page.wholes if view.page else ()
        wholes.wholes = tuple(one for one in told if not isinstance(one.parts, Missing)) or told
        wholes.empty = self.empty
        wholes.redraw()


def _amount(value: float, unit: str) -> str:
    return f"{value:,.0f} {unit}".replace(",", " ") if unit in ("entries", "tokens") else quantity(value, unit)


_NAMES = 14
_HATCH = "▒"


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar: seconds per token it stands for (None when unknown) and the shares of its parts, same order."""

    label: str
    seconds: float | None
    shares: tuple[float | None, ...]


class StackedBar(Canvas):
    """Both bars share one scale of seconds, so a longer bar is a slower token."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.parts: tuple[Share, ...] = ()
        self.bars: tuple[Bar, ...] = ()
        self._full = 0.0

    def show(self, parts: tuple[Share, ...], seconds: float | None, baseline_s: float | None) -> None:
        """Draw the parts, ``seconds`` and ``baseline_s`` being decode seconds per token now and at the baseline."""
        self.parts = parts
        now = tuple(None if isinstance(part.share, Missing) else part.share for part in parts)
        bars = [Bar("now", seconds, now)] if any(share is not None for share in now) else []
        if any(part.baseline is not None for part in parts):
            bars.append(Bar("was", baseline_s, tuple(part.baseline for part in parts)))
        self.bars = tuple(bars)
        self.redraw()

    def draw(self, width: int, height: int) -> list[Line]:
        """Bars on top, legend in what is left."""
        rows = [Line(width) for _ in range(height)]
        if not self.bars:
            reason = next((part.share for part in self.parts if isinstance(part.share, Missing)), None)
            notice(rows, reason)
            return rows
        room = width - _NAMES - 1
        longest = max((bar.seconds for bar in self.bars if bar.seconds is not None), default=0.0)
        if longest > self._full or longest < self._full * 0.8:
            self._full = longest * 1.02
        y = 0
        thick = 2 if height >= 6 else 1
        for bar in self.bars:
            for extra in range(thick if bar.label == "now" else 1):
                self._bar(rows[y], bar, room, labels=extra == 0)
                y += 1
        self._legend(rows[y + (1 if height >= 6 else 0) :], width)
        return rows

    def _bar(self, row: Line, bar: Bar, room: int, labels: bool) -> None:
        if labels:
            took = quantity(bar.seconds, "s") if bar.seconds is not None else ""
            style = paint(BRIGHT, bold=True) if bar.label == "now" else paint(DIM)
            row.put(0, f"{bar.label:<5}" if not took else bar.label, paint(DIM))
            row.put_right(_NAMES, took, style)
        length = room if bar.seconds is None or not self._full else room * min(bar.seconds / self._full, 1.0)
        done = 0.0
        for index, (part, share) in enumerate(zip(self.parts, bar.shares, strict=True)):
            if not share:
                continue
            start, done = _NAMES + 1 + done * length, done + share
            self._segment(row, part, index, start, _NAMES + 1 + done * length, share if labels else None)

    def _segment(self, row: Line, part: Share, index: int, start: float, end: float, share: float | None) -> None:
        colour = part_colour(part.name, index)
        first, last = round(start), round(end)
        char, style = (_HATCH, paint(colour)) if part.name == "unaccounted" else (" ", paint(INK, colour))
        row.put(first, char * (last - first), style)
        if share is None or last - first < 6:
            return
        number = f"{share * 100:.0f}"
        text = f"{part.label} {number}" if last - first >= len(part.label) + len(number) + 3 else number
        row.put(first + 1, text, paint(INK, colour, bold=True))

    def _legend(self, rows: list[Line], width: int) -> None:
        if not rows:
            return
        longest = max(len(part.label) for part in self.parts)
        across = max(width // (longest + 20), 1)
        wide = -(-len(self.parts) // across) <= len(rows) and any(part.baseline is not None for part in self.parts)
        x, y = 0, 0
        for index, part in enumerate(self.parts):
            cell = longest + 20 if wide else len(part.label) + 9
            if x + cell - 2 > width or (wide and index and index % across == 0):
                x, y = 0, y + 1
            if y >= len(rows):
                return
            self._entry(rows[y], part, index, x, longest if wide else len(part.label), wide)
            x += cell

    def _entry(self, row: Line, part: Share, index: int, x: int, longest: int, wide: bool) -> None:
        known = not isinstance(part.share, Missing)
        mark = _HATCH if part.name == "unaccounted" else "█" if known else "○"
        row.put(x, mark, paint(part_colour(part.name, index) if known else FAINT))
        row.put(x + 2, part.label, paint(TEXT if known else DIM))
        digits = 1 if wide else 0
        shown = f"{part.share * 100:.{digits}f} %" if not isinstance(part.share, Missing) else "?"
        end = x + 3 + longest + (6 if wide else 4)
        row.put_right(end, shown, paint(BRIGHT if known else DIM))
        if wide:
            self._legend_change(row, part, end + 8)

    def _legend_change(self, row: Line, part: Share, end: int) -> None:
        if isinstance(part.share, Missing) or part.baseline is None:
            return
        points = (part.share - part.baseline) * 100
        sign = "+" if points >= 0 else "−"
        text = f"{sign}{abs(points):.0f} pt" if abs(points) >= 0.5 else "="
        row.put_right(end, text, paint(DIM))


_COLUMNS = (("per token", 28), ("share", 40), ("baseline", 52), ("change", 64))


class AccountingPanel(Panel):
    TITLE = "Where one output token's time goes"
    SLOT = "top"
    READS = ("accounting", "token_time", "request_path", "request_time")

    def compose(self) -> ComposeResult:
        yield StackedBar()

    def show(self, view: View) -> None:
        total, parts, title = view.token_time, view.accounting, self.TITLE
        if _unknown(parts) and not _unknown(view.request_path):
            total, parts = view.request_time, view.request_path
            title = "Where a request's time goes (this engine tells no more)"
            self.styles.height = 3 + (total is not None and isinstance(total.baseline, Reading))
        else:
            self.styles.clear_rule("height")
        self.border_title = title
        now = total.now.value if total and isinstance(total.now, Reading) else None
        base = total.baseline.value if total and isinstance(total.baseline, Reading) else None
        self.query_one(StackedBar).show(parts, now, base)


def _unknown(parts: tuple[Share, ...]) -> bool:
    return all(isinstance(part.share, Missing) for part in parts)


class PartsTable(Canvas):
    """One row per part; the bar at the right is the share again, for the eye."""

    def __init__(self) -> None:
        super().__init__()
        self.parts: tuple[Share, ...] = ()
        self.total = ""

    def draw(self, width: int, height: int) -> list[Line]:
        rows = [Line(width) for _ in range(height)]
        if not rows:
            return rows
        for title, end in _COLUMNS:
            rows[0].put_right(end, title, paint(DIM))
        if not self.parts:
            rows[min(1, height - 1)].put(1, "No step times read yet", paint(DIM))
        for index, (row, part) in enumerate(zip(rows[1:], self.parts, strict=False)):
            self._part(row, part, part_colour(part.name, index), width)
        if self.total and len(self.parts) + 1 < height:
            rows[len(self.parts) + 1].put(3, self.total, paint(BRIGHT, bold=True))
        return rows

    def _part(self, row: Line, part: Share, colour: str, width: int) -> None:
        row.put(1, "▒" if part.name == "unaccounted" else "█", paint(colour))
        row.put(3, part.label, paint(TEXT))
        if isinstance(part.share, Missing):
            text = f"unknown: {part.share.reason}" + (f"; {part.share.remedy}" if part.share.remedy else "")
            row.put(18, clip(text, width - 19), paint(FAINT))
            return
        if part.seconds_per_token is not None:
            row.put_right(28, quantity(part.seconds_per_token, "s"), paint(TEXT))
        row.put_right(40, f"{part.share * 100:.1f} %", paint(BRIGHT, bold=True))
        if part.baseline is not None:
            row.put_right(52, f"{part.baseline * 100:.1f} %", paint(DIM))
            points = (part.share - part.baseline) * 100
            row.put_right(64, f"{'+' if points >= 0 else '−'}{abs(points):.1f} pt", paint(TEXT))
        room = width - 68
        if room >= 8:
            row.put(67, "█" * round(room * min(max(part.share, 0), 1)), paint(colour))


class PartsPanel(Panel):
    TITLE = "Token time in numbers"
    READS = ("accounting", "token_time")
    HELP = "Every part of a decode step per output token, beside its baseline."

    def compose(self) -> ComposeResult:
        yield PartsTable()

    def show(self, view: View) -> None:
        table = self.query_one(PartsTable)
        table.parts = view.accounting
        now = view.token_time.now if view.token_time else None
        table.total = f"one output token {quantity(now.value, 's')}" if isinstance(now, Reading) else ""
        table.redraw()
