"""Tools for agents (Model Context Protocol): each is a command of kvscope, run apart and answered in bounded size.

A tool cannot do what its command cannot: it reads what the user may read, changes nothing unless the server was started
with --allow-changes, and ends when its time is over. Needs the extra `mcp`.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from typing import Any

from mcp.server import MCPServer
from mcp.types import ToolAnnotations

from kvscope.sources.builtin import environment
from probes.version import __version__

MOST_CHARACTERS = 24_000
"""Of one answer: a few thousand tokens of a conversation."""
MOST_ITEMS = 40
LONGEST_S = 300.0
"""Of one command; a diagnosis of a live target takes its duration and a little more."""
MEANINGS = {
    0: "nothing at or above likely was found",
    1: "a finding is likely, or a change was refuted",
    2: "the call was wrong",
    3: "the target cannot be reached, or is no engine",
    4: "not enough data to tell",
    70: "a fault of kvscope",
}
INSTRUCTIONS = (
    "kvscope tells what limits an LLM inference engine and why a smaller KV cache made nothing faster. Start with "
    "`diagnose`: read `account` (what limits it now) before `findings`, and repeat numbers with their source. A "
    "verdict below `likely` is no finding. `coverage` says what could be judged at all; silence of a rule that could "
    "not be judged means nothing. Propose one change at a time and check it with `verify` or `compare`."
)


def bounded(value: Any, characters: int = MOST_CHARACTERS) -> Any:
    """Return the value with long lists, deep parts and long texts cut until its JSON has at most ``characters``.

    What was cut is said where it stood.
    """
    for items, length in ((MOST_ITEMS, 2000), (20, 600), (10, 300), (5, 200), (3, 100), (1, 60)):
        cut = _cut(value, items, length)
        if len(json.dumps(cut)) <= characters:
            return cut
    return {"cut": f"the answer has more than {characters} characters; ask for less"}


def _cut(value: Any, items: int, length: int) -> Any:
    if isinstance(value, str):
        return value if len(value) <= length else f"{value[:length]}… ({len(value) - length} characters more)"
    if isinstance(value, list):
        kept = [_cut(one, items, length) for one in value[:items]]
        return kept if len(value) <= items else [*kept, f"… {len(value) - items} more"]
    if isinstance(value, dict):
        most = 4 * items
        kept_pairs = {key: _cut(one, items, length) for key, one in list(value.items())[:most]}
        return kept_pairs if len(value) <= most else {**kept_pairs, "…": f"{len(value) - most} more"}
    return value


async def command(*arguments: str, keep: Callable[[Any], Any] = lambda answer: answer) -> dict[str, Any]:
    """Run ``kvscope arguments`` in a process of its own; its exit code, what that means, its answer, what it said.

    ``keep``: the part of the answer that was asked for; what is left out takes no room in the bounded one.
    """
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "kvscope", *arguments),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=environment(),
    )
    try:
        out, said = await asyncio.wait_for(process.communicate(), LONGEST_S)
    except BaseException as error:
        if process.returncode is None:
            process.kill()
            await process.wait()
        if not isinstance(error, TimeoutError):
            raise
        return {"exit_code": 4, "means": f"not done after {LONGEST_S:.0f} s", "answer": None, "said": []}
    code = process.returncode or 0
    text = out.decode(errors="replace")
    try:
        answer: Any = keep(json.loads(text))
    except ValueError:
        answer = text.splitlines()
    notes = said.decode(errors="replace").splitlines()
    told = {"exit_code": code, "means": MEANINGS.get(code, "unknown"), "answer": answer, "said": notes}
    found: dict[str, Any] = bounded(told)
    return found


def _options(**given: str) -> list[str]:
    """``--name=value`` for what was given, so that no value is read as an option."""
    return [f"--{name.replace('_', '-')}={value}" for name, value in given.items() if value]


async def diagnose(
    target: str, baseline: str = "", duration_s: float = 15.0, config: str = "", gpu: str = "", settings: str = ""
) -> dict[str, Any]:
    """Say what limits an engine and what is wrong with it.

    `target`: URL, pid, or a file (log, page, scrapes, recording, trace, benchmark result, figures). `baseline`: the
    same, from before a change. `config`: the model's config.json; `gpu`: its name; `settings`: NAME=VALUE with commas.
    """
    told = [f"--set={one.strip()}" for one in settings.split(",") if one.strip()]
    options = _options(format="json", baseline=baseline, config=config, gpu=gpu, duration=f"{duration_s:g}")
    return await command("diagnose", *options, *told, "--", target)


async def coverage(target: str, baseline: str = "", duration_s: float = 15.0) -> dict[str, Any]:
    """Say which rules can speak about a target, and which settings or sources would let most others speak."""
    options = _options(format="json", baseline=baseline, duration=f"{duration_s:g}")
    return await command("coverage", *options, "--", target)


async def explain(rule: str, target: str) -> dict[str, Any]:
    """Say of one rule, check by check, what was measured on a target and how far it is from firing."""
    return await command("playbooks", *_options(format="json"), "explain", "--", rule, target)


async def show_rule(rule: str) -> dict[str, Any]:
    """Say what a rule looks for: symptom, cause, rivals, experiment and fixes."""
    return await command("playbooks", "show", "--", rule)


async def compare(before: str, after: str, fail_if: str = "") -> dict[str, Any]:
    """Put two targets or benchmark results side by side: what changed, what did not, what cannot be told.

    `fail_if`: a gate such as 'tpot_p50 > +5%'.
    """
    return await command("compare", *_options(format="json", fail_if=fail_if), "--", before, after)


async def verify(target: str, before: str, after: str) -> dict[str, Any]:
    """Judge whether a change kept its promise, from two marked segments of a target or recording."""
    return await command("verify", *_options(format="json", before=before, after=after), "--", target)


async def metrics(target: str = "", starting_with: str = "") -> dict[str, Any]:
    """List the canonical metrics, or the latest values of a target's; `starting_with` keeps those, such as `kv.`."""

    def keep(answer: dict[str, Any]) -> dict[str, Any]:
        return {
            key: [one for one in rows if one["name"].startswith(starting_with)] if isinstance(rows, list) else rows
            for key, rows in answer.items()
        }

    return await command("metrics", *_options(format="json"), *(["--", target] if target else []), keep=keep)


