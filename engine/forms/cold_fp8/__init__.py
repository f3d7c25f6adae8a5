"""Eight-bit floats (e4m3: 4 bits of exponent, 3 of mantissa) with one float32 scale per token, laid out as int8 is.

Relative error is the same for small and large channels of a row, where int8's is that of the largest: better where a
row has outliers, worse where it has none.
"""

from __future__ import annotations

import torch

from engine.forms.cold_int8 import ColdInt8


class ColdFp8(ColdInt8):
    MOST = 448.0
    """The largest e4m3 value."""

    def _narrow(self, values: torch.Tensor) -> torch.Tensor:
        return values.to(torch.float8_e4m3fn)

    def _widen(self, data: torch.Tensor) -> torch.Tensor:
        return data.view(torch.float8_e4m3fn).float()


FORM = ColdFp8()
ON_DEVICE = ColdFp8(by_channels=True)
