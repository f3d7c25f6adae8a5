"""The report for a terminal or a log: plain text, as wide as told, coloured only when asked."""

from __future__ import annotations

import os
import shutil
import textwrap
from collections.abc import Iterator, Sequence

from kvscope import amounts, wording
from kvscope.account import words
from kvscope.finding import Diagnosis, Evidence, Experiment, Finding, Rival

WIDTH = 100
WIDEST = 140
_ANSI = {"confirmed": "1;31", "likely": "1;31", "possible": "1;33", "unexplained": "33", "needs_data": "36"}
_LABEL = 8
_INDENT = "  "


def render(
    diagnosis: Diagnosis,
    *,
    width: int | None = None,
    colour: bool = False,
) -> str:
    """Return the report as text, ``width`` columns wide (the terminal's, else 100).

    ``colour`` is a wish: NO_COLOR in the environment overrules it.
    """
    width = width or min(WIDEST, shutil.get_terminal_size((WIDTH, 24)).columns)
    writer = _Writer(max(40, width), colour and not os.environ.get("NO_COLOR"))
    blocks = [list(writer.head(diagnosis)), list(writer.account(diagnosis))]
    found = wording.told(diagnosis)
    blocks += [list(writer.finding(diagnosis, finding)) for finding in found]
    if not found:
        blocks.append(writer.wrapped(wording.nothing_found(diagnosis), "", ""))
    blocks += [list(writer.silent(diagnosis)), list(writer.unknown(diagnosis))]
    return "\n\n".join("\n".join(block) for block in blocks if block)


class _Writer:
    """Lays lines out within a width."""

    def __init__(self, width: int, colour: bool) -> None:
        self._width = width
        self._colour = colour

    def head(self, diagnosis: Diagnosis) -> Iterator[str]:
        yield from self.wrapped(wording.what(diagnosis.source), "")
        for segment in diagnosis.segments:
            tags = ", ".join(f"{name} {value}" for name, value in sorted(segment.tags.items()))
            when = f"{amounts.clock(segment.start_s)}, {amounts.span(segment.start_s, segment.end_s)}"
            yield from self.wrapped(f"{segment.name}: {when}" + (f"; {tags}" if tags else ""), _INDENT)
        for notice in diagnosis.notices:
            yield from self.wrapped(f"note: {notice}", _INDENT)

    def account(self, diagnosis: Diagnosis) -> Iterator[str]:
        if diagnosis.account is None:
            return
        yield words.TITLE
        for line in words.lines(diagnosis.account):
            yield from self._labelled(line.label, line.text + (f"  [{line.how}]" if line.how else ""))

    def finding(self, diagnosis: Diagnosis, finding: Finding) -> Iterator[str]:
        yield from self._title(finding)
        if finding.baseline:
            yield f"{_INDENT}{finding.baseline} → {finding.current}"
        if finding.onset_s is not None:
            yield f"{_INDENT}since {amounts.clock(finding.onset_s)}"
        symptoms = [evidence for evidence in finding.evidence if evidence.role == "symptom"]
        causes = [evidence for evidence in finding.evidence if evidence.role == "cause"]
        predictions = [evidence for evidence in finding.evidence if evidence.role == "prediction"]
        columns = _columns(finding.evidence)
        if symptoms:
            yield f"{_INDENT}seen"
            yield from self._checks(symptoms, columns)
        yield from self.wrapped(f"cause: {finding.cause}", _INDENT)
        yield from self._checks(causes, columns)
        if finding.rivals:
            yield f"{_INDENT}other causes"
            yield from self._rivals(finding.rivals)
        if predictions:
            yield f"{_INDENT}predicted"
            yield from self._checks(predictions, columns)
        yield from self._advice(finding)
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
        for index, fix in enumerate(finding.fix):
            yield from self._labelled("fix" if not index else "", fix)
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
