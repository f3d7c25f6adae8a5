"""Figures that somebody stated: copied from a chat, a report or a benchmark's result, with no series behind them."""

from __future__ import annotations

from pathlib import Path

from kvscope.sources.source import Source


def open_stated(path: Path, kind: str) -> Source:
    """Open a document of figures, a benchmark's result, or kept answers. SourceError when it holds none."""
    if kind == "answers":
        from kvscope.sources.stated.answers import AnswersSource

        return AnswersSource(path)
    from kvscope.sources.stated import document, result
    from kvscope.sources.stated.source import StatedSource

    found = document.read(path) if kind == "figures" else result.stated(path)
    return StatedSource(found, path, path.stat().st_mtime)
