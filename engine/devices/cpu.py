"""The CPU: the engine's own compiled kernels, float32."""

from __future__ import annotations

import torch

from engine.devices._base import Device
from engine.model import Decoder
from engine.packing import pack


def prepare(model: Decoder) -> None:
    pack(model)


def open_device(text: str, dtype: str) -> Device:
    """ValueError for another type of number: the kernels read float32."""
    if dtype not in ("auto", "float32"):
        raise ValueError(f"dtype {dtype!r}: device {text!r} computes in float32")
    return Device("cpu", torch.device("cpu"), torch.float32, prepare=prepare)
