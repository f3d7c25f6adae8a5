"""A device of plain operators, here the CPU posing as one, says what the engine's own path says, token for token."""

from __future__ import annotations

import random

import pytest
import torch

from engine import devices, forms
from engine.cache import Entries, KVCache
from engine.devices._base import Device
from engine.devices._plain import Plain
from engine.forms import EVICTED, HOST, HOT, NONE
from engine.knobs import KnobError, Knobs
from engine.lab.recall import task
from engine.llm import Engine
from engine.weights import open_model

PLAIN = Device("plain", torch.device("cpu"), torch.float32, Plain())


def engine_on(device: Device | None, **knobs: str) -> Engine:
    loaded = open_model("shipped", "cpu")
    asked = Knobs().with_text({"min_read_tokens": "64", **knobs})
    return Engine(loaded.config, loaded.model, asked, pool_bytes=64 << 20, max_context=1024, device=device)


def said(engine: Engine, *lengths: int) -> list[list[int]]:
    """What requests of these lengths say together."""
    document = task.make_document(random.Random(3), 300)
    prompt = task.prompt(document, next(iter(document.successor)))
    requests = [engine.submit(prompt[-length:], 6) for length in lengths]
    while engine.has_work:
        engine.step()
    engine.cache.check()
    return [request.generated for request in requests]


def answers(device: Device | None, **knobs: str) -> tuple[list[list[int]], Engine]:
    engine = engine_on(device, **knobs)
    return said(engine, 300, 170), engine


@pytest.mark.parametrize(
    "knobs",
    [
        {"policy": "full"},
        {"policy": "combined", "hot_share": "0.3", "kernels": "block", "representatives": "bounds"},
        {"policy": "combined", "hot_share": "0.3", "host_mib": "16", "host_share": "0.5", "promote_after": "2"},
        {"policy": "heavy_hitters", "importance": "aware", "kept_share": "0.6"},
    ],
)
def test_plain_operators_say_what_the_cpu_says(knobs: dict[str, str]) -> None:
    (found, engine), (expected, cpu) = answers(PLAIN, **knobs), answers(None, **knobs)
    assert found == expected
    assert engine.residency.demotions == cpu.residency.demotions


@pytest.mark.parametrize("form", forms.cold_names())
def test_every_form_is_read_on_a_device_as_on_the_cpu(form: str) -> None:
    knobs = {"policy": "combined", "hot_share": "0.3", "cold_form": form}
    (found, engine), (expected, cpu) = answers(PLAIN, **knobs), answers(None, **knobs)
    assert found == expected
    assert engine.residency.demotions == cpu.residency.demotions > 0
    assert engine.cache.entries_by_layer() == cpu.cache.entries_by_layer()


def test_memory_on_a_device_is_what_its_pages_and_tables_hold() -> None:
    _, engine = answers(PLAIN, policy="combined", hot_share="0.3")
    cache = engine.cache
    assert cache.entries_by_layer() == counted(cache)
    assert cache.resident_bytes() > cache.arena.live_bytes


def counted(cache: KVCache) -> Entries:
    """Page by page, from the tables."""
    ids = cache.blocks.live_ids()
    filled, held = cache.blocks.filled[ids].double()[None, :, None], cache.page_form[:, ids] % HOST
    most = torch.zeros(HOST, dtype=torch.float64)
    for code, form in cache.forms.items():
        most[code] = form.entries(cache.geometry)
    entries, cold = torch.minimum(most[held.long()], filled), (held != HOT) & (held != NONE) & (held != EVICTED)
    tiers = ((entries * mask).sum((1, 2)) / cache.geometry.kv_heads for mask in (held == HOT, cold))
    return Entries(*(tier.tolist() for tier in tiers))


def test_what_a_device_has_no_kernels_for_is_refused_and_nothing_changes() -> None:
    _, engine = answers(PLAIN, policy="combined")
    with pytest.raises(KnobError, match="generic and block"):
        engine.set_knobs({"kernels": "compiled"})
    assert (engine.knobs.cold_form, engine.knobs.kernels) == ("cold_int8", "generic")


def test_a_device_that_is_not_there_is_named_with_what_could_be() -> None:
    with pytest.raises(ValueError, match="torch has no such device here"):
        devices.get("npu")
    with pytest.raises(ValueError, match="computes in float32"):
        devices.get("cpu", "bfloat16")
    assert not devices.get("cpu").queued
    assert set(devices.names()) == {"cpu", "cuda", "generic"}
