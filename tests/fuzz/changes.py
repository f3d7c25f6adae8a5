"""How a document is mutated: a tree of dicts and lists, the words of a text, the bytes of a file."""

from __future__ import annotations

import copy
import json
import random
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from probes.border import finite

NUMBERS: tuple[Any, ...] = (
    0, -1, 1, True, None, 1e300, -1e300, 1e18, 10**19, 10**400, float("nan"), float("inf"), -float("inf"), 2**63,
    1e-320, "", "NaN", "1e400", "9" * 500, [], {}, [[]], {"a": {}}, "\x1b[31mred", "\u202eabc", "\ud800", "x" * 3000,
)  # fmt: skip
TEXTS = ("", "\x1b]0;PWNED\x07", "\u202e\u2066", "[/bold][@click=app.quit()]", "<script>", "\ud800", "a" * 5000, "{",
         "}", '"', "\\", ",", "=", "\t", "\x00", "le", "NaN", "+Inf", "-5", "1e999", "9" * 400,
         "vllm:num_requests_running")  # fmt: skip


def of_tree(rng: random.Random, document: Any, times: int) -> Any:
    """Return a tree with so many of its nodes replaced, repeated, removed, renamed or put deeper."""
    tree = copy.deepcopy(document)
    for _ in range(times):
        holders = [one for one in walk(tree) if len(one)]
        if not holders:
            return tree
        holder = rng.choice(holders)
        key = rng.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
        with suppress(RecursionError):
            _change(rng, holder, key)
    return tree


def walk(node: Any) -> Iterator[Any]:
    if isinstance(node, dict | list):
        yield node
        for inner in list(node.values()) if isinstance(node, dict) else node:
            yield from walk(inner)


def _change(rng: random.Random, holder: Any, key: Any) -> None:
    way = rng.randrange(8)
    if way < 3:
        holder[key] = copy.copy(rng.choice(NUMBERS))
    elif (
        way == 3 and isinstance(holder[key], int | float) and not isinstance(holder[key], bool) and finite(holder[key])
    ):
        holder[key] = holder[key] * rng.choice((-1, 0, 1e3, 1e12, 1e-9, 1.0000001))
    elif way == 4:
        del holder[key]
    elif way == 5 and isinstance(holder, dict):
        holder[rng.choice(TEXTS) or "x"] = holder[key]
    elif way == 6:
        for _ in range(rng.choice((1, 3, 60))):
            holder[key] = [holder[key]]
    elif isinstance(holder, list):
        holder.insert(rng.randrange(len(holder) + 1), copy.deepcopy(rng.choice(holder)))
    else:
        holder[key] = rng.choice(TEXTS)


def of_text(rng: random.Random, text: str, times: int) -> str:
    """Return a text with so many of its words, numbers, separators or lines replaced, doubled or dropped."""
    for _ in range(times):
        lines = text.split("\n")
        at = rng.randrange(len(lines))
        way = rng.randrange(8)
        if way < 4:
            parts = re.split(r"([^\w.+-])", lines[at])
            parts[rng.randrange(len(parts))] = rng.choice(
                (*TEXTS, repr(rng.choice(NUMBERS[:15])), str(rng.random() * 1e6))
            )
            lines[at] = "".join(parts)
        elif way == 4:
            lines.insert(at, rng.choice(lines))
        elif way == 5:
            del lines[at]
            lines = lines or [""]
        elif way == 6:
            cut = rng.randrange(len(lines[at]) + 1)
            lines[at] = lines[at][:cut] + rng.choice(TEXTS) + lines[at][cut:]
        else:
            lines[at], other = lines[rng.randrange(len(lines))], lines[at]
            lines.append(other)
        text = "\n".join(lines)
    return text


def as_json(document: Any) -> bytes:
    return json.dumps(document).encode("utf-8", "surrogatepass")


def few(rng: random.Random) -> int:
    """One change, mostly: a document that is wrong in one place gets furthest."""
    return rng.choice((1, 1, 1, 1, 2, 2, 3, 8))


def of_bytes(rng: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 2, 8, 40))):
        changed[rng.randrange(len(changed))] = rng.choice((0, 1, 255, rng.randrange(256)))
    return bytes(changed[: rng.randrange(len(changed))] if rng.random() < 0.1 else changed)
