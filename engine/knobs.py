"""What can be changed on a running engine: one frozen object, replaced whole between two steps."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from typing import Any

from engine import admission, forms, policies
from engine.admission._curve import parse as parse_curve
from engine.representatives import KINDS as REPRESENTATIVES
from probes.border import shown

SPARSE_KERNELS = ("generic", "block", "compiled")
STRUCTURE = ("pool", "split_hot", "representatives", "lowrank_rank", "block_entries", "host_mib")
"""Knobs that shape the pool itself: a change drops everything stored, and it is computed again."""


MOST = 1 << 24
"""No count is larger: a context of sixteen million tokens is none that this engine computes."""


class KnobError(ValueError):
    """A knob that does not exist or a value it cannot take; the message names the nearest valid one."""


def _choice(default: str, valid: Callable[[], tuple[str, ...]]) -> Any:
    return field(default=default, metadata={"valid": valid})


def _share(default: float, *, zero: bool = True) -> Any:
    return field(default=default, metadata={"above_zero": not zero, "share": True})


def _count(default: int, least: int = 0, most: int = MOST) -> Any:
    return field(default=default, metadata={"least": least, "most": most})


def _memory_mib() -> int:
    """What this machine has."""
    return int(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")) >> 20


@dataclass(frozen=True, slots=True)
class Knobs:
    """Live settings. ``kernels`` is used by sparse policies only (a full policy reads densely).

    ``kept_share`` is the share of the context that decode reads, or, where a policy drops the rest, that it keeps.
    ``importance`` is query-blind (a prompt's own tokens vote, before any question was seen) or query-aware (the
    question and the queries of decode vote too).
    ``block_entries`` is what the cold form thinned keeps of every block. ``host_mib`` 0 means no host tier,
    ``host_link_mb_s`` 0 no throttle.
    """

    policy: str = _choice("full", policies.names)
    kernels: str = _choice("generic", lambda: SPARSE_KERNELS)
    selector: str = _choice("same", lambda: ("same", "generic", "block", "oracle"))
    kept_share: float = _share(0.25, zero=False)
    hot_share: float = _share(0.10)
    evict_share: float = _share(0.0)
    cold_form: str = _choice("cold_int8", lambda: tuple(name for name in forms.names() if name != "hot"))
    importance: str = _choice("blind", lambda: ("blind", "aware"))
    structure: str = _choice("dynamic", lambda: ("dynamic", "static"))
    static_blocks: int = _count(16, 1)
    representatives: str = _choice("sub_bounds", lambda: tuple(REPRESENTATIVES))
    lowrank_rank: int = _count(16, 4)
    block_entries: int = _count(8, 1)
    sink_tokens: int = _count(32)
    window_tokens: int = _count(128)
    min_read_tokens: int = _count(512)
    promote_after: int = _count(0)
    demote_after: int = _count(0)
    pool: str = _choice("arena", lambda: ("arena", "split", "contiguous"))
    split_hot: float = _share(0.5)
    host_mib: int = _count(0, most=_memory_mib())
    host_link_mb_s: float = field(default=0.0, metadata={"least": 0, "most": 1e9})
    host_share: float = _share(0.0)
    prefetch: float = _share(0.0)
    admission: str = _choice("watermark", admission.names)
    curve: str = field(default="0:0.6,8192:0.35,32768:0.28", metadata={"check": parse_curve})
    curve_margin: float = _share(0.15)
    watermark: float = _share(0.02)
    preemption: str = _choice("recompute", lambda: ("recompute", "swap"))
    max_running: int = _count(8, 1, 1 << 16)
    prefill_chunk: int = _count(512, 1)
    step_tokens: int = _count(0)
    prefix_cache: str = _choice("on", lambda: ("on", "off"))
    audit_steps: int = _count(0)
    margin_every: int = _count(8)
    shadow_every: int = _count(0)

    def __post_init__(self) -> None:
        for one in fields(self):
            _check(one.name, getattr(self, one.name), one.metadata)

    def with_text(self, changes: Mapping[str, str]) -> Knobs:
        """Return a copy with ``changes`` (text as typed) applied; raises KnobError and changes nothing otherwise."""
        values: dict[str, object] = {}
        for name, text in changes.items():
            _one_of("name", name, names(), what="knob")
            values[name] = _PARSE[type(getattr(self, name))](name, text)
        return replace(self, **values)  # type: ignore[arg-type]

    @property
    def operators(self) -> tuple[str, str]:
        """Kernels that choose and kernels that read, by name: a policy that chooses nothing has one way to read."""
        if not policies.get(self.policy).SPARSE:
            return "dense", "dense"
        return self.kernels if self.selector == "same" else self.selector, self.kernels

    def as_text(self) -> dict[str, str]:
        return {field.name: str(getattr(self, field.name)) for field in fields(self)}


def names() -> tuple[str, ...]:
    """Every knob's name."""
    return tuple(field.name for field in fields(Knobs))


def _check(name: str, value: Any, rules: Mapping[str, Any]) -> None:
    """KnobError when ``value`` breaks one of the rules its knob was declared with."""
    if "valid" in rules:
        _one_of(name, value, rules["valid"]())
    if "share" in rules and not 0.0 <= value <= 1.0:
        raise KnobError(f"knob {name} is {value!r}, expected a share from 0 to 1")
    if rules.get("above_zero") and value == 0.0:
        raise KnobError(f"knob {name} is 0.0, expected more than 0: decode must read something")
    if "least" in rules and not value >= rules["least"]:
        raise KnobError(f"knob {name} is {shown(value)}, expected at least {rules['least']}")
    if "most" in rules and not value <= rules["most"]:
        raise KnobError(f"knob {name} is {shown(value)}, expected at most {rules['most']}")
    if "check" in rules:
        try:
            rules["check"](value)
        except ValueError as error:
            raise KnobError(f"knob {name}: {error}") from None


def _one_of(name: str, value: str, valid: tuple[str, ...], what: str = "") -> None:
    if value not in valid:
        close = get_close_matches(value, valid, n=1)
        hint = f", did you mean {close[0]!r}" if close else ""
        # The hint first: a long list of names is cut where it is told.
        raise KnobError(f"{what or 'knob ' + name} {shown(value)}{hint}; expected one of {', '.join(valid)}")


def _number(kind: type[int] | type[float]) -> Callable[[str, str], object]:
    def parse(name: str, text: str) -> object:
        try:
            return kind(text)
        except ValueError:
            expected = "a whole number" if kind is int else "a number"
            raise KnobError(f"knob {name} is {shown(text)}, expected {expected}") from None

    return parse


_PARSE: dict[type, Callable[[str, str], object]] = {
    int: _number(int),
    float: _number(float),
    str: lambda _name, text: text,
}
