"""On a CUDA device: `python -m pytest tests/gpu`. The checks are those of the interpreted tests, on larger shapes."""

from __future__ import annotations

import pytest
import torch

from engine.forms import cold_names
from engine.geometry import KVGeometry

pytest.importorskip("triton")
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]
LLAMA = KVGeometry(1, 8, 32, 128, block_tokens=64)
KINDS = [(0.0, 0.0), (0.75, 0.0), (0.4, 0.2)]


@pytest.mark.parametrize(("cold", "evicted"), KINDS)
@pytest.mark.parametrize("lens", [[2048], [1, 64, 65, 5000], [300] * 64])
def test_attention_over_chosen_and_all_pages_agrees_with_float64(lens: list[int], cold: float, evicted: float) -> None:
    from engine.kernels._base import Keep
    from engine.kernels._cuda.attend import Launch
    from engine.kernels._cuda.select import Choice
    from tests.gpu.checks import check_attention, check_selection, dense_list
    from tests.gpu.reference import case

    made = case(LLAMA, lens, cold_share=cold, evicted_share=evicted, device="cuda")
    for launch in (Launch(1, 4, 2), Launch(3, 4, 3)):
        check_attention(made, dense_list(made), launch, 1e-2)
    check_attention(made, dense_list(made), Launch(1), 1e-2, planned=True)
    keep = Keep(0.25, sink_tokens=64, window_tokens=64, block_tokens=64)
    check_attention(made, check_selection(made, keep, Choice()), Launch(2), 1e-2)


def test_launches_that_start_early_read_what_the_launch_before_wrote() -> None:
    """Many layers of selection and attention in one graph: a missing wait would show as the list of another query."""
    found = {early: chained(early) for early in (True, False)}
    assert torch.isfinite(found[False].float()).all()
    assert torch.equal(found[True], found[False])


def chained(early: bool) -> torch.Tensor:
    from engine.kernels._base import Keep
    from engine.kernels._cuda.attend import Launch, attend
    from engine.kernels._cuda.select import Choice, Chooser
    from engine.kernels._cuda.worklist import WorkList
    from tests.gpu.reference import case

    made = case(LLAMA, [16384, 9000] * 4, device="cuda", seed=5)
    requests, blocks = made.table.shape
    work = WorkList(LLAMA, requests, blocks, "cuda")
    chooser = Chooser(made.pool, requests, blocks, Keep(0.25, sink_tokens=64, window_tokens=64, block_tokens=64))
    chooser.plan(made.lens.tolist())
    torch.manual_seed(5)
    queries = [torch.randn_like(made.q) for _ in range(24)]
    outs = [torch.full_like(made.q, torch.nan) for _ in queries]

    def step() -> None:
        for q, out in zip(queries, outs, strict=True):
            chooser.choose(q, made.pool, made.table, made.lens, work, Choice(256, 8, early=early))
            attend(q, out, made.pool, work, 128**-0.5, Launch(4, early=early))

    step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    for out in outs:
        out.fill_(torch.nan)
    for _ in range(20):
        graph.replay()
    torch.cuda.synchronize()
    return torch.stack(outs)


def test_the_same_call_gives_the_same_bits() -> None:
    from engine.kernels._cuda.attend import Launch, attend
    from tests.gpu.checks import dense_list
    from tests.gpu.reference import case

    made = case(LLAMA, [5000, 700], device="cuda")
    work = dense_list(made)
    first, *others = (
        attend(made.q, torch.empty_like(made.q), made.pool, work, 128**-0.5, Launch(8)).clone() for _ in range(20)
    )
    assert all(torch.equal(first, other) for other in others)


@pytest.mark.parametrize("forms", [*((form,) for form in cold_names()), cold_names()], ids=str)
def test_pages_of_every_form_are_read_in_decode_and_in_prompts(forms: tuple[str, ...]) -> None:
    from engine.kernels._cuda.attend import Launch
    from tests.gpu.checks import check_attention, check_prompt, dense_list
    from tests.gpu.reference import case

    made = case(LLAMA, [1, 64, 65, 5000], cold_share=0.8, evicted_share=0.1, device="cuda", forms=forms)
    for launch in (Launch(1, 4, 2, 2), Launch(5, 4, 3, 3), Launch(3, 8, 2, 2)):
        check_attention(made, dense_list(made), launch, 1e-2)
    check_prompt(made, 1e-2)
