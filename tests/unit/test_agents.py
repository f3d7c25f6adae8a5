"""A real client lists and calls the tools of `kvscope mcp`; answers are bounded and wrong calls are told as such."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp")

from kvscope.agents import MOST_CHARACTERS, bounded
from kvscope.cli import run

SAMPLES = Path(__file__).parents[2] / "samples"
CAPTURE = SAMPLES / "captures/admission-limited/pages.jsonl.gz"
Call = Callable[..., Awaitable[dict[str, Any]]]


async def with_client(use: Callable[[list[str], Call], Awaitable[None]], *options: str) -> None:
    from mcp import ClientSession, StdioServerParameters
    from mcp.client.stdio import stdio_client

    started = StdioServerParameters(command=sys.executable, args=["-m", "kvscope", "mcp", *options])
    async with stdio_client(started) as (reads, writes), ClientSession(reads, writes) as session:
        await session.initialize()
        tools = (await session.list_tools()).tools

        async def call(name: str, **arguments: Any) -> dict[str, Any]:
            answered = await session.call_tool(name, arguments)
            assert not answered.is_error
            found: dict[str, Any] = answered.structured_content or json.loads(answered.content[0].text)
            return found

        await use([tool.name for tool in tools], call)


async def test_tools_only_read_unless_changes_are_allowed() -> None:
    async def use(names: list[str], call: Call) -> None:
        assert sorted(names) == sorted(CALLS.keys() - {"try_change"})

    await with_client(use)


RULE = "admission-capped"
CALLS: dict[str, dict[str, Any]] = {
    "diagnose": {"target": str(CAPTURE), "baseline": str(CAPTURE)},
    "coverage": {"target": str(CAPTURE)},
    "explain": {"rule": RULE, "target": str(CAPTURE)},
    "show_rule": {"rule": RULE},
    "compare": {"before": str(CAPTURE), "after": str(CAPTURE)},
    "verify": {"target": str(CAPTURE), "before": "no-such", "after": "segment"},
    "metrics": {"target": str(CAPTURE), "starting_with": "sched."},
    "plan": {"model": str(SAMPLES / "configs/llama-3.1-8b.json"), "options": "context=32768, kv-dtype=fp8"},
    "recording": {"path": ""},
    "try_change": {"pid": 2**30},
}
"""A call of every tool. What `verify` and `try_change` are asked cannot be done, and they say so."""
REFUSED = {"verify": 2, "try_change": 3}


async def test_every_tool_is_listed_and_answers_a_real_client_with_what_its_command_says(tmp_path: Path) -> None:
    recorded = tmp_path / "run.db"
    assert run(["record", str(CAPTURE), "-o", str(recorded)]) == 0

    async def use(names: list[str], call: Call) -> None:
        assert sorted(names) == sorted(CALLS)
        calls = {**CALLS, "recording": {"path": str(recorded)}}
        answers = await asyncio.gather(*(call(name, **calls[name]) for name in names))
        told = dict(zip(names, answers, strict=True))
        for name, one in told.items():
            assert one["exit_code"] == REFUSED.get(name, one["exit_code"]), one
            assert one["exit_code"] in (0, 1) or name in REFUSED, one
            assert len(json.dumps(one)) <= MOST_CHARACTERS
            assert bool(one["answer"]) is (name not in REFUSED), name
        assert {check["part"] for check in told["explain"]["answer"]["checks"]} >= {"symptom", "cause"}
        assert all(one["name"].startswith("sched.") for one in told["metrics"]["answer"]["values"])
        assert 0 < told["coverage"]["answer"]["judged"] < told["coverage"]["answer"]["rules"]
        assert told["diagnose"]["answer"]["account"]["limit"]["name"] == "cap"
        assert told["recording"]["answer"]["account"]["limit"]["name"] == "cap"
        assert f"id: {RULE}" in "\n".join(told["show_rule"]["answer"])

    await with_client(use, "--allow-changes")


async def test_a_wrong_call_is_told_with_its_meaning_and_no_value_is_an_option() -> None:
    async def use(names: list[str], call: Call) -> None:
        assert "try_change" in names
        told = await call("diagnose", target="--version")
        assert told["exit_code"] == 3
        assert "--version" in told["said"][0]
        assert (await call("explain", rule="no-such-rule", target=str(CAPTURE)))["exit_code"] == 2

    await with_client(use, "--allow-changes")


def test_an_answer_is_cut_where_it_is_long_and_says_so() -> None:
    cut = bounded({"rows": [{"text": "x" * 5000, "n": n} for n in range(100_000)], "first": 1})
    assert len(json.dumps(cut)) <= MOST_CHARACTERS
    assert cut["first"] == 1
    assert cut["rows"][-1].endswith("more")
    whole = {"rows": [1, 2, 3], "text": "short"}
    assert bounded(whole) == whole
