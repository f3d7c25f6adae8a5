"""The report for a terminal or a log: plain text, as wide as told, coloured only when asked."""

from __future__ import annotations

import os
import shutil
import textwrap
from collections.abc import Iterator, Sequence

from kvscope import amounts, wording
from kvscope.account import words
from kvscope.finding import Diagnosis, Evidence, Experiment, Finding, Rival
from kvscope.state import unjudged

WIDTH = 100
WIDEST = 140
_ANSI = {"confirmed": "1;31", "likely": "1;31", "possible": "1;33", "unexplained": "33", "needs_data": "36"}
_LABEL = 8
_LEVELS = ("requests", "a token", "ahead")
_INDENT = "  "


def render(
    diagnosis: Diagnosis,
    *,
    width: int | None = None,
    colour: bool = False,
    everything: bool = False,
) -> str:
    """Return the report as text, ``width`` columns wide (the terminal's, else 100).

    First what limits the engine and its vital signs, then findings with their fix before other causes, then one line of
    what could not be judged; ``everything`` adds the rest. ``colour`` is a wish: NO_COLOR in the environment overrules.
    """
    width = width or min(WIDEST, shutil.get_terminal_size((WIDTH, 24)).columns)
    writer = _Writer(max(40, width), colour and not os.environ.get("NO_COLOR"))
    found = wording.told(diagnosis)
    blocks = [[*writer.head(diagnosis, everything), *writer.limits(diagnosis), *writer.vitals(diagnosis)]]
    blocks += [list(writer.finding(diagnosis, finding)) for finding in found]
    nothing = [] if found else writer.wrapped(wording.nothing_found(diagnosis), "", "")
    blocks += [[*nothing, *writer.levels(diagnosis, everything)], [*writer.change(diagnosis)]]
    if everything:
        blocks.append(writer.notes(diagnosis.notices))
        blocks += [list(writer.lacking(diagnosis)), list(writer.silent(diagnosis)), list(writer.unknown(diagnosis))]
    else:
        # The numbers of what is worth knowing and no fault stand in brackets at its end.
        notes = writer.notes([notice.partition(" (")[0] for notice in diagnosis.notices])
        blocks.append([*notes, *writer.left_out(diagnosis)])
    return "\n\n".join("\n".join(block) for block in blocks if block)


