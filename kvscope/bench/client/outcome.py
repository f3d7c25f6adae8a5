"""What became of one request, in the definitions that benchmarks agree on (vLLM's, where they do not).

TTFT: sent to first token, queue included, its text complete or not. TPOT: (last − first) / (output tokens − 1), one
number a request. ITL: every gap between two successive chunks of the stream. E2E: sent to last token.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any


@dataclass(frozen=True, slots=True)
class Outcome:
    """Times in seconds of one clock; ``error`` says why there is no answer; ``late_s``: sent after it was due."""

    sent_s: float
    wanted_in: int
    wanted_out: int
    late_s: float = 0.0
    token_s: tuple[float, ...] = field(default=())
    tokens_in: int | None = None
    tokens_out: int = 0
    error: str = ""

    @property
    def ok(self) -> bool:
        return not self.error and bool(self.token_s)

    @property
    def ended_s(self) -> float:
        return self.token_s[-1] if self.token_s else self.sent_s

    @property
    def ttft_s(self) -> float:
        return self.token_s[0] - self.sent_s

    @property
    def e2e_s(self) -> float:
        return self.token_s[-1] - self.sent_s

    @property
    def tpot_s(self) -> float | None:
        """None for an answer of one token: it has no time between tokens."""
        return (self.token_s[-1] - self.token_s[0]) / (self.tokens_out - 1) if self.tokens_out > 1 else None

    @property
    def gaps_s(self) -> list[float]:
        return [later - earlier for earlier, later in pairwise(self.token_s)]

    def as_json(self) -> dict[str, Any]:
        """Return it with times counted from its sending, in whole microseconds."""
        return {
            "sent_s": round(self.sent_s, 6),
            "late_s": round(self.late_s, 6),
            "in": [self.wanted_in, self.tokens_in],
            "out": [self.wanted_out, self.tokens_out],
            "token_us": [round((t - self.sent_s) * 1e6) for t in self.token_s],
            "error": self.error,
        }

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> Outcome:
        """Read one back; KeyError, TypeError or ValueError when it is none."""
        sent = float(found["sent_s"])
        times = tuple(sent + int(us) / 1e6 for us in found["token_us"])
        wanted_in, tokens_in = found["in"]
        wanted_out, tokens_out = found["out"]
        return cls(sent, wanted_in, wanted_out, found["late_s"], times, tokens_in, tokens_out, str(found["error"]))
