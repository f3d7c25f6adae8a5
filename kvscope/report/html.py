"""The report as one HTML file: nothing is loaded from elsewhere, plots are drawn inside it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from html import escape
from itertools import pairwise

from kvscope import amounts, signals, wording
from kvscope.account import words
from kvscope.finding import Diagnosis, Evidence, Finding
from kvscope.signals.batches import edges
from kvscope.signals.reading import Reading
from kvscope.store import Segment, Store

_PIECES = (24, 8, 4)

_STYLE = """
:root{--ink:#1b1f24;--paper:#fff;--soft:#6b7280;--line:#d8dde3;--before:#8a94a0;--now:#b4530a}
@media(prefers-color-scheme:dark){:root{--ink:#e6e9ec;--paper:#15181c;--soft:#9aa3ad;--line:#333a42;--now:#f0a050}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:62rem;margin:2rem auto;
padding:0 1rem}
h1{font-size:1.3rem}h2{font-size:1.1rem;margin-top:2rem;border-top:1px solid var(--line);padding-top:1rem}
table{border-collapse:collapse;width:100%;font-size:.9rem}
td,th{border-bottom:1px solid var(--line);padding:.3rem .5rem;text-align:left;vertical-align:top}
.soft{color:var(--soft)}code{font-size:.9em}svg{display:block;max-width:100%}svg text{font-size:11px;fill:var(--soft)}
line,polyline{stroke-width:2;fill:none}line.before,polyline.before{stroke:var(--before)}circle.before{fill:var(--before)}
line.now,polyline.now{stroke:var(--now)}circle.now{fill:var(--now)}
"""


def render(diagnosis: Diagnosis, store: Store | None = None) -> str:
    """Return the report; with the ``store`` it was made from, each symptom is plotted over time."""
    found = wording.told(diagnosis)
    title = escape(wording.what(diagnosis.source))
    lines = [
        "<!doctype html>",
        f'<html lang="en"><head><meta charset="utf-8"><title>kvscope: {title}</title>',
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head><body>',
        f"<h1>{title}</h1>",
        *_segments(diagnosis),
        *(f"<p>{escape(notice)}</p>" for notice in diagnosis.notices),
        *_account(diagnosis),
    ]
    for finding in found:
        lines += _finding(diagnosis, finding, store)
    if not found:
        lines.append(f"<p>{escape(wording.nothing_found(diagnosis))}</p>")
    lines += [*_rest(diagnosis), "</body></html>"]
    return "\n".join(lines)


def _segments(diagnosis: Diagnosis) -> Iterator[str]:
    rows = [
        (one.name, amounts.clock(one.start_s), amounts.span(one.start_s, one.end_s), _tags(one.tags))
        for one in diagnosis.segments
    ]
    yield from _table(("segment", "from", "length", "tags"), rows)


def _account(diagnosis: Diagnosis) -> Iterator[str]:
    if diagnosis.account is not None:
        yield f"<h2>{words.TITLE}</h2>"
        rows = [
            (line.label, line.text, line.how)
            for line in (*words.lines(diagnosis.account), *words.lacking(diagnosis.account))
        ]
        yield from _table(("", "", "known"), rows)
        rooms = [(one.label, one.used, one.most, one.room, one.held_back) for one in wording.rooms(diagnosis)]
        yield from _table(("limit", "in use", "of", "room for", "held requests back"), rooms)
    if diagnosis.vitals:
        yield from _table(("vital signs", ""), [(one.label, one.text) for one in diagnosis.vitals])
    if diagnosis.account_change is not None:
        yield f"<h2>{words.CHANGE_TITLE}</h2>"
        rows = [(line.label, line.text, line.how) for line in words.change_lines(diagnosis.account_change)]
        yield from _table(("", "", "from"), rows)


def _tags(tags: dict[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in sorted(tags.items()))


def _finding(diagnosis: Diagnosis, finding: Finding, store: Store | None) -> Iterator[str]:
    yield f'<h2 id="{escape(finding.id)}">{wording.WORDS[finding.verdict]}: {escape(finding.title)}</h2>'
    compared = f", {finding.baseline} → {finding.current}" if finding.baseline else ""
    yield f'<p class="soft"><code>{escape(finding.id)}</code>{escape(compared)}</p>'
    yield f"<p>Cause: {escape(finding.cause)}</p>"
    checks = [_evidence_row(one, finding, store) for one in finding.evidence]
    yield from _table(("", "signal", "condition", "measured", "source"), checks, raw=True)
    rivals = [
        (rival.says, rival.state, rival.evidence.signal, _measured(rival.evidence), rival.evidence.says)
        for rival in finding.rivals
    ]
    yield from _table(("other cause", "state", "signal", "measured", "condition"), rivals)
    yield from _list(_advice(finding))
    folded = [f"explains: {one.title} ({one.id}, {one.verdict})" for one in wording.folded(diagnosis, finding)]
    yield from _list(folded)


def _evidence_row(evidence: Evidence, finding: Finding, store: Store | None) -> tuple[str, ...]:
    drawn = _interval(evidence)
    if store is not None and evidence.role == "symptom":
        drawn += _course(evidence.signal, finding, store)
    told = escape(_measured(evidence))
    first = (f"{evidence.answer} ({evidence.role})", evidence.signal, evidence.says)
    return (*map(escape, first), told + drawn, escape(wording.origin(evidence)))


def _course(signal: str, finding: Finding, store: Store) -> str:
    stretches = []
    for name in (finding.baseline, finding.current):
        if name and any(one.name == name for one in store.segments):
            stretches.append(_read(signal, store, store.segment(name)))
    return _polyline(signal, [stretch for stretch in stretches if stretch])


def _read(signal: str, store: Store, segment: Segment) -> list[Point]:
    """Read a signal in as many pieces of a segment as its samples allow."""
    for count in _PIECES:
        cuts = edges(segment.start_s, segment.end_s, count)
        parts = [replace(segment, start_s=start, end_s=end) for start, end in pairwise(cuts)]
        read = [(part.start_s, signals.compute(signal, store, part)) for part in parts]
        told = [(t, reading.value) for t, reading in read if isinstance(reading, Reading)]
        if len(told) >= count / 2:
            return told
    return []


def _measured(evidence: Evidence) -> str:
    numbers = wording.numbers(evidence)
    return numbers + (f"; {evidence.remedy}" if evidence.value is None and evidence.remedy else "")


def _advice(finding: Finding) -> Iterator[str]:
    if finding.gain is not None:
        yield f"worth: {wording.worth(finding.gain)}"
    plan = finding.experiment
    if plan is not None:
        tried = finding.verdict in wording.TRIED
        yield f"{'tried' if tried else 'next'}: {plan.change}" + (f" ({plan.run})" if plan.run else "")
        for one in plan.predict:
            yield f"expect {one.signal} {one.says}" + (f": {one.answer}, {wording.numbers(one)}" if tried else "")
    yield from (f"fix: {fix}" for fix in finding.fix)
    if finding.notes:
        yield f"notes: {finding.notes}"


def _rest(diagnosis: Diagnosis) -> Iterator[str]:
    waiting, silent = wording.undecided(diagnosis), wording.silent(diagnosis)
    if waiting:
        yield "<h2>Could not be judged</h2>"
        yield from _list(f"{one.title} ({one.id})" + (f": {one.notes}" if one.notes else "") for one in waiting)
    if diagnosis.unknown:
        yield "<h2>Could not be known</h2>"
        rows = [(one.signal, one.reason, one.remedy) for one in diagnosis.unknown]
        yield from _table(("signal", "why", "what would supply it"), rows)
    if silent:
        yield "<h2>Checked, and not there</h2>"
        yield from _list(f"{one.title} ({one.id})" for one in silent)


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]], *, raw: bool = False) -> Iterator[str]:
    if not rows:
        return
    yield "<table><tr>" + "".join(f"<th>{escape(one)}</th>" for one in head) + "</tr>"
    for row in rows:
        yield "<tr>" + "".join(f"<td>{one if raw else escape(one)}</td>" for one in row) + "</tr>"
    yield "</table>"


def _list(items: Iterable[str]) -> Iterator[str]:
    told = [f"<li>{escape(one)}</li>" for one in items]
    if told:
        yield "<ul>" + "".join(told) + "</ul>"


_WIDE, _HIGH, _PAD = 360, 46, 8
Point = tuple[float, float]


def _interval(evidence: Evidence) -> str:
    """Return baseline and current value with their intervals on one scale; empty where there is no value."""
    if evidence.value is None or not math.isfinite(evidence.value):
        return ""
    rows = [("now", evidence.value, evidence.error or 0.0)]
    if evidence.baseline is not None and math.isfinite(evidence.baseline):
        rows.insert(0, ("before", evidence.baseline, evidence.baseline_error or 0.0))
    low = min(0.0, *(value - error for _, value, error in rows))
    high = max(value + error for _, value, error in rows)
    span = (high - low) or 1.0
    parts = [_bar(at, name, value, error, low, span) for at, (name, value, error) in enumerate(rows)]
    height = 18 * len(rows) + 4
    label = f"{evidence.signal}: {', '.join(f'{name} {value:.4g}' for name, value, _ in rows)}"
    return _image(height, label, "".join(parts))


def _bar(at: int, name: str, value: float, error: float, low: float, span: float) -> str:
    y = 11 + 18 * at
    left, right, here = (60 + (_WIDE - 70) * (one - low) / span for one in (value - error, value + error, value))
    return (
        f'<text x="0" y="{y + 4}">{name}</text>'
        f'<line class="{name}" x1="{left:.1f}" y1="{y}" x2="{right:.1f}" y2="{y}"/>'
        f'<circle class="{name}" cx="{here:.1f}" cy="{y}" r="4"/>'
    )


def _polyline(signal: str, stretches: Sequence[Sequence[Point]]) -> str:
    """Return a signal over time, one line for each segment; empty where it was read at fewer than two times."""
    points = [point for stretch in stretches for point in stretch]
    if len(points) < 2:
        return ""
    first, last = min(t for t, _ in points), max(t for t, _ in points)
    low, high = min(0.0, *(value for _, value in points)), max(value for _, value in points)
    lines = []
    for at, stretch in enumerate(stretches):
        told = " ".join(
            f"{_PAD + (_WIDE - 2 * _PAD) * (t - first) / ((last - first) or 1):.1f},"
            f"{_HIGH - _PAD - (_HIGH - 2 * _PAD) * (value - low) / ((high - low) or 1):.1f}"
            for t, value in stretch
        )
        lines.append(f'<polyline class="{"now" if at == len(stretches) - 1 else "before"}" points="{told}"/>')
    return _image(_HIGH, f"{signal} over time, up to {high:.4g}", "".join(lines))


def _image(height: int, label: str, inner: str) -> str:
    name = escape(label, quote=True)
    size = f'viewBox="0 0 {_WIDE} {height}" width="{_WIDE}" height="{height}"'
    return f'<svg {size} role="img" aria-label="{name}">{inner}</svg>'
