"""The screen and its numbers, to keep: as a picture, as plain text, as JSON."""

from __future__ import annotations

import json
import time
from dataclasses import is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvscope.signals.reading import Missing

if TYPE_CHECKING:
    from kvscope.tui.ordering import Ordering
    from kvscope.view import View


def save(app: Ordering, form: str) -> str:
    """Write the screen into the current directory as ``svg``, ``txt`` or ``json``; returns the file's name."""
    name = time.strftime(f"kvscope-%Y%m%d-%H%M%S.{form}")
    if form == "svg":
        text = app.export_screenshot(title="kvscope")
    elif form == "txt":
        text = plain(app)
    else:
        text = as_json(app.view) if app.view is not None else "{}"
    Path(name).write_text(text, encoding="utf-8")
    return name


def plain(app: Ordering) -> str:
    """What is on screen as lines of text, no space at their ends."""
    strips = app.screen._compositor.render_strips()
    return "\n".join(strip.text.rstrip() for strip in strips) + "\n"


def as_json(view: View) -> str:
    """Every number of the view; what is unknown is an object that says why and what would supply it."""
    return json.dumps(_plain(view), indent=1, ensure_ascii=False) + "\n"


def _plain(value: Any) -> Any:
    if isinstance(value, Missing):
        return {"missing": value.reason, "remedy": value.remedy}
    if is_dataclass(value) and not isinstance(value, type):
        return {name: _plain(getattr(value, name)) for name in value.__dataclass_fields__}
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value
