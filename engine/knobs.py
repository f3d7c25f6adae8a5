"""What can be changed on a running engine: one frozen object, replaced whole between two steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches

from engine import admission, policies

SPARSE_KERNELS = ("generic", "block")


class KnobError(ValueError):
    """A knob that does not exist or a value it cannot take; the message names the nearest valid one."""


@dataclass(frozen=True, slots=True)
class Knobs:
    """Live settings. Shares are 0 to 1; ``kernels`` is used by sparse policies only (a full policy reads densely)."""

    policy: str = "full"
    kernels: str = "generic"
    kept_share: float = 0.25
    hot_share: float = 0.10
    evict_share: float = 0.0
    sink_tokens: int = 32
    window_tokens: int = 128
    min_read_tokens: int = 512
    promote_after: int = 0
    admission: str = "watermark"
    watermark: float = 0.02
    max_running: int = 8
    prefill_chunk: int = 512

    def __post_init__(self) -> None:
        _one_of("policy", self.policy, policies.names())
        _one_of("kernels", self.kernels, SPARSE_KERNELS)
        _one_of("admission", self.admission, admission.names())
        for name in ("kept_share", "hot_share", "evict_share", "watermark"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise KnobError(f"knob {name} is {getattr(self, name)!r}, expected a share from 0 to 1")
        if self.kept_share == 0.0:
            raise KnobError("knob kept_share is 0.0, expected more than 0: decode must read something")
        for name in ("max_running", "prefill_chunk"):
            if getattr(self, name) < 1:
                raise KnobError(f"knob {name} is {getattr(self, name)!r}, expected at least 1")
        for name in ("sink_tokens", "window_tokens", "min_read_tokens", "promote_after"):
            if getattr(self, name) < 0:
                raise KnobError(f"knob {name} is {getattr(self, name)!r}, expected 0 or more")

    def with_text(self, changes: Mapping[str, str]) -> Knobs:
        """Return a copy with ``changes`` (text as typed) applied; raises KnobError and changes nothing otherwise."""
        values: dict[str, object] = {}
        for name, text in changes.items():
            _one_of("name", name, names(), what="knob")
            values[name] = _PARSE[type(getattr(self, name))](name, text)
        return replace(self, **values)  # type: ignore[arg-type]

    def as_text(self) -> dict[str, str]:
        return {field.name: str(getattr(self, field.name)) for field in fields(self)}


def names() -> tuple[str, ...]:
    """Every knob's name."""
    return tuple(field.name for field in fields(Knobs))


def _one_of(name: str, value: str, valid: tuple[str, ...], what: str = "") -> None:
    if value not in valid:
        close = get_close_matches(value, valid, n=1)
        hint = f", did you mean {close[0]!r}?" if close else ""
        raise KnobError(f"{what or 'knob ' + name} {value!r}: expected one of {', '.join(valid)}{hint}")


def _number(kind: type[int] | type[float]) -> Callable[[str, str], object]:
    def parse(name: str, text: str) -> object:
        try:
            return kind(text)
        except ValueError:
            expected = "a whole number" if kind is int else "a number"
            raise KnobError(f"knob {name} is {text!r}, expected {expected}") from None

    return parse


_PARSE: dict[type, Callable[[str, str], object]] = {
    int: _number(int),
    float: _number(float),
    str: lambda _name, text: text,
}
