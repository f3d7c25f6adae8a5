"""A few mutations of what each reader takes; `python -m tests.fuzz.mutate` runs as many as one likes."""

from __future__ import annotations

import pytest

from tests.fuzz.mutate import BAD, OF_THE_ENGINE, READERS, run


@pytest.mark.parametrize("reader", READERS)
def test_no_mutation_breaks_a_reader_and_a_third_get_past_parsing(reader: str) -> None:
    if reader in OF_THE_ENGINE:
        pytest.importorskip("torch")
    found = run(reader, 60, seed=7)
    assert {bad: found[bad] for bad in BAD if found[bad]} == {}
    assert found["read"] >= 0.2 * 60
