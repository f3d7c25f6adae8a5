"""Any other device that torch knows (npu through torch_npu, xpu, mps...): plain operators, float32 unless asked.

Never run on such hardware by us: views say so. ROCm presents itself to torch as `cuda` and takes that way.
"""

from __future__ import annotations

import importlib
from contextlib import suppress

import torch

from engine.devices._base import Device
from engine.devices._plain import Plain

DTYPES = {"auto": torch.float32, "bfloat16": torch.bfloat16, "float32": torch.float32}
UNTESTED = "untested"


def open_device(text: str, dtype: str) -> Device:
    """ValueError where torch cannot put a tensor there."""
    if dtype not in DTYPES:
        raise ValueError(f"dtype {dtype!r}: expected one of {', '.join(DTYPES)}")
    kind = text.partition(":")[0]
    with suppress(ImportError):
        importlib.import_module(f"torch_{kind}")
    try:
        device = torch.device(text)
        torch.zeros(1, device=device).add_(1)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(f"device {text!r}: torch has no such device here ({reason}); expected cpu or cuda") from None
    return Device(f"{text} ({UNTESTED})", device, DTYPES[dtype], Plain())
