"""The report for a terminal or a log: plain text, as wide as told, coloured only when asked.

Whatever the target, the first ``FOLD`` lines say what limits it, how much room is left and, where something is wrong,
what to change first; a report without a finding is no longer than that. What does not fit is behind ``everything``.
"""

from __future__ import annotations

import os
import shutil
import textwrap
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from kvscope import amounts, wording
from kvscope.account import words
from kvscope.finding import Diagnosis, Evidence, Experiment, Finding, Rival, SegmentSummary
from kvscope.state import unjudged
from kvscope.vitals import Vital

WIDTH = 100
WIDEST = 140
FOLD = 24
"""Lines of a small terminal."""
_ANSI = {"confirmed": "1;31", "likely": "1;31", "possible": "1;33", "unexplained": "33", "needs_data": "36"}
_LABEL = 8
_LEVELS = ("requests", "a token", "ahead")
_INDENT = "  "
_DEEP = " " * (4 + _LABEL)
_FIRST = frozenset(("load", "kv", "ttft", "tpot"))
"""Vital signs that stay when there is no room for all."""
_FILLER = "\0"
_ALWAYS = 0
"""``spare`` of what never gives way."""


@dataclass(frozen=True, slots=True)
class _Part:
    """Lines that stand together; of those with room for not all the one with the highest ``spare`` goes first."""

    lines: list[str]
    spare: int = _ALWAYS


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
    width = width or min(WIDEST, shutil.get_terminal_size((WIDTH, FOLD)).columns)
    page = _Page(max(40, width), colour and not os.environ.get("NO_COLOR"))
    if everything:
        lines = _all(page, diagnosis)
    elif found := wording.told(diagnosis):
        lines = _sick(page, diagnosis, found)
    else:
        lines = _folded(_quiet(page, diagnosis), FOLD)
    return "\n".join(lines)


def _folded(parts: Iterable[_Part], room: int) -> list[str]:
    """All lines, or as many as there is room for: what can best be spared goes first."""
    kept = [part for part in parts if part.lines]
    while sum(len(part.lines) for part in kept) > room and any(part.spare for part in kept):
        spared = max(part.spare for part in kept)
        at = max(index for index, part in enumerate(kept) if part.spare == spared)
        del kept[at]
    return [line for part in kept for line in part.lines]


def _all(page: _Page, diagnosis: Diagnosis) -> list[str]:
    top = [line for part in _head(page, diagnosis, everything=True) for line in part.lines]
    found = wording.told(diagnosis)
    blocks = [top, *(list(_finding(page, diagnosis, one)) for one in found)]
    nothing = [] if found else page.wrapped(wording.nothing_found(diagnosis), "", "")
    blocks += [[*nothing, *_levels(page, diagnosis, everything=True)], list(_change(page, diagnosis))]
    blocks += [[line for notice in diagnosis.notices for line in page.wrapped(f"note: {notice}", "")]]
    blocks += [list(part(page, diagnosis)) for part in (_lacking, _silent, _unknown)]
    return "\n\n".join("\n".join(block) for block in blocks if block).split("\n")


def _sick(page: _Page, diagnosis: Diagnosis, found: Sequence[Finding]) -> list[str]:
    """Up to the first finding's first fix within the fold, then the rest of it, other findings, what is left out."""
    first, rest = _opening(page, found[0]), list(_evidence(page, diagnosis, found[0]))
    lines = [*_folded([*_head(page, diagnosis), _Part([""]), *first], FOLD), *rest]
    for finding in found[1:]:
        lines += ["", *_finding(page, diagnosis, finding)]
    blocks = [
        list(_levels(page, diagnosis)),
        list(_change(page, diagnosis)),
        [*_notes(page, diagnosis), *_left_out(page, diagnosis)],
    ]
    for block in blocks:
        lines += ["", *block] if block else []
    return lines


def _quiet(page: _Page, diagnosis: Diagnosis) -> Iterator[_Part]:
    """A report without a finding."""
    yield from _head(page, diagnosis)
    yield _Part([""])
    yield _Part(page.clipped(wording.nothing_found(diagnosis), "", "", most=3))
    changed = list(_change(page, diagnosis))
    # What physics says of a change is the answer where two segments were compared.
    yield _Part(changed, 1)
    yield from (_Part([line], 6) for line in _levels(page, diagnosis))
    yield _Part([""], 9)
    yield from (_Part([line], 8) for line in _notes(page, diagnosis))
    yield _Part(_left_out(page, diagnosis))


