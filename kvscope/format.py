"""Numbers for a person: a unit once chosen stays, digits stay in their columns, minus is a minus."""

from __future__ import annotations

from dataclasses import dataclass, field

from kvscope.amounts import yes_no

_MINUS = "−"
_STEPS: dict[str, tuple[tuple[float, str], ...]] = {
    "B": ((1.0, "B"), (2.0**10, "KiB"), (2.0**20, "MiB"), (2.0**30, "GiB"), (2.0**40, "TiB")),
    "s": ((1e-6, "µs"), (1e-3, "ms"), (1.0, "s")),
    "ratio": ((0.01, "%"),),
    "": ((1.0, ""), (1e3, "k"), (1e6, "M"), (1e9, "G")),
}
_ALIASES = {
    "share": "ratio",
    "tokens/s": "tok/s",
    "requests": "",
    "tokens": "tok",
    "entries/s": "/s",
    "accesses/s": "/s",
    "events/s": "/s",
    "1/s": "/s",
    "1/token": "",
}


@dataclass(frozen=True, slots=True)
class Scale:
    """A fixed way to write one quantity: divide by ``factor``, keep ``decimals``, append ``unit``."""

    factor: float
    unit: str
    decimals: int

    def number(self, value: float) -> str:
        """The digits alone, with a real minus sign."""
        text = f"{value / self.factor:.{self.decimals}f}"
        return _MINUS + text[1:] if text.startswith("-") else text

    def text(self, value: float) -> str:
        """Digits and unit."""
        return f"{self.number(value)} {self.unit}".rstrip()


def scale_for(value: float, unit: str) -> Scale:
    """Return the scale that shows ``value`` with three or four digits."""
    shown = _ALIASES.get(unit, unit)
    base, suffix = (unit, "") if unit in _STEPS else ("ratio", "") if shown == "ratio" else ("", shown)
    size = abs(value)
    steps = _STEPS[base]
    factor, name = next(((f, n) for f, n in reversed(steps) if size >= f * 0.9995), steps[0])
    if base == "" and name == "k" and size < 10_000:
        factor, name = steps[0]
    scaled = size / factor
    decimals = 0 if scaled >= 100 or (base == "" and suffix == "" and value == int(value)) else 1 if scaled >= 10 else 2
    if base == "ratio" or (unit == "requests" and factor == 1.0 and scaled < 100):
        decimals = 1
    if base == "B" and name == "B":
        decimals = 0
    return Scale(factor, _join(name, suffix), decimals)


def _join(prefix: str, suffix: str) -> str:
    return f"{prefix} {suffix}" if prefix and suffix[:1].isalpha() else prefix + suffix


@dataclass(slots=True)
class Steady:
    """Remembers each quantity's scale, and gives it up only when the number would no longer fit its columns."""

    _scales: dict[str, Scale] = field(default_factory=dict)

    def scale(self, name: str, value: float, unit: str) -> Scale:
        """Return the scale in use for ``name``, choosing anew only when ``value`` left its comfortable range."""
        old = self._scales.get(name)
        if old is not None:
            digits = abs(value) / old.factor
            low = 0.0 if value == 0 else 10.0 ** (1 - old.decimals) * 0.95
            if low <= digits < 10.0 ** (4 - old.decimals):
                return old
        new = scale_for(value, unit)
        self._scales[name] = new
        return new


def quantity(value: float, unit: str) -> str:
    """One number with its unit, where nothing beside it must line up; a flag says yes or no."""
    return yes_no(value, unit) or scale_for(value, unit).text(value)


def with_error(value: float, error: float | None, unit: str) -> str:
    """``value ± error unit`` in one scale; the error alone decides nothing but its own digits."""
    if flag := yes_no(value, unit):
        return flag
    scale = scale_for(value, unit)
    if error is None or not scale.number(error).strip("0."):
        return scale.text(value)
    return f"{scale.number(value)} ± {scale.number(error)} {scale.unit}".rstrip()


def signed(change: float, in_points: bool = False) -> str:
    """A change with its sign: ``+12 %``, ``−3.1 pt``, and ``×12`` beyond ten times."""
    if in_points:
        points = change * 100
        return f"{'+' if points >= 0 else _MINUS}{abs(points):.1f} pt"
    if change >= 9.995:
        return f"×{1 + change:.0f}"
    percent = change * 100
    digits = 0 if abs(percent) >= 9.95 else 1
    return f"{'+' if percent >= 0 else _MINUS}{abs(percent):.{digits}f} %"


def duration(seconds: float) -> str:
    """``45 s``, ``2 min``, ``1 h 05``: for time axes and ages."""
    seconds = max(seconds, 0.0)
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = seconds / 60
    if minutes < 90:
        return f"{minutes:.0f} min" if minutes >= 10 or minutes == int(minutes) else f"{minutes:.1f} min"
    return f"{int(minutes // 60)} h {int(minutes % 60):02d}"


def clip(text: str, width: int) -> str:
    """Cut ``text`` to ``width`` cells, ending in an ellipsis where something was lost."""
    if len(text) <= width:
        return text
    return text[: width - 1] + "…" if width > 0 else ""
