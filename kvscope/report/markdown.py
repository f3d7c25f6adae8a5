"""The report for an issue, a pull request or a wiki."""

from __future__ import annotations

from collections.abc import Iterator

from kvscope import amounts, wording
from kvscope.account import words
from kvscope.finding import Diagnosis, Evidence, Experiment, Finding


def render(diagnosis: Diagnosis) -> str:
    """Return the report as Markdown."""
    found = wording.told(diagnosis)
    lines = [f"# {_text(wording.what(diagnosis.source))}", "", *_segments(diagnosis)]
    lines += [line for notice in diagnosis.notices for line in (f"> {_text(notice)}", "")]
    lines += _account(diagnosis)
    for finding in found:
        lines += _finding(diagnosis, finding)
    if not found:
        lines += [wording.nothing_found(diagnosis), ""]
    silent = wording.silent(diagnosis)
    if silent:
        lines += ["## Checked, and not there", "", *(f"- {_text(one.title)} (`{one.id}`)" for one in silent), ""]
    lines += _unknown(diagnosis)
    return "\n".join(lines).rstrip()


def _segments(diagnosis: Diagnosis) -> Iterator[str]:
    if not diagnosis.segments:
        return
    yield from ("| segment | from | length | tags |", "|---|---|---|---|")
    for segment in diagnosis.segments:
        tags = ", ".join(f"{name} {value}" for name, value in sorted(segment.tags.items()))
        length = amounts.span(segment.start_s, segment.end_s)
        yield _row(segment.name, amounts.clock(segment.start_s), length, tags)
    yield ""


def _account(diagnosis: Diagnosis) -> Iterator[str]:
    if diagnosis.account is not None:
        yield from (f"## {words.TITLE}", "", "| | | known |", "|---|---|---|")
        for line in (*words.lines(diagnosis.account), *words.lacking(diagnosis.account)):
            yield _row(line.label, line.text, line.how)
        yield ""
    rooms = wording.rooms(diagnosis)
    if rooms:
        yield from ("| limit | in use | of | room for | held requests back |", "|---|---|---|---|---|")
        for room in rooms:
            yield _row(room.label, room.used, room.most, room.room, room.held_back)
        yield ""
    if diagnosis.vitals:
        yield from ("| vital signs | |", "|---|---|", *(_row(one.label, one.text) for one in diagnosis.vitals), "")
    if diagnosis.account_change is not None:
        yield from (f"## {words.CHANGE_TITLE}", "", "| | | from |", "|---|---|---|")
        for line in words.change_lines(diagnosis.account_change):
            yield _row(line.label, line.text, line.how)
        yield ""


def _finding(diagnosis: Diagnosis, finding: Finding) -> Iterator[str]:
    yield from (f"## {wording.WORDS[finding.verdict]}: {_text(finding.headline)}", "")
    compared = f", `{finding.baseline}` → `{finding.current}`" if finding.baseline else ""
    yield from (f"`{finding.id}`{compared}", "", f"Cause: {_text(finding.cause)}", "")
    if finding.evidence:
        yield from ("| | signal | condition | measured | source |", "|---|---|---|---|---|")
        for evidence in finding.evidence:
            yield _check(evidence)
        yield ""
    if finding.rivals:
        yield from ("| other cause | state | signal | measured | condition | source |", "|---|---|---|---|---|---|")
        for rival in finding.rivals:
            evidence = rival.evidence
            measured = wording.numbers(evidence) + (f"; {evidence.remedy}" if evidence.value is None else "")
            cells = (f"`{evidence.signal}`", measured.rstrip("; "), evidence.says, wording.origin(evidence))
            yield _row(rival.says, rival.state, *cells)
        yield ""
    yield from _advice(finding)
    for other in wording.folded(diagnosis, finding):
        yield f"- explains: {_text(other.title)} (`{other.id}`, {other.verdict})"
    yield ""


def _advice(finding: Finding) -> Iterator[str]:
    if finding.gain is not None:
        yield f"- worth: {_text(wording.worth(finding.gain))}"
    if finding.experiment is not None:
        yield from _experiment(finding.experiment, tried=finding.verdict in wording.TRIED)
    for fix in finding.fix:
        yield f"- fix: {_text(fix)}"
    if finding.notes:
        yield f"- notes: {_text(finding.notes)}"


def _experiment(experiment: Experiment, *, tried: bool) -> Iterator[str]:
    if tried:
        yield f"- tried: {_text(experiment.change)}"
        for evidence in experiment.predict:
            predicted = f"`{evidence.signal}` {_text(evidence.says)}"
            yield f"  - {predicted}: {evidence.answer}, {_text(wording.numbers(evidence))}"
        return
    hold = f"; hold {', '.join(experiment.hold)}" if experiment.hold else ""
    yield f"- next: {_text(experiment.change + hold)}" + (f" (`{experiment.run}`)" if experiment.run else "")
    if experiment.predict:
        expected = " and ".join(f"`{evidence.signal}` {_text(evidence.says)}" for evidence in experiment.predict)
        yield f"- expect: {expected}; otherwise the cause is refuted"


def _unknown(diagnosis: Diagnosis) -> Iterator[str]:
    waiting = wording.undecided(diagnosis)
    if waiting:
        yield from ("## Could not be judged", "")
        for finding in waiting:
            yield f"- {_text(finding.headline)} (`{finding.id}`)" + (
                f": {_text(finding.notes)}" if finding.notes else ""
            )
        yield ""
    if diagnosis.unknown:
        yield from ("## Could not be known", "", "| signal | why | what would supply it |", "|---|---|---|")
        for unknown in diagnosis.unknown:
            yield _row(f"`{unknown.signal}`", unknown.reason, unknown.remedy)
        yield ""


def _check(evidence: Evidence) -> str:
    measured = wording.numbers(evidence)
    if evidence.value is None and evidence.remedy:
        measured += f"; {evidence.remedy}"
    name = f"{evidence.answer} ({evidence.role})"
    return _row(name, f"`{evidence.signal}`", evidence.says, measured, wording.origin(evidence))


def _row(*cells: str) -> str:
    return "| " + " | ".join(_text(cell) for cell in cells) + " |"


def _text(text: str) -> str:
    """Escape what Markdown would take for a table cell's end or for HTML."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;").replace(">", "&gt;")
