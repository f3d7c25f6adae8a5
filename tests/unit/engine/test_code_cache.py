"""Compiled kernels are kept apart by the sources they were compiled from."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from engine.kernels import _code_cache


def test_the_folder_changes_with_any_source_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(_code_cache, "__file__", str(tmp_path / "kernels" / "_code_cache.py"))
    (tmp_path / "kernels").mkdir()
    helper = tmp_path / "kernels" / "_rows.py"
    helper.write_text("one")
    first = _code_cache.directory()
    helper.write_text("two")
    assert _code_cache.directory() != first
    assert first.is_relative_to(tmp_path)


def test_numba_keeps_its_code_there() -> None:
    import numba

    assert os.environ[_code_cache.ENV] == numba.config.CACHE_DIR


def test_a_folder_the_user_chose_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(_code_cache.ENV, "/chosen")
    _code_cache.use()
    assert os.environ[_code_cache.ENV] == "/chosen"
