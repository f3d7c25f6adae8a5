"""A real client lists and calls the tools of `kvscope mcp`; answers are bounded and wrong calls are told as such."""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp")

from kvscope.agents import MOST_CHARACTERS, bounded

CAPTURE = Path(__file__).parents[2] / "samples/captures/admission-limited/pages.jsonl.gz"
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


async def test_a_client_lists_the_tools_and_reads_what_limits_an_engine() -> None:
    async def use(names: list[str], call: Call) -> None:
        assert {"diagnose", "coverage", "explain", "compare", "verify", "metrics", "plan", "recording"} <= set(names)
        assert "try_change" not in names
        told = await call("diagnose", target=str(CAPTURE))
        assert told["exit_code"] == 1
        assert told["answer"]["account"]["limit"]["name"] == "cap"
        reach = (await call("coverage", target=str(CAPTURE)))["answer"]
        assert 0 < reach["judged"] < reach["rules"]
        assert reach["steps"]

    await with_client(use)


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
