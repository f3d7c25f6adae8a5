"""Ask a server the same prompts twice, and say whether its answers changed more than they differ by themselves.

FILE has a prompt a line: text, or {"prompt": …} (text or token ids) or {"messages": […]}; with response_format the
answer is to be JSON.
First `bench answers URL --prompts FILE -o before.json`, then after the change the same with --against before.json (or
another server's address, then both are asked). It says equal, different, or cannot tell. Of prompts and answers digests
are kept, never text.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import sqrt
from pathlib import Path
from statistics import fmean, stdev
from typing import Literal

from kvscope.bench.client.http import address_of
from kvscope.bench.client.replies import Prompt, Reply, ask_all, digest_of, read_prompts
from kvscope.bench.client.server import Server, find_server
from kvscope.errors import NotEnoughData, UsageError
from kvscope.progress import Line
from kvscope.result.result import Cell, Quantity, Result, Table
from probes import border

Verdict = Literal["equal", "different", "cannot tell"]
Pair = tuple[Sequence[Reply], Sequence[Reply]]
"""The answers of the two rounds."""
SHUFFLES = 2_000
SURE = 0.003
"""As unlikely as three standard errors."""
ERRORS = 3.0


def configure(parser: argparse.ArgumentParser) -> None:
    """The server, the prompts, what to compare with."""
    add = parser.add_argument
    add("url", metavar="URL", help="an OpenAI-compatible server, http://host:port")
    add("--prompts", metavar="FILE", required=True, help="a prompt a line, as text or JSON")
    add("--against", metavar="FILE|URL", help="an earlier result of this bench, or a server to ask too")
    add("--tokens", type=int, default=64, metavar="N", help="of an answer, at most (64)")
    add("--clients", type=int, default=1, metavar="N", help="requests outstanding (1: no batch but the server's own)")
    add("--within", type=float, default=5.0, metavar="PERCENT", help="equal up to this loss of agreement (5)")
    add("--model", default="", metavar="NAME", help="model to ask for (the first that is served)")
    add("--key-env", metavar="NAME", help="environment variable with the server's key")
    add("--timeout", type=float, default=600.0, metavar="S", help="give a request up after this long (600)")


@dataclass(frozen=True, slots=True)
class Comparison:
    """What two pairs of rounds say of each other. Shares of 1; errors are three standard errors over the prompts."""

    verdict: Verdict
    own: float
    """Agreement of the baseline's two rounds."""
    across: float
    """Agreement between the two sides."""
    lost: float
    lost_error: float
    chance: float
    """How often shuffling the sides gives as great a loss."""
    says: str


def measure(options: argparse.Namespace) -> Result:
    """Ask, compare, return the result; it fails where the answers are different."""
    for name, least in (("tokens", 1), ("clients", 1)):
        if getattr(options, name) < least:
            raise UsageError(f"--{name} {getattr(options, name)}: expected {least} or more")
    prompts = read_prompts(Path(options.prompts))
    server = _server(options, options.url)
    other, kept = _other(options, prompts)
    now, before = asyncio.run(_rounds(options, prompts, server, other))
    before = before or kept
    extra = {"prompts": digest_of(prompts), "replies": [[one.to_json() for one in side] for side in now]}
    tags = {"url": server.address.text, "model": server.model}
    settings = {"prompts": len(prompts), "tokens": options.tokens, "clients": options.clients}
    if before is None:
        own = fmean(agreement(a, b) for a, b in zip(*now, strict=True))
        says = (f"asked twice, {_same(now)} of {len(prompts)} answers are the same; --against compares with this",)
        quantities = (Quantity("agreement_own", own, "ratio", None, "higher"),)
        return Result("answers", "Answers to the same prompts", tags, settings, quantities, says=says, extra=extra)
    found = compare(before, now, options.within / 100.0)
    return Result(
        "answers",
        "Answers before and after",
        tags,
        settings,
        _quantities(found, before, now),
        (_table(before, now),),
        says=(f"{found.verdict}: {found.says}",),
        extra={**extra, "verdict": found.verdict},
        failed=found.verdict == "different",
        untold=found.verdict == "cannot tell",
    )


