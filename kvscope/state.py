"""How an engine does, in a word and a sentence: told apart so that nobody is reassured by what was never looked at."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import Literal

from kvscope import signals
from kvscope.account import words
from kvscope.coverage import LONGER
from kvscope.finding import NOTICE, Coverage, Diagnosis, Evidence, Finding, Near
from kvscope.format import quantity
from kvscope.signals import replicas, significance
from kvscope.signals.reading import Reading
from kvscope.slo import Slo
from kvscope.store import Segment, Store
from kvscope.vitals import vitals
from probes.catalog import REPLICA

Kind = Literal["down", "reading", "idle", "found", "unnamed", "unjudged", "healthy"]
UNNAMED = "distress-without-cause"
"""Id of the finding that says: it is not well, and no rule names the cause."""
_NAMED = ("confirmed", "likely", "possible")
IDLE = 0.05
"""Fewer running requests than this, on average, are no load."""
TURNED_AWAY = 0.01
"""From this share of all requests on, being turned away is distress."""
_MOST_NEAR = 3


@dataclass(frozen=True, slots=True)
class State:
    """``kind`` decides the colour and the sign; ``says`` is what a person reads first."""

    kind: Kind
    says: str


def state_of(found: Diagnosis | None, down: str = "", waiting: str = "") -> State:
    """Return the state. ``down``, ``waiting``: why nothing comes any more, or yet; empty when it does."""
    down = down or (found.down if found is not None else "")
    if down:
        return State("down", down)
    if found is None or waiting:
        return State("reading", waiting or "Reading: nothing was judged yet")
    first = next((one for one in found.findings if one.verdict in _NAMED and one.triage != NOTICE), None)
    if first is not None:
        kind: Kind = "unnamed" if first.id == UNNAMED else "found"
        return State(kind, first.headline)
    reach = found.coverage or Coverage(0, 0)
    if reach.lights and reach.lights[0].way.startswith(LONGER) and len(reach.lights[0].rules) >= reach.judged:
        return State("reading", f"Too early to tell: {len(reach.lights[0].rules)} rules need more samples")
    if not reach.judged:
        return State("unjudged", f"Nothing could be judged: none of {reach.rules} rules has what it needs")
    if _load(found) is not None and (_load(found) or 0.0) < IDLE:
        return State("idle", f"No load: no request runs or waits; {_judged(reach)}")
    return State("healthy", f"No fault seen: {_judged(reach)}")


def unjudged(found: Diagnosis) -> str:
    """One line of what could not be judged, and what would let most of it; empty where everything was."""
    reach = found.coverage
    if reach is None or reach.judged >= reach.rules:
        return ""
    text = f"{reach.rules - reach.judged} of {reach.rules} rules could not be judged"
    if reach.lights:
        first = reach.lights[0]
        text += f"; {first.way} would let {len(first.rules)} speak"
    return text


def near_line(near: Near) -> str:
    """How far a rule is from firing."""
    unit = near.unit if near.unit in ("s", "B", "ratio") else ""
    shown, bound = quantity(near.value, unit), quantity(near.bound, unit)
    return f"{near.title} ({near.id}): {near.signal} is {shown}, it fires at {bound}"


def complete(found: Diagnosis, store: Store, slo: Slo | None = None) -> Diagnosis:
    """Return the diagnosis with its vital signs, and with distress that no rule names a cause of as a finding."""
    if not found.segments:
        return found
    segment = _segment(found, store)
    cap = found.account.headroom.get("may_run") if found.account else None
    found = replace(found, vitals=vitals(lambda name: signals.compute(name, store, segment), slo, cap))
    found = replace(found, findings=tuple(_placed(one, store, segment) for one in found.findings))
    if any(one.verdict in _NAMED and one.triage != NOTICE for one in found.findings):
        return found
    evidence = _distress(found, slo or {})
    if not evidence:
        return found
    reach = found.coverage or Coverage(0, 0)
    limit = f"what limits it is {words.headline(found.account)}" if found.account else "what limits it is not told"
    first = _FIRST.get(found.account.limit.name, "") if found.account else ""
    fix = [_TRACES] if evidence[0].check == "slower" else []
    fix += [first] if first else []
    fix += [f"look at {near_line(near)}" for near in reach.near[:_MOST_NEAR]]
    fix += [f"let {len(light.rules)} more rules speak: {light.way}" for light in reach.lights[:_MOST_NEAR]]
    unnamed = Finding(
        id=UNNAMED,
        title=_TITLES[evidence[0].check],
        verdict="likely",
        slug=UNNAMED,
        cause=f"no rule names the cause ({_judged(reach)}); {limit}",
        evidence=evidence,
        fix=tuple(fix),
        current=segment.name,
        triage="load",
    )
    return replace(found, findings=(unnamed, *found.findings))


_MOST_REPLICAS = 100
"""Of a larger fleet every figure of every replica would be too much to read for each finding."""


def _placed(finding: Finding, store: Store, segment: Segment) -> Finding:
    """Return the finding with the replicas whose own figures show its symptom, where it is some of them only."""
    fleet = replicas.names(store)
    symptom = next((one for one in finding.evidence if one.role == "symptom" and one.answer == "yes"), None)
    bound = re.match(r"([<>]=) (\S+?)%?(?: |$)", symptom.says) if symptom else None
    if finding.verdict not in _NAMED or symptom is None or not 1 < len(fleet) <= _MOST_REPLICAS:
        return finding
    told = tuple(name for name in fleet if f" of {name}: " in symptom.source)
    if told:
        return replace(finding, replicas=told)
    if bound is None:
        return finding
    own = signals.cells(symptom.signal, store, segment, REPLICA)
    least, sign = float(bound[2]), 1 if bound[1] == ">=" else -1
    shown = tuple(name for name, one in own.items() if isinstance(one, Reading) and sign * (one.value - least) >= 0)
    return replace(finding, replicas=shown) if 0 < len(shown) < len(fleet) else finding


def _segment(found: Diagnosis, store: Store) -> Segment:
    """The segment that was judged: the account's, else the newest."""
    return store.segment(found.account.segment if found.account else found.segments[-1].name)