def _head(page: _Page, diagnosis: Diagnosis, everything: bool = False) -> Iterator[_Part]:
    """Who was looked at, and when; what limits it, the room under each limit, vital signs."""
    who = wording.what(diagnosis.source)
    yield _Part(
        page.wrapped(who, "") if everything else page.clipped(who, "", most=1 if len(who) > page.width * 2 else 2)
    )
    yield _Part(list(_segments(page, diagnosis.segments, everything)))
    yield _Part(_limit(page, diagnosis))
    yield from _rooms(page, diagnosis)
    for vital in diagnosis.vitals:
        lines = page.labelled(vital.label, vital.text) if everything else [_vital(page, vital)]
        bad = page.colour and any(tone == "bad" for _, tone in vital.parts)
        yield _Part([f"\x1b[1;31m{one}\x1b[0m" if bad else one for one in lines], 3 if vital.name in _FIRST else 5)


def _segments(page: _Page, segments: Sequence[SegmentSummary], everything: bool) -> Iterator[str]:
    """When each was; of many only how many; their tags only with everything."""
    if len(segments) > 2 and not everything:
        first, last = segments[0], segments[-1]
        when = f"{amounts.clock(first.start_s)}, {amounts.span(first.start_s, last.end_s)}"
        yield from page.clipped(f"{len(segments)} segments: {when}; the last is {last.name}", _INDENT, most=1)
        return
    for segment in segments:
        tags = ", ".join(f"{name} {value}" for name, value in sorted(segment.tags.items())) if everything else ""
        when = f"{segment.name}: {amounts.clock(segment.start_s)}, {amounts.span(segment.start_s, segment.end_s)}"
        yield from page.wrapped(f"{when}; {tags}", _INDENT) if tags else page.clipped(when, _INDENT, most=1)


def _limit(page: _Page, diagnosis: Diagnosis) -> list[str]:
    if diagnosis.account is None:
        return []
    line = next(words.lines(diagnosis.account))
    text = page.labelled("limit", line.text + (f" [{line.how}]" if line.how else ""), most=3)
    return [f"\x1b[1m{one}\x1b[0m" if page.colour else one for one in text]


def _rooms(page: _Page, diagnosis: Diagnosis) -> Iterator[_Part]:
    """Every limit with the room that is left: the one that held most is spared last."""
    rooms = wording.rooms(diagnosis)
    rows = [
        (room.label, " of ".join(filter(None, (room.used, room.most))), room.room, room.held_back) for room in rooms
    ]
    if not rows:
        return
    order = sorted(range(len(rows)), key=lambda at: -(rooms[at].held or 0.0))
    for at, line in enumerate(page.table((("", "in use", "room for", "held requests back"), *rows))):
        yield _Part([line], 2 if at == 0 or order.index(at - 1) == 0 else 4)


def _vital(page: _Page, vital: Vital) -> str:
    """The parts that fit on one line."""
    line = f"{_INDENT}{vital.label:<{_LABEL + 2}}"
    for index, (text, _) in enumerate(vital.parts):
        more = (" · " if index else "") + text
        if index and _cells(line + more) > page.width:
            break
        line += more
    return page.clipped(line.strip(), _INDENT, most=1)[0] if _cells(line) > page.width else line


def _levels(page: _Page, diagnosis: Diagnosis, everything: bool = False) -> Iterator[str]:
    """Where time goes, a line a level; what every figure rests on only with everything."""
    for level in list(words.lines(diagnosis.account))[1:] if diagnosis.account else ():
        if everything:
            yield from page.labelled(level.label, level.text + (f"  [{level.how}]" if level.how else ""))
        elif level.label in _LEVELS:
            yield from page.labelled(level.label, level.text.partition("; ")[0], most=1)


def _notes(page: _Page, diagnosis: Diagnosis) -> Iterator[str]:
    """What is worth knowing and no fault, without the numbers that stand in brackets at its end."""
    for notice in dict.fromkeys(notice.partition(" (")[0] for notice in diagnosis.notices):
        yield from page.clipped(f"note: {notice}", "", most=2)


def _left_out(page: _Page, diagnosis: Diagnosis) -> list[str]:
    """What could not be judged, and where the rest is."""
    text = unjudged(diagnosis) if diagnosis.coverage else ""
    if not text and diagnosis.unknown:
        count = len(diagnosis.unknown)
        text = f"{count} signal{'s' if count > 1 else ''} could not be known"
    return page.clipped(f"{text}. --all tells the rest." if text else "--all tells the rest.", "", "", most=3)


def _change(page: _Page, diagnosis: Diagnosis) -> Iterator[str]:
    """What physics says of a change of KV bytes between the two segments."""
    if diagnosis.account_change is None:
        return
    yield words.CHANGE_TITLE
    for line in words.change_lines(diagnosis.account_change):
        yield from page.labelled(line.label, line.text + (f"  [{line.how}]" if line.how else ""))


