"""Backends, found by file name; what has no file of its own is `generic`, and labelled untested."""

from __future__ import annotations

from engine.devices._base import Device
from engine.discovery import load, module_names


def names() -> tuple[str, ...]:
    return module_names(__path__)


def get(text: str, dtype: str = "auto") -> Device:
    """Open a device as torch spells it (`cuda:1`); ValueError says what is wrong with the device or the dtype."""
    kind = text.partition(":")[0]
    device: Device = load(__name__, kind if kind in names() else "generic").open_device(text, dtype)
    return device
