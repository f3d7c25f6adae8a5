"""The account in words: the same lines head every report and the first screen."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kvscope.account.account import INSIDE, Account, Shares
from kvscope.account.change import Change
from kvscope.signals.floor import TokenLevel

TITLE = "What limits this engine now"
SHOWN = 0.005
"""Parts below half a percent are not named."""
PART_WORDS = {
    "token_budget": "token budget",
    "prefill_between": "prefill between tokens",
    "below_bound": "below the bound",
    "unknown": "not told",
    "kv": "KV read",
}
_ANSWERS = {
    "idle": "nothing: it stands idle",
    "demand": "nothing inside it: clients send no more",
    "cap": "the cap on running requests",
    "pool": "the KV pool",
    "token_budget": "the tokens a step may compute: prompts use them up",
    "deferred": "requests wait for something else than capacity",
    "rejected": "the door: requests are turned away",
    "prefill": "prefill between tokens",
    "weights": "reading weights",
    "kv": "reading KV",
    "index": "the sparse index",
    "host": "the host",
    "unknown": "not to be told",
}
_NEXT = {"pool": "the KV pool", "cap": "the cap again", "demand": "clients", "prefill": "prefill"}
_KNOWN = {
    "counted": "counted",
    "sampled": "timed in some steps, the others taken alike",
    "inferred": "inferred",
    "physics": "least times",
}


@dataclass(frozen=True, slots=True)
class Line:
    """One line: what it is about, what it says, how that is known."""

    label: str
    text: str
    how: str = ""


def headline(account: Account) -> str:
    """Answer the question in one line."""
    limit = account.limit
    text = _ANSWERS[limit.name]
    numbers = [text for text in (_running(account), _pool(account)) if text]
    share = f" ({percent(limit.share)} of the time)" if limit.share and account.levels["admission"] else ""
    return text + share + (f"; {', '.join(numbers)}" if numbers else "")


def lines(account: Account) -> Iterator[Line]:
    """Return the headline, one line a level, what twice the room would bring, and a fleet's replicas."""
    yield Line("limit", headline(account), _KNOWN.get(account.limit.known, ""))
    for level, label in (("admission", "time"), ("requests", "requests"), ("engine", "engine")):
        shares = account.levels[level]
        if shares is not None:
            near = ", ± 15 points" if level == "engine" and account.known[level] == "inferred" else ""
            yield Line(label, parts(shares), _KNOWN.get(account.known[level], "") + near)
    if account.token is not None and account.token.shares is not None:
        yield Line("a token", _token(account.token), ", ".join((_KNOWN[account.token.known], *account.sources)))
    if account.ahead is not None:
        more = f"at most {_signed(account.ahead.at_most - 1)} tokens a second"
        yield Line("ahead", f"{account.ahead.change}: {more}, then {_NEXT[account.ahead.then]}", account.ahead.how)
    for name, one in account.replicas.items():
        yield Line("replica", f"{name}: {headline(one)}", _KNOWN.get(one.limit.known, ""))


def worst_replica(account: Account) -> str | None:
    """Return which replica is held back longest by a limit of its own, and by which; None where none is."""
    held = [(one.limit.share, name, one) for name, one in account.replicas.items() if one.limit.name in INSIDE]
    if not held:
        return None
    _, name, one = max(held, key=lambda row: row[:2])
    return f"{name}: {headline(one)}"


def lacking(account: Account) -> Iterator[Line]:
    """Return what nobody tells, with what would."""
    for reason, remedy in dict.fromkeys((lack.reason, lack.remedy) for lack in account.missing):
        yield Line("not told", reason + (f"; to know it: {remedy}" if remedy else ""))


def parts(shares: Shares) -> str:
    """Return the parts, largest first: ``demand 90 %, idle 9 %``."""
    named = sorted(((share, part) for part, share in shares.items() if share >= SHOWN), reverse=True)
    return ", ".join(f"{PART_WORDS.get(part, part)} {percent(share)}" for share, part in named)


def percent(share: float) -> str:
    """Return a share as a whole number of percent."""
    return f"{100 * share:.0f} %"


def seconds(value: float) -> str:
    """Return a time with three digits: 29.2 ms."""
    return f"{value:.3g} s" if value >= 1 else f"{1e3 * value:.3g} ms"


