"""Devices, found by file name; what has no file of its own is `generic`, and labelled untested."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.devices._base import Device
from engine.discovery import load, module_names

if TYPE_CHECKING:
    from engine.devices._runner import Runner
    from engine.llm import Engine


def names() -> tuple[str, ...]:
    return module_names(__path__)


def get(text: str, dtype: str = "auto") -> Device:
    """Open a device as torch spells it (`cuda:1`); ValueError says what is wrong with the device or the dtype."""
    kind = text.partition(":")[0]
    device: Device = load(__name__, kind if kind in names() else "generic").open_device(text, dtype)
    return device


def runner_for(engine: Engine) -> Runner | None:
    """What runs the engine's steps on its device; None on the CPU, where it runs them itself."""
    if engine.device is None or engine.device.operators is None:
        return None
    from engine.devices._runner import Runner

    return Runner(engine, engine.device)