def readings(found: Diagnosis) -> dict[str, float]:
    """Return signal → value over the segment that was judged."""
    name = found.account.segment if found.account else found.segments[-1].name if found.segments else ""
    summary = next((one for one in reversed(found.segments) if one.name == name), None)
    return {signal: value for signal, (value, _, _) in summary.signals.items()} if summary else {}


_FIRST = {
    "cap": "raise the limit on running requests step by step while tokens per second still rise (vLLM --max-num-seqs)",
    "pool": "give KV more memory or store it in fewer bits (vLLM --gpu-memory-utilization, --kv-cache-dtype fp8), "
    "or send fewer, shorter requests at once",
    "token_budget": "let a step compute more prompt tokens (vLLM --max-num-batched-tokens), or prefill elsewhere",
    "rejected": "raise the limit on queued requests, or add a replica: what is turned away was never queued",
}
"""What to change first where no rule says more than which limit holds requests back."""
_TITLES = {
    "queue": "Requests wait longer than they are served; no rule says why",
    "turned-away": "Requests are turned away; no rule says why",
    "promise": "A latency promise is missed; no rule says why",
    "slower": "A token takes longer than before by more than its load; no rule says why",
}
_TRACES = "take a trace of 20 steps on both sides (kvscope profile URL) and compare the attention kernels' names"
SLOWER = 0.10
"""From this growth of a token's time on, beyond what a grown load can ask for, it is distress."""
_TOKEN_TIMES = ("step_pure_s", "tpot_mean_s", "tpot_p50_s", "itl_mean_s")
_BATCHES, _LENGTHS = ("decode_batch", "running_requests"), ("prompt_tokens_mean",)


def _distress(found: Diagnosis, slo: Slo) -> tuple[Evidence, ...]:
    """What is not well.

    By Little's law requests spend more time waiting than being served where more of them wait than run.
    """
    read = found.segments[-1].signals
    running, waiting = read.get("running_requests"), read.get("waiting_requests")
    evidence = []
    if running and waiting and waiting[0] - waiting[1] >= max(running[0], 1.0):
        says = f">= running_requests ({running[0]:.3g})"
        evidence.append(Evidence("queue", "waiting_requests", says, "yes", *waiting, role="symptom"))
    finished, turned = read.get("requests_per_s"), read.get("rejections_per_s")
    if finished and turned and turned[0] > TURNED_AWAY * (turned[0] + finished[0]):
        says = f"> {TURNED_AWAY:.0%} of all requests"
        evidence.append(Evidence("turned-away", "rejections_per_s", says, "yes", *turned, role="symptom"))
    for name, promise in slo.items():
        p95 = read.get(f"{name}_p95_s")
        if p95 and p95[0] > promise:
            says = f"> {quantity(promise, 's')}, as promised"
            evidence.append(Evidence("promise", f"{name}_p95_s", says, "yes", *p95, role="symptom"))
    return (*evidence, *_slower(found))


def _slower(found: Diagnosis) -> tuple[Evidence, ...]:
    """A token that takes longer than in the baseline by more than its load.

    A step lengthens at most in proportion to the requests it carries and to their length; where one of both is not
    told nothing is said.
    """
    if found.account is None or found.account_before is None:
        return ()
    by_name = {one.name: one.signals for one in found.segments}
    now, before = (by_name.get(one.segment, {}) for one in (found.account, found.account_before))
    more = [_growth(names, now, before) for names in (_BATCHES, _LENGTHS)]
    name = next((one for one in _TOKEN_TIMES if one in now and before.get(one, (0.0,))[0] > 0), "")
    if None in more or not name:
        return ()
    load = math.prod(max(1.0, one or 1.0) for one in more)
    taken, usual = Reading(*now[name]), Reading(*before[name])
    grew = significance.change(taken, usual)
    if 1 + grew.size - 3 * grew.error < (1 + SLOWER) * load:
        return ()
    says = f">= {(1 + SLOWER) * load - 1:.0%} more, which the load could ask for at most"
    seen = Evidence("slower", name, says, "yes", taken.value, taken.error, taken.unit, role="symptom")
    return (replace(seen, baseline=usual.value, baseline_error=usual.error, change=grew.size, change_error=grew.error),)


_Read = dict[str, tuple[float, float, str]]


def _growth(names: tuple[str, ...], now: _Read, before: _Read) -> float | None:
    """By what factor the first of these signals that both sides tell grew; None where there is none."""
    name = next((one for one in names if one in now and before.get(one, (0.0,))[0] > 0), None)
    return now[name][0] / before[name][0] if name else None


def _load(found: Diagnosis) -> float | None:
    """Requests that run or wait, on average; None where nobody says."""
    read = found.segments[-1].signals if found.segments else {}
    known = [read[name][0] for name in ("running_requests", "waiting_requests") if name in read]
    return sum(known) if known else None


def _judged(reach: Coverage) -> str:
    near = f", {len(reach.near)} of them near" if reach.near else ""
    return f"{reach.judged} of {reach.rules} rules could be judged{near}"
