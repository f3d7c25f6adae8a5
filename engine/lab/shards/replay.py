"""Step time on a GPU without the host's share: the whole step, exchanges included, as one CUDA graph on every rank."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median

import torch

from engine.lab.shards.group import Group
from engine.lab.shards.step import Step

AT_ONCE = 4
REPLAYS = "replays"


def replayed_phases(step: Step, queries: list[torch.Tensor], times: int) -> dict[str, float]:
    """Seconds of a step, and of its phases by leaving them out: without exchanges, and then without choosing.

    `exchange` is what the exchanges add, waiting included: it cannot be told apart inside a graph.
    """
    group = step.group
    run = lambda: step.run(queries)  # noqa: E731
    whole = replayed(run, group, times)
    group.muted = True
    own = replayed(run, group, times)
    step.frozen = True
    attend = replayed(run, group, times)
    group.muted = step.frozen = False
    return {"step": whole, "index": max(0.0, own - attend), "attend": attend, "exchange": max(0.0, whole - own)}


def replayed(run: Callable[[], object], group: Group, times: int) -> float:
    """Seconds a step: median over `times` rounds of replays back to back, all ranks having met before each.

    Captured with errors kept to this thread: NCCL's watchdog may ask the device for something meanwhile.
    """
    stream: torch.cuda.Stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(2):
            run()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    group.told([0.0])
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        run()
    clock, spent = group.clock, []
    for _ in range(times + 2):
        group.told([0.0])
        clock.on = True
        started = clock.start()
        for _ in range(AT_ONCE):
            graph.replay()
        clock.stop(started, REPLAYS)
        clock.on = False
        torch.cuda.synchronize()
        spent.append(clock.take()[REPLAYS][0] / AT_ONCE)
    graph.reset()
    return median(spent[2:])
