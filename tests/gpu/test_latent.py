"""Latent rows and the host tier on a CUDA device: `python -m pytest tests/gpu`. Checks are the interpreted tests'."""

from __future__ import annotations

import pytest
import torch

from engine.latent.shape import SHAPES

pytest.importorskip("triton")
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]


@pytest.mark.parametrize("name", SHAPES)
def test_every_shape_chooses_the_best_rows_and_reads_them_as_float64_does(name: str) -> None:
    from tests.gpu.latent import check_reader

    check_reader(SHAPES[name], [9000, 1, 64, 2049, 30000], torch.bfloat16, "cuda", 1e-2, processors=132)


def test_ties_go_to_the_first_row() -> None:
    from tests.gpu.latent import check_ties

    check_ties("cuda")


def test_pages_in_host_memory_are_found_and_fetched() -> None:
    from tests.gpu.hosted import check_tier

    check_tier("cuda", 60)
