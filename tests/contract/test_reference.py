"""What is generated from the code says what the code says."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

PAGES = runpy.run_path(str(Path(__file__).resolve().parents[2] / "docs/reference.py"))["pages"]()


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_a_generated_page_is_up_to_date(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == PAGES[path], "run: python docs/reference.py"