class _Writer:
    """Lays lines out within a width."""

    def __init__(self, width: int, colour: bool) -> None:
        self._width = width
        self._colour = colour

    def head(self, diagnosis: Diagnosis, everything: bool) -> Iterator[str]:
        """Who was looked at, and when; the tags of each segment only with everything."""
        yield from self.wrapped(wording.what(diagnosis.source), "")
        for segment in diagnosis.segments:
            tags = ", ".join(f"{name} {value}" for name, value in sorted(segment.tags.items())) if everything else ""
            when = f"{amounts.clock(segment.start_s)}, {amounts.span(segment.start_s, segment.end_s)}"
            yield from self.wrapped(f"{segment.name}: {when}" + (f"; {tags}" if tags else ""), _INDENT)

    def notes(self, notices: Sequence[str]) -> list[str]:
        return [line for notice in notices for line in self.wrapped(f"note: {notice}", "")]

    def limits(self, diagnosis: Diagnosis) -> Iterator[str]:
        """What limits the engine in one line, then every limit with the room that is left."""
        if diagnosis.account is None:
            return
        line = next(words.lines(diagnosis.account))
        text = self._labelled("limit", line.text + (f" [{line.how}]" if line.how else ""))
        yield from (f"\x1b[1m{one}\x1b[0m" if self._colour else one for one in text)
        rows = [
            (room.label, " of ".join(filter(None, (room.used, room.most))), room.room, room.held_back)
            for room in wording.rooms(diagnosis)
        ]
        if rows:
            yield from self._table((("", "in use", "room for", "held requests back"), *rows))

    def levels(self, diagnosis: Diagnosis, everything: bool) -> Iterator[str]:
        """Where time goes, a line a level; what every figure rests on only with everything."""
        for level in list(words.lines(diagnosis.account))[1:] if diagnosis.account else ():
            if everything:
                yield from self._labelled(level.label, level.text + (f"  [{level.how}]" if level.how else ""))
            elif level.label in _LEVELS:
                yield from self._labelled(level.label, level.text.partition("; ")[0])[:2]

    def vitals(self, diagnosis: Diagnosis) -> Iterator[str]:
        for vital in diagnosis.vitals:
            text = self._labelled(vital.label, vital.text)
            bad = self._colour and any(tone == "bad" for _, tone in vital.parts)
            yield from (f"\x1b[1;31m{one}\x1b[0m" if bad else one for one in text)

    def left_out(self, diagnosis: Diagnosis) -> list[str]:
        """One line of what could not be judged, and where the rest is."""
        text = unjudged(diagnosis) if diagnosis.coverage else ""
        if not text and diagnosis.unknown:
            count = len(diagnosis.unknown)
            text = f"{count} signal{'s' if count > 1 else ''} could not be known"
        return self.wrapped(f"{text}. --all tells the rest." if text else "--all tells the rest.", "", "")

    def change(self, diagnosis: Diagnosis) -> Iterator[str]:
        """What physics says of a change of KV bytes between the two segments."""
        if diagnosis.account_change is None:
            return
        yield words.CHANGE_TITLE
        for line in words.change_lines(diagnosis.account_change):
            yield from self._labelled(line.label, line.text + (f"  [{line.how}]" if line.how else ""))

    def lacking(self, diagnosis: Diagnosis) -> Iterator[str]:
        """What the account could not be told, and what would tell it."""
        lines = list(words.lacking(diagnosis.account)) if diagnosis.account else []
        if lines:
            yield "what limits it: not told"
        for line in lines:
            yield from self.wrapped(line.text, _INDENT)

    def _table(self, rows: Sequence[Sequence[str]]) -> Iterator[str]:
        """Columns beside each other, indented like what a label says."""
        indent = " " * (len(_INDENT) + _LABEL + 2)
        sizes = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
        for row in rows:
            line = "  ".join(cell.ljust(size) for cell, size in zip(row, sizes, strict=True)).rstrip()
            yield from [indent + line] if len(indent + line) <= self._width else self.wrapped(line, indent)

    def finding(self, diagnosis: Diagnosis, finding: Finding) -> Iterator[str]:
        """Cause and fix first, then what was seen, what next, and the causes that were ruled out."""
        yield from self._title(finding)
        compared = f"{finding.baseline} → {finding.current}" if finding.baseline else ""
        since = f"since {amounts.clock(finding.onset_s)}" if finding.onset_s is not None else ""
        if compared or since:
            yield _INDENT + ", ".join(filter(None, (compared, since)))
        yield from self._labelled("cause", finding.cause)
        for index, fix in enumerate(finding.fix):
            yield from self._labelled("fix" if not index else "", fix)
        for role, title in (("symptom", "seen"), ("cause", "because"), ("prediction", "predicted")):
            checks = [evidence for evidence in finding.evidence if evidence.role == role]
            if checks:
                yield f"{_INDENT}{title}"
                yield from self._checks(checks, _columns(finding.evidence))
        yield from self._advice(finding)
        if finding.rivals:
            yield f"{_INDENT}other causes"
            yield from self._rivals(finding.rivals)
        for other in wording.folded(diagnosis, finding):
            yield from self._labelled("explains", f"{other.title} ({other.id}, {other.verdict})")

    def unknown(self, diagnosis: Diagnosis) -> Iterator[str]:
        waiting = wording.undecided(diagnosis)
        if waiting:
            yield "could not be judged"
            for finding in waiting:
                yield from self.wrapped(finding.id + (f": {finding.notes}" if finding.notes else ""), _INDENT)
        if diagnosis.unknown:
            yield "could not be known"
            for unknown in diagnosis.unknown:
                remedy = f"; {unknown.remedy}" if unknown.remedy else ""
                yield from self.wrapped(f"{unknown.signal}: {unknown.reason}{remedy}", _INDENT)

    def silent(self, diagnosis: Diagnosis) -> Iterator[str]:
        found = wording.silent(diagnosis)
        if found:
            yield "checked, and not there"
            for finding in found:
                yield from self.wrapped(f"{finding.id}: {finding.title}", _INDENT)

    def wrapped(self, text: str, indent: str, hanging: str | None = None) -> list[str]:
        return textwrap.wrap(
            text,
            self._width,
            initial_indent=indent,
            subsequent_indent=indent + _INDENT if hanging is None else hanging,
            break_long_words=False,
            break_on_hyphens=False,
        )

    def _title(self, finding: Finding) -> Iterator[str]:
        word = wording.WORDS[finding.verdict]
        text = f"{word}  {finding.title}"
        room = self._width - len(text) - len(finding.id)
        lines = (
            [f"{text}{' ' * room}{finding.id}"] if room >= 2 else [*self.wrapped(text, ""), f"{_INDENT}{finding.id}"]
        )
        if self._colour and finding.verdict in _ANSI:
            lines[0] = f"\x1b[{_ANSI[finding.verdict]}m{word}\x1b[0m{lines[0][len(word) :]}"
        yield from lines

    def _checks(self, checks: Sequence[Evidence], columns: tuple[int, int]) -> Iterator[str]:
        signal, says = columns
        for check in checks:
            head = f"{check.answer:<{_LABEL}}{check.signal:<{signal}}  {check.says:<{says}}"
            yield from self._row(head, wording.numbers(check), wording.origin(check))
            if check.value is None and check.remedy:
                yield from self.wrapped(f"to know it: {check.remedy}", " " * (4 + _LABEL))

    def _rivals(self, rivals: Sequence[Rival]) -> Iterator[str]:
        state = max(len(rival.state) for rival in rivals)
        for rival in rivals:
            evidence = rival.evidence
            look = f"; see {rival.look}" if rival.look and rival.state != "excluded" else ""
            why = f"{evidence.signal} {wording.numbers(evidence)}, needed {evidence.says}{look}"
            if rival.state == "unmeasured":
                remedy = f"; {evidence.remedy}" if evidence.remedy else ""
                why = f"{evidence.signal}: {evidence.missing or 'no value'}{remedy}{look}"
            yield from self._row(f"{rival.state:<{state}}  {rival.says}", why, wording.origin(evidence))

    def _row(self, head: str, numbers: str, origin: str) -> Iterator[str]:
        """Write head, numbers and origin on as few lines as they fit; what does not fit goes indented beneath."""
        line = f"    {head.rstrip()}"
        for part in (numbers, f"[{origin}]" if origin else ""):
            if not part:
                continue
            if len(line) + 2 + len(part) <= self._width:
                line = f"{line}  {part}"
                continue
            yield from self.wrapped(line.strip(), "    ", " " * (4 + _LABEL)) if len(line) > self._width else [line]
            line = " " * (4 + _LABEL) + part
        yield from (
            self.wrapped(line.strip(), line[: len(line) - len(line.lstrip())]) if len(line) > self._width else [line]
        )

    def _advice(self, finding: Finding) -> Iterator[str]:
        if finding.gain is not None:
            yield from self._labelled("worth", wording.worth(finding.gain))
        if finding.experiment is not None:
            if finding.verdict in wording.TRIED:
                yield from self._tried(finding.experiment)
            else:
                yield from self._next(finding.experiment)
        if finding.notes:
            yield from self._labelled("notes", finding.notes)

    def _next(self, experiment: Experiment) -> Iterator[str]:
        yield from self._labelled("next", experiment.change)
        if experiment.hold:
            yield from self._labelled("", f"hold {', '.join(experiment.hold)}")
        if experiment.run:
            yield from self._labelled("", f"run {experiment.run}")
        if experiment.predict:
            expected = " and ".join(f"{evidence.signal} {evidence.says}" for evidence in experiment.predict)
            yield from self._labelled("", f"expect {expected}; otherwise the cause is refuted")

    def _tried(self, experiment: Experiment) -> Iterator[str]:
        """What was changed and what came of each prediction."""
        yield from self._labelled("tried", experiment.change)
        yield from self._checks(experiment.predict, _columns(experiment.predict))

    def _labelled(self, label: str, text: str) -> list[str]:
        indent = f"{_INDENT}{label:<{_LABEL + 2}}"
        return self.wrapped(text, indent, " " * len(indent))


def _columns(checks: Sequence[Evidence]) -> tuple[int, int]:
    """Return the widths of the signal and the condition column."""
    return max((len(one.signal) for one in checks), default=0), max((len(one.says) for one in checks), default=0)
