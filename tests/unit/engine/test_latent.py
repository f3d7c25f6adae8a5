"""Latent rows: shapes by arithmetic, their readers and the host tier interpreted against float64 and an LRU."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from engine.latent.shape import LatentShape, named
from tests.unit.engine.test_triton_cuda import interpreted

READERS = """
from engine.latent.shape import LatentShape
from tests.gpu.hosted import check_tier
from tests.gpu.latent import check_reader, check_ties
torch.manual_seed(0)
kinds = (
    (LatentShape(16, 32, 16, page_tokens=32), [150, 1]),
    (LatentShape(4, 32, 16, page_tokens=32, top_k=40, index_heads=4, index_dim=32), [300, 41, 3]),
    (LatentShape(20, 32, 0, page_tokens=32, top_k=16, index_heads=4, index_dim=32, ratio=4, window=32), [700, 70]),
    (LatentShape(4, 32, 0, page_tokens=32, ratio=16, window=32), [900, 3]),
)
for shape, lens in kinds:
    check_reader(shape, lens, torch.float32, "cpu", 1e-5, processors=2, tile=128)
check_ties("cpu")
check_tier("cpu")
print("agrees")
"""


@pytest.mark.slow
def test_the_interpreted_readers_choose_and_read_what_float64_does() -> None:
    pytest.importorskip("triton")
    assert interpreted(READERS) == "agrees"


def test_what_a_step_reads_follows_from_the_shape() -> None:
    assert named("mla").bytes_read(65536) == 65536 * 576 * 2
    assert named("dsa").bytes_read(65536) == 65536 * 132 + 2048 * 1152
    assert named("csa").bytes_read(65536) == 16384 * 132 + (512 + 128) * 1024
    assert named("hca").bytes_read(65536) == (512 + 128) * 1024
    assert named("dsa").rows_read(100) == 100


def test_a_shape_that_cannot_be_is_refused_by_the_name_of_the_field() -> None:
    with pytest.raises(ValueError, match="latent is 576"):
        LatentShape(16, latent=576)
    with pytest.raises(ValueError, match="index_heads 0"):
        LatentShape(16, top_k=64, index_dim=64)
    with pytest.raises(ValueError, match="did you mean 'dsa'"):
        named("dsaa")
