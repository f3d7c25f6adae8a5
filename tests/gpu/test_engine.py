"""The engine on a CUDA device: `python -m pytest tests/gpu`. Greedy answers are held against a pass without a cache."""

from __future__ import annotations

import random

import pytest
import torch

from engine import forms, policies
from engine.knobs import KnobError, Knobs
from engine.lab.recall import task

pytest.importorskip("triton")
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]
COUNT = 256
WHOLE = {"kept_share": "1.0", "hot_share": "1.0", "kernels": "block"}


def made(dtype: str = "float32", max_running: int = 8, **knobs: str):  # type: ignore[no-untyped-def]
    from engine import devices
    from engine.llm import Engine
    from engine.weights import open_model

    device = devices.get("cuda", dtype)
    loaded = open_model("shipped", "cuda:0")
    loaded.model.to(device.dtype)
    device.prepare(loaded.model)
    asked = Knobs().with_text({"max_running": str(max_running), **knobs})
    engine = Engine(loaded.config, loaded.model, asked, pool_bytes=256 << 20, max_context=4096, device=device)
    engine.warm_up()
    return engine


def prompt(tokens: int = 200, seed: int = 3) -> tuple[int, ...]:
    document = task.make_document(random.Random(seed), tokens)
    return task.prompt(document, next(iter(document.successor)))


def run(engine) -> None:  # type: ignore[no-untyped-def]
    while engine.has_work:
        engine.step()
    engine.runner.land()
    engine.cache.check()


@torch.inference_mode()
def choices(tokens: tuple[int, ...]) -> list[int]:
    """The oracle: the greedy choice after each token, from one causal pass on the CPU without a cache."""
    from engine.weights import open_model

    def attend(_layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        group = q.shape[1] // k.shape[1]
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
        scores = torch.einsum("nhd,mhd->hnm", q, k) * q.shape[-1] ** -0.5
        scores = scores.masked_fill(torch.ones(scores.shape[1:], dtype=torch.bool).triu(1), -torch.inf)
        return torch.einsum("hnm,mhd->nhd", scores.softmax(-1), v)

    model = open_model("shipped", "cpu").model
    hidden = model(torch.tensor(tokens), torch.arange(len(tokens)), attend)
    return [int(row.argmax()) for row in model.logits(hidden)]


@pytest.mark.parametrize("kernels", ["block", "generic"])
@pytest.mark.parametrize("policy", policies.names())
def test_in_float32_it_says_what_the_oracle_says(policy: str, kernels: str) -> None:
    engine = made(policy=policy, **(WHOLE | {"kernels": kernels}))
    request, beside = engine.submit(prompt(), COUNT), engine.submit(prompt(100), COUNT // 4)
    run(engine)
    for answered in (request, beside):
        said = (*answered.prompt, *answered.generated)
        assert choices(said)[len(answered.prompt) - 1 : -1] == answered.generated


def test_a_batch_of_changing_size_says_what_each_says_alone() -> None:
    engine = made(policy="full")
    together = [engine.submit(prompt(100 + 40 * i, i), 20 + 7 * i) for i in range(7)]
    run(engine)
    for request in together:
        alone = engine.submit(request.prompt, request.max_new_tokens)
        run(engine)
        assert alone.generated == request.generated


@pytest.mark.parametrize(
    "knobs",
    [
        {"policy": "block_sparse"},
        {"policy": "combined", "hot_share": "0.3"},
        {"policy": "combined", "hot_share": "0.3", "host_mib": "64", "host_share": "0.5", "prefetch": "0.5"},
        {"policy": "combined", "hot_share": "0.3", "promote_after": "2"},
        *({"policy": "combined", "hot_share": "0.3", "cold_form": form} for form in forms.cold_names()),
        {"policy": "heavy_hitters", "importance": "aware", "kept_share": "0.5"},
    ],
)
def test_compressed_it_says_what_plain_operators_say_on_a_cpu(knobs: dict[str, str]) -> None:
    from engine.devices._base import Device
    from engine.devices._plain import Plain
    from engine.llm import Engine
    from engine.weights import open_model

    knobs = {"kernels": "block", "min_read_tokens": "64", "representatives": "mean", **knobs}
    device, loaded = made(**knobs), open_model("shipped", "cpu")
    plain = Device("plain", torch.device("cpu"), torch.float32, Plain())
    cpu = Engine(loaded.config, loaded.model, device.knobs, pool_bytes=256 << 20, max_context=4096, device=plain)
    answers = []
    for engine in (device, cpu):
        requests = [engine.submit(prompt(900, seed), 24) for seed in range(3)]
        while engine.has_work:
            engine.step()
        engine.cache.check()
        answers.append([token for request in requests for token in request.generated])
    same = sum(a == b for a, b in zip(*answers, strict=True))
    assert same >= 0.95 * len(answers[0])
    # Where scores are all but equal, float32 sums in another order may choose the other one.
    assert device.residency.demotions == pytest.approx(cpu.residency.demotions, rel=0.02)


def test_nothing_is_compiled_or_captured_after_warm_up() -> None:
    engine = made("bfloat16", policy="combined", kernels="block", hot_share="0.3", min_read_tokens="64")
    before = engine.compiles[0]
    for seed in range(12):
        engine.submit(prompt(300 + 90 * seed, seed), 40 + seed)
    run(engine)
    assert engine.compiles[0] == before
    assert engine.residency.demotions > 0


def test_settings_without_kernels_are_refused_and_nothing_changes() -> None:
    engine = made(policy="combined", kernels="block")
    with pytest.raises(KnobError, match="generic and block"):
        engine.set_knobs({"kernels": "compiled"})
    assert engine.knobs.kernels == "block"
    engine.set_knobs({"kernels": "generic"})
    request = engine.submit(prompt(), 8)
    run(engine)
    assert len(request.generated) == 8
