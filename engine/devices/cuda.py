"""NVIDIA GPUs: Triton kernels under CUDA graphs, bfloat16 unless float32 is asked for. Run on an H200."""

from __future__ import annotations

import os

import torch

from engine.devices._base import Device
from engine.model import Attention, Decoder

DTYPES = {"auto": torch.bfloat16, "bfloat16": torch.bfloat16, "float32": torch.float32}


def prepare(model: Decoder) -> None:
    """Rotation in one launch, where the head's half is a power of two."""
    from engine.kernels._cuda.turn import turn

    half = model.config.head_dim // 2
    if half & (half - 1) == 0:
        for module in model.modules():
            if isinstance(module, Attention):
                module.turn = turn


def open_device(text: str, dtype: str) -> Device:
    """ValueError where there is no such GPU, or no Triton."""
    if dtype not in DTYPES:
        raise ValueError(f"dtype {dtype!r}: expected one of {', '.join(DTYPES)}")
    try:
        device = torch.device(text)
    except RuntimeError:
        raise ValueError(f"device {text!r}: expected cuda or cuda:N") from None
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if (device.index or 0) >= count:
        raise ValueError(f"device {text!r}: {count} CUDA devices are visible here; expected cpu")
    # Triton 3.10 turns fusion of multiply and add off by default, and 3.9 warns of it.
    os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")
    try:
        from engine.kernels._cuda.operators import Triton
    except ImportError as error:
        raise ValueError(f"device {text!r}: needs the extra `triton` ({error})") from None
    device = torch.device("cuda", device.index or 0)
    torch.cuda.set_device(device)
    return Device("cuda", device, DTYPES[dtype], Triton(), graphs=True, prepare=prepare)
