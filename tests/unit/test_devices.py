"""GPUs are found by the names people and drivers give them."""

from __future__ import annotations

import pytest

from kvscope import devices
from kvscope.errors import UsageError


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ("H200", "H200"),
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA H100 PCIe", "H100-PCIe"),
        ("NVIDIA A100-SXM4-40GB", "A100-40"),
        ("A100-80", "A100-80"),
        ("NVIDIA GeForce RTX 4090", "RTX-4090"),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "RTX-PRO-6000"),
        ("mi300x", "MI300X"),
        ("Tesla V100-SXM2-32GB", "V100-32"),
    ],
)
def test_a_card_is_found_by_a_drivers_name_too(said: str, name: str) -> None:
    assert devices.find(said).name == name


def test_an_unknown_card_is_refused_with_the_nearest() -> None:
    with pytest.raises(UsageError, match="did you mean 'H20"):
        devices.find("H201")


def test_every_card_has_a_source_and_figures_that_make_sense() -> None:
    for one in devices.DEVICES:
        assert one.source
        assert 1e11 < one.bandwidth < 1e13
        assert one.bf16 > 1e13
        assert one.fp8 == 0 or one.bf16 <= one.fp8 <= 3 * one.bf16


def test_the_ridge_of_a_card_lies_where_decode_is_bound_by_memory() -> None:
    assert 100 < devices.find("H200").bf16 / devices.find("H200").bandwidth < 500
