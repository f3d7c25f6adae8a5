"""The arena lends slabs to forms and never loses, doubles or overlaps a page."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
import torch

from engine.arena import Arena, OutOfBlocks

SLAB, PAGES = 4096, {1: 1024, 2: 256, 5: 640}


def span(form: int, offsets: torch.Tensor) -> list[tuple[int, int]]:
    return [(start, start + PAGES[form]) for start in offsets.tolist()]


@pytest.mark.parametrize("seed", range(6))
def test_any_sequence_of_lending_and_freeing_keeps_the_books(seed: int) -> None:
    chance = random.Random(seed)
    arena = Arena(40 * SLAB, SLAB, PAGES)
    held: dict[int, list[int]] = {form: [] for form in PAGES}
    for _ in range(300):
        form = chance.choice(list(PAGES))
        if chance.random() < 0.55:
            n = chance.randrange(1, 40)
            fits = arena.can_allocate(form, n)
            before = {form: arena.live_pages[form] for form in PAGES}
            try:
                held[form] += arena.allocate(form, n).tolist()
                assert fits
            except OutOfBlocks:
                assert not fits
                assert before == {form: arena.live_pages[form] for form in PAGES}
        elif held[form]:
            chance.shuffle(held[form])
            n = chance.randrange(1, len(held[form]) + 1)
            arena.free(form, torch.tensor(held[form][:n]))
            del held[form][:n]
        arena.check()
        assert arena.live_bytes == sum(len(pages) * PAGES[form] for form, pages in held.items())
        assert arena.held_bytes + arena.free_bytes == arena.pool_bytes
        assert arena.stranded_bytes >= 0
        spans = sorted(each for form, pages in held.items() for each in span(form, torch.tensor(pages)))
        assert all(first[1] <= second[0] for first, second in pairwise(spans))
    for form, pages in held.items():
        arena.free(form, torch.tensor(pages, dtype=torch.int64))
    assert arena.free_bytes == arena.pool_bytes


def test_bytes_freed_by_one_form_become_pages_of_another() -> None:
    arena = Arena(2 * SLAB, SLAB, PAGES)
    hot = arena.allocate(1, 8)
    assert not arena.can_allocate(2, 1)
    assert not arena.can_exchange(1, hot[:2], 2, 1)
    assert arena.can_exchange(1, hot[hot < SLAB], 2, 16)
    arena.free(1, hot[hot < SLAB])
    assert len(arena.allocate(2, 16)) == 16


def test_a_split_pool_strands_what_the_other_form_needs() -> None:
    arena = Arena(10 * SLAB, SLAB, {1: 1024, 2: 256}, split={1: 0.5, 2: 0.5})
    arena.allocate(1, 20)
    assert arena.free_bytes == 5 * SLAB
    with pytest.raises(OutOfBlocks):
        arena.allocate(1, 1)
    assert arena.can_allocate(2, 80)
    arena.check()


def test_the_fullest_slab_is_used_first_so_that_others_can_empty() -> None:
    arena = Arena(4 * SLAB, SLAB, PAGES)
    pages = arena.allocate(1, 8)
    arena.free(1, pages[:3])
    arena.free(1, pages[4:5])
    assert arena.allocate(1, 1).tolist() == pages[4:5].tolist()


def test_pages_are_written_and_read_whole() -> None:
    arena = Arena(4 * SLAB, SLAB, PAGES)
    first, second = arena.allocate(5, 7), arena.allocate(2, 9)
    for form, offsets in ((5, first), (2, second)):
        pages = torch.randint(0, 255, (len(offsets), PAGES[form]), dtype=torch.uint8)
        arena.write(form, offsets, pages)
        assert torch.equal(arena.read(form, offsets), pages)


@pytest.mark.parametrize("wrong", [[0, 0], [1024 * 7], [100]])
def test_freeing_what_is_not_held_changes_nothing(wrong: list[int]) -> None:
    arena = Arena(2 * SLAB, SLAB, PAGES)
    arena.allocate(1, 2)
    with pytest.raises(ValueError, match="not held"):
        arena.free(1, torch.tensor(wrong))
    arena.check()
    assert arena.live_pages[1] == 2


def test_a_pool_smaller_than_a_slab_is_refused() -> None:
    with pytest.raises(ValueError, match="one slab"):
        Arena(SLAB - 1, SLAB, PAGES)


def test_a_run_of_pages_lies_in_a_row_and_needs_a_hole_as_long() -> None:
    arena = Arena(6 * SLAB, SLAB, {1: 1024, 2: 256})
    first, second, third = (arena.allocate_run(1, 8) for _ in range(3))
    assert (second.diff() == 1024).all()
    arena.free(1, first)
    arena.free(1, third)
    arena.check()
    assert arena.longest_run(1) == 8
    assert arena.free_pages(1) == 16
    with pytest.raises(OutOfBlocks, match="in a row"):
        arena.allocate_run(1, 9)
    assert arena.unusable_bytes(1) == 0
    assert arena.unusable_bytes(1, in_a_row=True) == 8 * 1024
    arena.free(1, second)
    assert len(arena.allocate_run(1, 24)) == 24
    with pytest.raises(OutOfBlocks):
        arena.allocate_run(1, 9)


def test_what_a_form_cannot_use_is_told() -> None:
    arena = Arena(10 * SLAB, SLAB, {1: 1024, 2: 256}, split={1: 0.6, 2: 0.4})
    arena.allocate(1, 4)
    assert arena.unusable_bytes(1) == 4 * SLAB
    assert arena.unusable_bytes(2) == 5 * SLAB