def _token(token: TokenLevel) -> str:
    text = f"{seconds(token.token_s)}: {parts(token.shares or {})}"
    floor = token.floor
    if floor is None:
        return text
    kv = f"KV ≥ {seconds(floor.kv_s[0])}"
    if floor.kv_s[1] > 1.05 * floor.kv_s[0]:
        kv += f" (each block once) to {seconds(floor.kv_s[1])} (each request its own)"
    index = f", index ≥ {seconds(floor.index_s)}" if floor.index_s else ""
    weights = f"weights ≥ {seconds(floor.weights_s)}, " if floor.weights_s else ""
    if floor.unsplit_s:
        weights, kv = "", f"reading ≥ {seconds(floor.unsplit_s)}, weights and KV together"
    return (
        f"{text}; a step of {seconds(token.step_s)} cannot be faster than {weights}{kv}{index}: a bound, no prediction"
    )


def _running(account: Account) -> str:
    running, waiting = account.vitals.get("running_requests"), account.vitals.get("waiting_requests")
    if running is None:
        return ""
    text = f"{_count(running)} run"
    return text if waiting is None else f"{text}, {'none waits' if waiting < 0.05 else f'{_count(waiting)} wait'}"


def _pool(account: Account) -> str:
    usage, holds = account.vitals.get("kv_usage_ratio"), account.headroom.get("pool_fits_requests")
    if usage is None:
        return ""
    return f"{percent(usage)} of the pool is used" + (f" (it would hold {_count(holds)})" if holds else "")


def _count(value: float) -> str:
    return f"{value:.3g}" if value < 1000 else f"{value:.0f}"


_VERDICTS = {
    "as_physics": "the time fell as the bytes did",
    "no_matter": "KV was never a large enough part of a step for its bytes to show",
    "hidden": "the time stood still: something else than KV takes the step (the host, graphs that are off)",
    "form_costs": "the new KV form costs more than it saves",
    "cannot_tell": "what that means cannot be told",
}
CHANGE_TITLE = "Before and after, by physics"


def change_line(change: Change) -> str:
    """Return in one line what a change of KV bytes brought, and what it should have."""
    least, most = change.expected
    reach = f"{abs(least) * 100:.0f} to " if abs(least - most) >= 0.005 else ""
    expected = f"{reach}{abs(most) * 100:.0f} % less"
    bytes_, step = _signed(change.kv_bytes), _signed(change.measured)
    return f"KV bytes {bytes_} a token, a step {step} (physics: {expected}): {_VERDICTS[change.verdict]}"


def change_lines(change: Change) -> Iterator[Line]:
    """Return what was expected, what was measured, and what that means."""
    least, most = change.expected
    reach = f"{abs(least) * 100:.0f} to " if abs(least - most) >= 0.005 else ""
    band = f"{reach}{abs(most) * 100:.0f} % less" if least else f"up to {abs(most) * 100:.0f} % less"
    yield Line("KV bytes", f"{_signed(change.kv_bytes)} a token", change.kv_bytes_from)
    yield Line("physics", f"a step should take {band}", ", ".join(change.sources))
    told = [f"a step with no prompt beside it {_signed(change.measured)}"]
    if change.token is not None:
        told.append(f"mean time per token {_signed(change.token)}")
    if change.throughput is not None:
        told.append(f"tokens a second while busy {_signed(change.throughput)}")
    yield Line("measured", ", ".join(told))
    factor = ""
    if change.factor is not None:
        low, high = change.factor
        reach = f"at least {low:.2f}" if high is None else f"{low:.2f}"
        reach += f" to {high:.2f}" if high is not None and high - low > 0.005 else ""
        factor = f": {reach} times fewer KV bytes a second than before"
    yield Line("so", _VERDICTS[change.verdict] + factor)
    if change.parts:
        moved = sorted(change.parts.items(), key=lambda part: -abs(part[1][1] - part[1][0]))
        text = ", ".join(
            f"{PART_WORDS.get(part, part)} {seconds(was)} → {seconds(now)}" for part, (was, now) in moved[:3]
        )
        yield Line("where", text, "of a token")
    elif change.verdict == "form_costs":
        yield Line(
            "where", "kernel, conversion or gather is not to be told from outside; a profiler trace of each tells"
        )
    for text in change.excluded:
        yield Line("excluded", text)
    for text in change.open:
        yield Line("open", text)


def _signed(share: float) -> str:
    return f"{100 * share:+.1f} %"