def _lacking(page: _Page, diagnosis: Diagnosis) -> Iterator[str]:
    """What the account could not be told, and what would tell it."""
    lines = list(words.lacking(diagnosis.account)) if diagnosis.account else []
    if lines:
        yield "what limits it: not told"
    for line in lines:
        yield from page.wrapped(line.text, _INDENT)


def _unknown(page: _Page, diagnosis: Diagnosis) -> Iterator[str]:
    waiting = wording.undecided(diagnosis)
    if waiting:
        yield "could not be judged"
        for finding in waiting:
            yield from page.wrapped(finding.id + (f": {finding.notes}" if finding.notes else ""), _INDENT)
    if diagnosis.unknown:
        yield "could not be known"
        for unknown in diagnosis.unknown:
            remedy = f"; {unknown.remedy}" if unknown.remedy else ""
            yield from page.wrapped(f"{unknown.signal}: {unknown.reason}{remedy}", _INDENT)


def _silent(page: _Page, diagnosis: Diagnosis) -> Iterator[str]:
    found = wording.silent(diagnosis)
    if found:
        yield "checked, and not there"
        for finding in found:
            yield from page.wrapped(f"{finding.id}: {finding.title}", _INDENT)


def _finding(page: _Page, diagnosis: Diagnosis, finding: Finding) -> Iterator[str]:
    """Cause and fix first, then what was seen, what next, and the causes that were ruled out."""
    for part in _opening(page, finding, whole=True):
        yield from part.lines
    yield from _evidence(page, diagnosis, finding)


def _opening(page: _Page, finding: Finding, whole: bool = False) -> Iterator[_Part]:
    """Title, since when, cause and the first fix; clipped unless ``whole``."""
    yield _Part(_title(page, finding, most=99 if whole else 2))
    compared = f"{finding.baseline} → {finding.current}" if finding.baseline else ""
    since = f"since {amounts.clock(finding.onset_s)}" if finding.onset_s is not None else ""
    if compared or since:
        yield _Part(page.clipped(", ".join(filter(None, (compared, since))), _INDENT, most=1), 7)
    yield _Part(page.labelled("cause", finding.cause, most=99 if whole else 3), 0 if whole else 1)
    if finding.fix:
        yield _Part(page.labelled("fix", finding.fix[0], most=99 if whole else 7))


def _evidence(page: _Page, diagnosis: Diagnosis, finding: Finding) -> Iterator[str]:
    """Everything of a finding after its first fix."""
    for fix in finding.fix[1:]:
        yield from page.labelled("", fix)
    for role, title in (("symptom", "seen"), ("cause", "because"), ("prediction", "predicted")):
        checks = [one for one in wording.told_once(finding.evidence) if one.role == role]
        if checks:
            yield f"{_INDENT}{title}"
            yield from _checks(page, checks, _columns(finding.evidence))
    if finding.gain is not None:
        yield from page.labelled("worth", wording.worth(finding.gain))
    if finding.experiment is not None:
        yield from (_tried if finding.verdict in wording.TRIED else _next)(page, finding.experiment)
    if finding.notes:
        yield from page.labelled("notes", finding.notes)
    if finding.rivals:
        yield f"{_INDENT}other causes"
        yield from _rivals(page, finding.rivals)
    for other in wording.folded(diagnosis, finding):
        yield from page.labelled("explains", f"{other.title} ({other.id}, {other.verdict})")


def _title(page: _Page, finding: Finding, most: int) -> list[str]:
    word = wording.WORDS[finding.verdict]
    text = f"{word}  {finding.headline}"
    room = page.width - _cells(text) - _cells(finding.id)
    lines = [f"{text}{' ' * room}{finding.id}"]
    if room < 2:
        lines = [*page.clipped(text, "", most=most), *page.clipped(finding.id, _INDENT, most=1)]
    if page.colour and finding.verdict in _ANSI:
        lines[0] = f"\x1b[{_ANSI[finding.verdict]}m{word}\x1b[0m{lines[0][len(word) :]}"
    return lines


def _checks(page: _Page, checks: Sequence[Evidence], columns: tuple[int, int]) -> Iterator[str]:
    signal, says = columns
    for check in checks:
        head = f"{check.answer:<{_LABEL}}{check.signal:<{signal}}  {check.says:<{says}}"
        yield from page.row(head, wording.numbers(check), wording.origin(check))
        if check.value is None and check.remedy:
            yield from page.wrapped(f"to know it: {check.remedy}", _DEEP)