def agreement(a: Reply, b: Reply) -> float:
    """Share of the longer answer up to where the two first differ; 1 where they are the same."""
    longest = max(len(a.digests), len(b.digests))
    return diverges(a, b) / longest if longest else 1.0


def diverges(a: Reply, b: Reply) -> int:
    """Return the token at which two answers first differ: their common length where they do not."""
    pairs = enumerate(zip(a.digests, b.digests, strict=False))
    return next((n for n, (x, y) in pairs if x != y), min(len(a.digests), len(b.digests)))


def compare(before: Pair, now: Pair, within: float) -> Comparison:
    """Judge whether answers lost more agreement across the change than within each side.

    Of each prompt there are four answers, two a side. The loss is the agreement within the sides less that between them
    (an energy distance: zero on average where nothing changed). Shuffling which two make a side gives what chance does.
    """
    fours = list(zip(*before, *now, strict=True))
    losses = [_losses(*four) for four in fours]
    lost = fmean(one[0] for one in losses)
    count = len(losses)
    spread = stdev([one[0] for one in losses]) if count > 1 else 0.0
    # Where none differed, as many as three in ``count`` may without having been seen (95 %).
    error = max(ERRORS * spread / sqrt(count), 3.0 / count)
    chance = _chance(losses)
    own = fmean(agreement(a, b) for a, b, _, _ in fours)
    across = fmean(fmean((agreement(a, c), agreement(a, d), agreement(b, c), agreement(b, d))) for a, b, c, d in fours)
    if lost > 0 and chance <= SURE:
        verdict: Verdict = "different"
        says = f"{lost:.1%} of agreement lost beyond what the server's answers differ by themselves ({1 - own:.1%})"
    elif lost + error <= within:
        verdict = "equal"
        says = f"at most {max(0.0, lost + error):.1%} of agreement lost, {within:.1%} allowed"
    else:
        verdict = "cannot tell"
        says = f"{lost:.1%} ± {error:.1%} of agreement lost, {within:.1%} allowed; {_more(spread, count, within)}"
    return Comparison(verdict, own, across, lost, error, chance, says)


def _more(spread: float, count: int, within: float) -> str:
    """How many prompts would tell."""
    needed = max((ERRORS * spread / within) ** 2, 3.0 / within) if within > 0 else 0.0
    return f"about {max(needed, count + 1):.0f} prompts would tell" if needed else "no number of prompts shows equality"


def _losses(a: Reply, b: Reply, c: Reply, d: Reply) -> tuple[float, float, float]:
    """The loss as the sides are, and as each other way of making two sides of the four would have it."""
    pairs = [agreement(a, b) + agreement(c, d), agreement(a, c) + agreement(b, d), agreement(a, d) + agreement(b, c)]
    whole = sum(pairs)
    first, second, third = (one / 2 - (whole - one) / 4 for one in pairs)
    return first, second, third


def _chance(losses: Sequence[tuple[float, float, float]]) -> float:
    """How often sides shuffled anew for every prompt lose as much on average; exact enough for SURE."""
    moved = [one for one in losses if len(set(one)) > 1]
    seen, rng = sum(one[0] for one in moved), random.Random(0)
    if not moved:
        return 1.0
    above = sum(sum(rng.choice(one) for one in moved) >= seen - 1e-12 for _ in range(SHUFFLES))
    return (above + 1) / (SHUFFLES + 1)


def _quantities(found: Comparison, before: Pair, now: Pair) -> tuple[Quantity, ...]:
    kept = [
        Quantity("agreement_own", found.own, "ratio", None, "higher"),
        Quantity("agreement_across", found.across, "ratio", None, "higher"),
        Quantity("agreement_lost", found.lost, "ratio", found.lost_error, "lower"),
        Quantity("chance", found.chance, "ratio"),
    ]
    for name, pairs in (("logprob_distance_own", [before]), ("logprob_distance", _across(before, now))):
        distances = [one for pair in pairs for a, b in zip(*pair, strict=True) if (one := distance(a, b)) is not None]
        if distances:
            kept.append(Quantity(name, fmean(distances), "", None, "lower"))
    for name, side in (("json_valid_before", before), ("json_valid", now)):
        valid = [one.valid for replies in side for one in replies if one.valid is not None]
        if valid:
            kept.append(Quantity(name, fmean(valid), "ratio", None, "higher"))
    return tuple(kept)


