"""One closed loop whose requests go in turn through kvscope's client and through vLLM's: what each makes of a stream.

    PYTHONPATH=. /path/to/vllm's/python -m tests.bench.load_definitions http://127.0.0.1:8650 [REQUESTS [CLIENTS]]

Both clients meet the same moments of the same server and share one process, so noise and a client's cost fall on both
alike; what is left is the definitions. Prompts are token numbers of one length, drawn anew for every request.
"""

from __future__ import annotations

import asyncio
import random
import sys
from statistics import median
from typing import Any

from kvscope.bench.client.http import address_of
from kvscope.bench.client.server import Ask, Server, find_server

TOKENS_IN, TOKENS_OUT = 128, 48
BAR = 0.05
Found = dict[str, float]


async def ours(server: Server, prompt: list[int], _: Any) -> Found:
    one = await server.complete(Ask(prompt, len(prompt), TOKENS_OUT))
    assert one.ok, one.error
    assert one.tpot_s is not None
    return {"ttft": one.ttft_s, "tpot": one.tpot_s, "e2e": one.e2e_s, "tokens": one.tokens_out}


async def theirs(server: Server, prompt: list[int], session: Any) -> Found:
    from vllm.benchmarks.lib.endpoint_request_func import RequestFuncInput, async_request_openai_completions

    url = f"{server.address.text}/v1/completions"
    asked = RequestFuncInput(
        prompt, url, len(prompt), TOKENS_OUT, server.model, ignore_eos=True, extra_body={"temperature": 0.0}
    )
    one = await async_request_openai_completions(asked, session)
    assert one.success, one.error
    tpot = (one.latency - one.ttft) / (one.output_tokens - 1)
    return {"ttft": one.ttft, "tpot": tpot, "e2e": one.latency, "tokens": float(one.output_tokens)}


async def loaded(server: Server, requests: int, clients: int) -> dict[str, list[Found]]:
    """Each client takes the next request; even ones are ours, odd ones theirs."""
    import aiohttp

    found: dict[str, list[Found]] = {"kvscope": [], "vllm": []}
    numbers, drawn = iter(range(requests)), random.Random(1)

    async def client(session: Any) -> None:
        for number in numbers:
            prompt = drawn.choices(range(100, 1000), k=TOKENS_IN)
            tool, ask = (("kvscope", ours), ("vllm", theirs))[number % 2]
            found[tool].append(await ask(server, prompt, session))

    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=600)) as session, asyncio.TaskGroup() as group:
        for _ in range(clients):
            group.create_task(client(session))
    return found


def main() -> int:
    address = address_of(sys.argv[1])
    requests, clients = (int(word) for word in [*sys.argv[2:], "96", "3"][:2])
    server = asyncio.run(find_server(address))
    found, agreed = asyncio.run(loaded(server, requests, clients)), True
    for name in ("ttft", "tpot", "e2e", "tokens"):
        mine, vllm = (median(one[name] for one in found[tool]) for tool in ("kvscope", "vllm"))
        agreed &= abs(mine / vllm - 1) <= BAR
        print(f"{name:8} kvscope {mine:10.5g}  vllm {vllm:10.5g}  ratio {mine / vllm:.3f}")
    print(f"{requests} requests, {clients} clients: {'agree' if agreed else 'do not agree'} within {BAR:.0%}")
    return 0 if agreed else 1


if __name__ == "__main__":
    sys.exit(main())
