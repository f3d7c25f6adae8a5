"""Each KV form holds what it says it holds, in the bytes it says."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from engine import forms
from engine.forms._base import Form
from engine.geometry import KVGeometry

SHAPES = [
    KVGeometry(layers=1, kv_heads=1, q_heads=1, head_dim=64),
    KVGeometry(layers=1, kv_heads=1, q_heads=1, head_dim=48, block_tokens=16, rank=8),
    KVGeometry(layers=1, kv_heads=1, q_heads=1, head_dim=16, block_tokens=64, rank=16),
]


def rows(geometry: KVGeometry, n: int = 5) -> tuple[Tensor, Tensor]:
    torch.manual_seed(n)
    k, v = torch.randn(2, n, geometry.block_tokens, geometry.head_dim)
    return k, v


def through(form: Form, geometry: KVGeometry, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    pages = form.encode(geometry, k, v)
    assert pages.shape == (len(k), form.page_bytes(geometry))
    return form.decode(geometry, pages)


@pytest.mark.parametrize("geometry", SHAPES, ids=str)
@pytest.mark.parametrize("name", forms.names())
def test_every_form_keeps_what_it_has_once_reduced(name: str, geometry: KVGeometry) -> None:
    form = forms.get(name)
    once = through(form, geometry, *rows(geometry))
    twice = through(form, geometry, *(part.clone() for part in once))
    for first, second in zip(once, twice, strict=True):
        assert first.shape == (5, geometry.block_tokens, geometry.head_dim)
        torch.testing.assert_close(second, first, rtol=0, atol=0.06 if name == "lowrank" else 1e-5)


@pytest.mark.parametrize("geometry", SHAPES, ids=str)
@pytest.mark.parametrize("name", forms.names())
def test_every_form_encodes_zeros(name: str, geometry: KVGeometry) -> None:
    form = forms.get(name)
    zeros = torch.zeros(3, geometry.block_tokens, geometry.head_dim)
    for part in through(form, geometry, zeros, zeros.clone()):
        assert not part.any()


@pytest.mark.parametrize("name", forms.names())
def test_a_page_begins_where_rows_begin_and_counts_its_overhead(name: str) -> None:
    form = forms.get(name)
    for geometry in SHAPES:
        assert form.page_bytes(geometry) % math.lcm(64, geometry.head_dim) == 0
        # Four bytes twice for a channel and for a row weigh as much as two-bit rows where a page is small.
        most = 0.65 if name == "cold_int2" else 0.5
        assert 0 <= form.overhead_bytes(geometry) < form.page_bytes(geometry) * most


@pytest.mark.parametrize(("name", "steps"), [("cold_int8", 127), ("cold_int4", 7)])
def test_rounding_is_within_half_a_step_of_each_row(name: str, steps: int) -> None:
    k, v = rows(SHAPES[0])
    for read, true in zip(through(forms.get(name), SHAPES[0], k.clone(), v.clone()), (k, v), strict=True):
        assert bool(((read - true).abs() <= true.abs().amax(-1, keepdim=True) / steps * 0.5001).all())


def test_low_rank_comes_near_the_best_there_is() -> None:
    geometry = SHAPES[0]
    k, v = rows(geometry)
    for read, true in zip(through(forms.get("lowrank"), geometry, k, v), (k, v), strict=True):
        beyond = torch.linalg.svdvals(true)[:, geometry.components :].square().sum(-1)
        error = (read - true).square().sum((1, 2))
        assert bool((error <= 1.02 * beyond).all())


def test_low_rank_holds_a_block_of_few_facts_and_not_one_of_many() -> None:
    geometry = KVGeometry(layers=1, kv_heads=1, q_heads=1, head_dim=64, rank=8)
    facts, mixture = torch.randn(5, 6, 64), torch.rand(5, 32, 6)
    few = mixture @ facts
    read, _ = through(forms.get("lowrank"), geometry, few, few.clone())
    assert float((read - few).abs().max()) < 0.1
    many, _ = rows(geometry)
    read, _ = through(forms.get("lowrank"), geometry, many, many.clone())
    assert float((read - many).abs().mean()) > 0.3


def test_merging_keeps_the_means() -> None:
    k, v = rows(SHAPES[1])
    for read, true in zip(through(forms.get("merged"), SHAPES[1], k, v), (k, v), strict=True):
        torch.testing.assert_close(read, true.mean(1, keepdim=True).expand_as(true))


def test_the_forms_weigh_what_the_article_hopes_for() -> None:
    geometry = KVGeometry(layers=1, kv_heads=1, q_heads=1, head_dim=128, block_tokens=64, rank=8)
    share = {name: forms.get(name).page_bytes(geometry) / geometry.hot_page_bytes for name in forms.names()}
    assert share["hot"] == 1
    assert 0.25 < share["cold_int8"] < 0.27
    assert 0.12 < share["cold_int4"] < 0.15
    assert share["lowrank"] < 0.06
    assert share["merged"] < 0.02


def test_an_unknown_form_names_the_nearest() -> None:
    with pytest.raises(ValueError, match="did you mean 'lowrank'"):
        forms.get("lowrnk")


def test_a_thinned_page_keeps_a_fixed_number_of_tokens_and_says_which() -> None:
    geometry = KVGeometry(layers=1, kv_heads=1, q_heads=1, head_dim=16, block_tokens=16, entries=4)
    k, v = rows(geometry, n=3)
    k[:, :, 0] += 5.0
    odd = (2, 3, 9, 15)
    for slot in odd:
        k[:, slot, 0] = -5.0
    pages = forms.get("thinned").encode(geometry, k, v)
    there = forms.get("thinned").kept(geometry, pages)
    assert [row.nonzero()[:, 0].tolist() for row in there] == [list(odd)] * 3
    for part, whole in zip(forms.get("thinned").decode(geometry, pages), (k, v), strict=True):
        assert torch.equal(part[there], whole[there])
        assert not part[~there].any()