async def plan(model: str, options: str = "") -> dict[str, Any]:
    """Count the KV bytes of a model before it runs.

    `model`: config.json, folder, GGUF file, URL or log. `options`: NAME=VALUE with commas, such as engine=vllm,
    gpu=H200, context=32768, tp=2, kv-dtype=fp8.
    """
    given = dict(one.strip().partition("=")[::2] for one in options.split(",") if one.strip())
    return await command("plan", *_options(format="json", **given), "--", model)


async def recording(path: str) -> dict[str, Any]:
    """Read a recording: its segments with every signal, and what limited the engine in the last one."""

    def keep(whole: dict[str, Any]) -> dict[str, Any]:
        return {key: whole[key] for key in ("source", "segments", "account", "notices") if key in whole}

    return await command("diagnose", *_options(format="json"), "--", path, keep=keep)


async def try_change(pid: int, finding: str = "", change: str = "") -> dict[str, Any]:
    """Try a finding's experiment on a built-in engine: its knobs are turned, judged, and put back.

    `change`: NAME=VALUE instead of what the rule says.
    """
    return await command("verify", *_options(format="json", finding=finding, set=change), "--", str(pid))


READS = (diagnose, coverage, explain, show_rule, compare, verify, metrics, plan, recording)
CHANGES = (try_change,)


def server(*, allow_changes: bool) -> MCPServer:
    """Return the server with the tools that read; with ``allow_changes`` also those that change an engine."""
    made = MCPServer("kvscope", instructions=INSTRUCTIONS, version=__version__)
    for tool in READS:
        made.add_tool(tool, annotations=ToolAnnotations(read_only_hint=True, open_world_hint=True))
    for change in CHANGES if allow_changes else ():
        made.add_tool(change, annotations=ToolAnnotations(read_only_hint=False, destructive_hint=False))
    return made