def distance(a: Reply, b: Reply) -> float | None:
    """Mean absolute difference of log probabilities up to where two answers differ; None where nobody tells them."""
    common = list(zip(a.logprobs, b.logprobs, strict=False))[: diverges(a, b)]
    return fmean(abs(x - y) for x, y in common) if common else None


def _across(before: Pair, now: Pair) -> list[Pair]:
    return [(x, y) for x in before for y in now]


def _same(pair: Pair) -> int:
    return sum(a.digests == b.digests for a, b in zip(*pair, strict=True))


def _table(before: Pair, now: Pair) -> Table:
    """Answers that are the same, and where those that are not first differ."""
    rows: list[tuple[Cell, ...]] = []
    for title, pairs in (("before", [before]), ("after", [now]), ("before and after", _across(before, now))):
        both = [two for pair in pairs for two in zip(*pair, strict=True)]
        apart = sorted(diverges(a, b) + 1 for a, b in both if a.digests != b.digests)
        rows.append((title, len(both), len(both) - len(apart), apart[len(apart) // 2] if apart else None))
    columns = ("rounds", "pairs", "the same", "first differ at token (median)")
    return Table("Two answers to one prompt", columns, ("", "", "", ""), tuple(rows))


def _server(options: argparse.Namespace, url: str) -> Server:
    key = os.environ.get(options.key_env, "") if options.key_env else ""
    server = asyncio.run(find_server(address_of(url), options.model, key))
    return replace(server, timeout_s=options.timeout)


def _other(options: argparse.Namespace, prompts: Sequence[Prompt]) -> tuple[Server | None, Pair | None]:
    """Return the server to ask too, or an earlier result's answers. UsageError where those are to other prompts."""
    if not options.against:
        return None, None
    path = Path(options.against)
    if not path.exists() and ("://" in options.against or options.against.rpartition(":")[2].isdecimal()):
        return _server(options, options.against), None
    try:
        found = border.mapping(border.document(border.read_file(path, 512 << 20), str(path)), str(path))
        first, second = ([Reply.from_json(one) for one in side] for side in found["replies"])
        digest, settings = found["prompts"], border.mapping(found["settings"], "settings")
    except (OSError, ValueError, KeyError, TypeError, border.Refused) as error:
        said = getattr(error, "strerror", None) or error
        raise UsageError(f"--against {path}: {said}; expected a result of `bench answers`, or an address") from None
    asked = digest_of(prompts)
    if digest != asked or not len(first) == len(second) == len(prompts):
        raise UsageError(f"--against {path}: it asked other prompts (digest {border.shown(digest)}, here {asked})")
    if settings.get("tokens") != options.tokens:
        raise UsageError(f"--against {path}: answers of {settings.get('tokens')} tokens; give --tokens the same")
    return None, (first, second)


async def _rounds(
    options: argparse.Namespace, prompts: Sequence[Prompt], server: Server, other: Server | None
) -> tuple[Pair, Pair | None]:
    """Ask everything twice, the two servers in turn, so that what drifts meanwhile is in both."""
    servers = [one for one in (server, other) if one is not None]
    line, done, whole = Line(), 0, 2 * len(prompts) * len(servers)

    def tell() -> None:
        nonlocal done
        done += 1
        line.show(f"asking … {done} of {whole}")

    found: dict[int, list[list[Reply]]] = {index: [] for index in range(len(servers))}
    try:
        for _ in range(2):
            for index, one in enumerate(servers):
                found[index].append(await ask_all(one, prompts, options.tokens, options.clients, tell))
    finally:
        line.wipe()
    if not any(len(reply.digests) > 1 for side in found.values() for replies in side for reply in replies):
        raise NotEnoughData(f"{server.address.text}: every answer is empty")
    first, second = found[0]
    return (first, second), (found[1][0], found[1][1]) if other else None
