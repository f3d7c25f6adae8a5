"""JUnit XML, for CI that counts tests: a finding is a failure, what could not be judged is skipped with the reason."""

from __future__ import annotations

from collections.abc import Iterator
from xml.sax.saxutils import escape, quoteattr

from kvscope import wording
from kvscope.finding import Diagnosis, Finding, Verdict, fails, unanswered


def render(diagnosis: Diagnosis, fail_on: Verdict = "likely") -> str:
    """Return one test suite: a case for each finding, and for each signal that nobody supplied.

    A finding fails where it would end the command in exit code 1; a weaker one passes, and says what it is. A target
    that is down, or of which nothing could be judged, is an error: the command ends in 3 or 4, and nothing passed.
    """
    broken = unanswered(diagnosis)
    cases = [*(_case(one, fails(one, fail_on)) for one in diagnosis.findings), *_unknown(diagnosis)]
    if broken:
        cases.append(
            f'<testcase classname="target" name="target"><error message={quoteattr(_clean(broken))}/></testcase>'
        )
    failures = sum(fails(one, fail_on) for one in diagnosis.findings)
    skipped = sum(one.verdict == "needs_data" for one in diagnosis.findings) + len(diagnosis.unknown)
    name = quoteattr(f"kvscope {_clean(wording.what(diagnosis.source))}")
    counts = f'tests="{len(cases)}" failures="{failures}" skipped="{skipped}" errors="{int(bool(broken))}"'
    head = f"<testsuite name={name} {counts}>"
    return "\n".join(['<?xml version="1.0" encoding="UTF-8"?>', head, *cases, "</testsuite>"])


def _case(finding: Finding, failed: bool) -> str:
    inner = ""
    if failed:
        message = quoteattr(_clean(f"{wording.WORDS[finding.verdict]}: {finding.headline}"))
        inner = (
            f"<failure type={quoteattr(finding.verdict)} message={message}>{escape(_clean(_told(finding)))}</failure>"
        )
    elif finding.verdict not in ("needs_data", "silent"):
        inner = f"<system-out>{escape(_clean(f'{wording.WORDS[finding.verdict]}: {finding.headline}'))}</system-out>"
    elif finding.verdict == "needs_data":
        inner = f"<skipped message={quoteattr(_clean(finding.notes or 'it cannot be told'))}/>"
    return f"<testcase classname={quoteattr(finding.slug)} name={quoteattr(finding.id)}>{inner}</testcase>"


def _told(finding: Finding) -> str:
    lines = [f"cause: {finding.cause}"]
    lines += [f"{one.answer} {one.signal} {one.says}: {wording.numbers(one)}" for one in finding.evidence]
    lines += [f"{one.state}: {one.says} ({wording.numbers(one.evidence)})" for one in finding.rivals]
    return "\n".join([*lines, *(f"fix: {fix}" for fix in finding.fix)])


def _unknown(diagnosis: Diagnosis) -> Iterator[str]:
    for one in diagnosis.unknown:
        why = quoteattr(_clean(f"{one.reason}; {one.remedy}"))
        yield f'<testcase classname="signal" name={quoteattr(one.signal)}><skipped message={why}/></testcase>'


def _clean(text: str) -> str:
    """Leave out what XML cannot carry."""
    return "".join(char for char in text if char in "\n\t" or ord(char) >= 32)