def _rivals(page: _Page, rivals: Sequence[Rival]) -> Iterator[str]:
    state = max(len(rival.state) for rival in rivals)
    for rival in rivals:
        evidence = rival.evidence
        look = f"; see {rival.look}" if rival.look and rival.state != "excluded" else ""
        why = f"{evidence.signal} {wording.numbers(evidence)}, needed {evidence.says}{look}"
        if rival.state == "unmeasured":
            remedy = f"; {evidence.remedy}" if evidence.remedy else ""
            why = f"{evidence.signal}: {evidence.missing or 'no value'}{remedy}{look}"
        yield from page.row(f"{rival.state:<{state}}  {rival.says}", why, wording.origin(evidence))


def _next(page: _Page, experiment: Experiment) -> Iterator[str]:
    yield from page.labelled("next", experiment.change)
    if experiment.hold:
        yield from page.labelled("", f"hold {', '.join(experiment.hold)}")
    if experiment.run:
        yield from page.labelled("", f"run {experiment.run}")
    if experiment.predict:
        expected = " and ".join(f"{evidence.signal} {evidence.says}" for evidence in experiment.predict)
        yield from page.labelled("", f"expect {expected}; otherwise the cause is refuted")


def _tried(page: _Page, experiment: Experiment) -> Iterator[str]:
    """What was changed and what came of each prediction."""
    yield from page.labelled("tried", experiment.change)
    yield from _checks(page, experiment.predict, _columns(experiment.predict))


def _columns(checks: Sequence[Evidence]) -> tuple[int, int]:
    """Return the widths of the signal and the condition column."""
    return max((len(one.signal) for one in checks), default=0), max((len(one.says) for one in checks), default=0)


@dataclass(frozen=True, slots=True)
class _Page:
    """Lays lines out within a width."""

    width: int
    colour: bool

    def wrapped(self, text: str, indent: str, hanging: str | None = None) -> list[str]:
        """Lines no wider than the page; only a word that is wider itself is broken."""
        hanging = indent + _INDENT if hanging is None else hanging
        filled = _filled(text)
        width = self.width - (filled is not text)  # a word may be broken before a filler
        lines = textwrap.wrap(filled, width, initial_indent=indent, subsequent_indent=hanging, break_on_hyphens=False)
        return [line.replace(_FILLER, "") for line in lines]

    def clipped(self, text: str, indent: str, hanging: str | None = None, *, most: int) -> list[str]:
        """At most so many lines; the last one says where something was cut off."""
        lines = self.wrapped(text, indent, hanging)
        if len(lines) <= most:
            return lines
        last = lines[most - 1]
        while _cells(last) > self.width - 2:
            last = last[:-1]
        return [*lines[: most - 1], last.rstrip() + " …"]

    def labelled(self, label: str, text: str, most: int = 99) -> list[str]:
        """A label, and what it says beside it."""
        indent = f"{_INDENT}{label:<{_LABEL + 2}}"
        return self.clipped(text, indent, " " * len(indent), most=most)

    def table(self, rows: Sequence[Sequence[str]]) -> Iterator[str]:
        """Columns beside each other, indented like what a label says: a line a row."""
        indent = " " * (len(_INDENT) + _LABEL + 2)
        sizes = [max(_cells(row[at]) for row in rows) for at in range(len(rows[0]))]
        for row in rows:
            padded = (cell + " " * (size - _cells(cell)) for cell, size in zip(row, sizes, strict=True))
            line = "  ".join(padded).rstrip()
            yield indent + line if _cells(indent + line) <= self.width else self.clipped(line, indent, most=1)[0]

    def row(self, head: str, numbers: str, origin: str) -> Iterator[str]:
        """Head, numbers and origin on as few lines as they fit; what does not fit goes indented beneath."""
        line = f"    {head.rstrip()}"
        for part in (numbers, f"[{origin}]" if origin else ""):
            if not part:
                continue
            if _cells(line) + 2 + _cells(part) <= self.width:
                line = f"{line}  {part}"
                continue
            yield from self.wrapped(line.strip(), "    ", _DEEP) if _cells(line) > self.width else [line]
            line = _DEEP + part
        indent = line[: len(line) - len(line.lstrip())]
        yield from self.wrapped(line.strip(), indent) if _cells(line) > self.width else [line]


def _filled(text: str) -> str:
    """The text with a filler after each letter of two cells, so that it is as long as it is wide."""
    if text.isascii():
        return text
    return "".join(char + _FILLER if unicodedata.east_asian_width(char) in "WF" else char for char in text)


def _cells(text: str) -> int:
    """Cells of a terminal that a text fills."""
    return len(_filled(text))
