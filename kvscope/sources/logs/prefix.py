"""What stands before an engine's own words in a log: who collected the line, when, and the engine's own stamp.

Peeled one after another: docker compose, kubectl ``--prefix``, the CRI's files, docker and kubectl ``--timestamps``,
journald, JSON of docker and of structured loggers, ANSI colours. A time with a zone beats one without.
"""

from __future__ import annotations

import datetime
import json
import re
from typing import NamedTuple

_ANSI = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_ISO = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?"
_WRAPS = (
    # Quoted or set off, as people paste into a report.
    re.compile(r"(?:> ?| {4}(?=[^\s])|`(?=[^`]))"),
    re.compile(r"(?P<who>[A-Za-z0-9][\w.-]{0,80})\s{0,40}\| "),
    re.compile(r"\[pod/(?P<who>[^/\]\s]{1,120})/[^\]\s]{1,120}\] "),
    re.compile(rf"(?P<t>{_ISO}) (?:stdout|stderr) [FP] "),
    re.compile(rf"(?P<t>{_ISO}) (?P<who>[\w.-]{{1,80}}) [^\s\[:]{{1,80}}(?:\[\d+\])?: "),
    re.compile(
        r"(?P<t>(?:[^\W\d_]{3,5}\.?|\d{1,2}月) [ \d]?\d \d\d:\d\d:\d\d(?:\.\d+)?) "
        r"(?P<who>\S{1,80}) [^\s\[:]{1,80}(?:\[\d+\])?: "
    ),
    re.compile(rf"(?P<t>{_ISO})(?: \||) "),
)
_MOST_WRAPS = 4

_STAMPS = (
    re.compile(
        r"^(?:\([^()]{1,80}\) )?(?:INFO|WARNING|ERROR|DEBUG|CRITICAL):? (?P<md>\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d+)?)"
    ),
    re.compile(rf"^\[?(?P<iso>{_ISO})"),
    re.compile(rf"\btime=\"?(?P<iso>{_ISO})"),
    re.compile(r"^[IWEF](?P<glog>\d{4} \d\d:\d\d:\d\d(?:\.\d+)?)\b"),
    re.compile(r"^\[(?P<us>\d\d/\d\d/\d{4}-\d\d:\d\d:\d\d)\]"),
    re.compile(r"^(?:\[\d+\] )?(?P<run>\d{1,6}\.\d\d\.\d{3}\.\d{3}) [A-Z] "),
    re.compile(rf"^(?:\([^()]{{1,80}}\) )\[?(?P<iso>{_ISO})"),
    re.compile(r"\btimestamp=(?P<epoch>\d{10})\b"),
    re.compile(r"^\[(?P<clock>\d\d:\d\d:\d\d)(?: [A-Z]+\d+)*\] "),
)
_MESSAGES = ("log", "message", "msg", "MESSAGE", "textPayload")
_TIMES = ("time", "timestamp", "@timestamp", "ts", "asctime", "__REALTIME_TIMESTAMP")
_LIMIT = 65_536
"""Longest line that is looked into: an engine's account of all its arguments is a few thousand characters."""
_BEGINS = re.compile(
    r"(?:\([^()\n]{1,60}\) )?(?:INFO|WARNING|ERROR|DEBUG) \d\d-\d\d \d\d:\d\d:\d\d"
    r"|\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?: [A-Z]+\d+)*\] (?:Decode|Prefill) batch"
)
"""Where an engine's own line begins: a second one in a line has lost its newline where the text was copied."""
_MONTHS = {
    word: index + 1
    for index, words in enumerate(
        (
            "jan ene gen",
            "feb fév fev",
            "mar mär mrz mrt",
            "apr abr avr",
            "may mai mag mei",
            "jun juin giu",
            "jul juil lug",
            "aug ago aoû",
            "sep set",
            "oct okt ott out",
            "nov",
            "dec dez dic déc",
        )
    )
    for word in words.split()
}
"""Months as journald prints them in the languages of its locales, by their first three letters (``7月`` is July)."""


def plain(text: str) -> str:
    """Return text without terminal colours and other escapes."""
    return _ANSI.sub("", text) if "\x1b" in text else text


def lines_of(raw: str) -> list[str]:
    """Return the lines that were run together into one."""
    if len(raw) > _LIMIT:
        return [raw]
    starts = [found.start() for found in _BEGINS.finditer(raw)][1:]
    return [raw[begin:end] for begin, end in zip([0, *starts], [*starts, len(raw)], strict=True)]


class Line(NamedTuple):
    """One line: when (seconds since the epoch, None where nobody says), who (empty: one speaker), and the words.

    ``zoned``: the time is sure, because it carries a zone. ``run``: seconds since the engine's start, where only those
    are told.
    """

    t: float | None
    who: str
    message: str
    zoned: bool = False
    run: float | None = None


class Peeler:
    """Reads prefixes; ``year`` is taken where a stamp has none (as late as the log's end allows)."""

    def __init__(self, latest: datetime.datetime) -> None:
        self._latest = latest
        self._last = 0
        self._days: dict[str, float] = {}

    def peel(self, raw: str) -> Line:
        """Return when, who and what of a line."""
        text = plain(raw[:_LIMIT]).rstrip("\r\n")
        t: float | None = None
        who, zoned = "", False
        for _ in range(_MOST_WRAPS):
            if text.startswith("{"):
                opened = self._json(text)
                if opened is None:
                    break
                text, told = opened
                if told is not None and t is None:
                    t, zoned = told, True
                continue
            matched = next((found for wrap in _WRAPS if (found := wrap.match(text))), None)
            if matched is None:
                break
            groups = matched.groupdict()
            who = who or (groups.get("who") or "")
            if groups.get("t") and t is None:
                t = self._iso(groups["t"]) if groups["t"][4:5] == "-" else self._journal(groups["t"])
                zoned = groups["t"][-1] == "Z" or "+" in groups["t"][10:]
            text = text[matched.end() :]
        return self._stamped(text, who, t, zoned)

    def _stamped(self, text: str, who: str, t: float | None, zoned: bool) -> Line:
        """Read the engine's own stamp where the wrapping told no sure time."""
        if zoned:
            return Line(t, who, text, True)
        order = (self._last, *(index for index in range(len(_STAMPS)) if index != self._last))
        for index in order:
            matched = _STAMPS[index].search(text[:300])
            if matched is None:
                continue
            self._last = index
            kind = matched.lastgroup or ""
            words = matched[kind]
            if kind == "run":
                minutes, seconds, milli, micro = words.split(".")
                return Line(t, who, text, zoned, int(minutes) * 60 + int(seconds) + int(milli) / 1e3 + int(micro) / 1e6)
            own = self._own(kind, words)
            return Line(own if own is not None else t, who, text, kind == "iso" and words.endswith("Z"))
        return Line(t, who, text, zoned)

    def _own(self, kind: str, words: str) -> float | None:
        if kind == "iso":
            return self._iso(words)
        if kind == "epoch":
            return float(words)
        if kind == "clock":
            return self._today(words)
        if kind == "us":
            return self._iso(f"{words[6:10]}-{words[0:2]}-{words[3:5]}T{words[11:]}")
        if kind == "glog":
            return self._dated(words[0:2], words[2:4], words[5:])
        return self._dated(words[0:2], words[3:5], words[6:])

    def _journal(self, words: str) -> float | None:
        name, day, clock = words.split()
        name = name.lower().rstrip(".")
        month = _MONTHS.get(name) or _MONTHS.get(name[:3])
        if name.endswith("月"):
            month = int(name[:-1])
        return self._dated(f"{month:02d}", f"{int(day):02d}", clock) if month else None

    def _today(self, clock: str) -> float | None:
        """Return the newest moment with that time of day that is not after the log's end."""
        t = self._iso(f"{self._latest:%Y-%m-%d}T{clock}")
        return t - 86_400 if t is not None and t > self._latest.timestamp() + 3600 else t

    def _dated(self, month: str, day: str, clock: str) -> float | None:
        """Return the newest moment of that date that is not after the log's end."""
        for year in (self._latest.year, self._latest.year - 1):
            t = self._iso(f"{year}-{month}-{day}T{clock}")
            if t is not None and t <= self._latest.timestamp() + 86_400:
                return t
        return None

    def _iso(self, words: str) -> float | None:
        day, clock = words[:10], words[11:]
        start = self._days.get(day)
        if start is None:
            try:
                start = datetime.datetime.fromisoformat(day).replace(tzinfo=datetime.UTC).timestamp()
            except (ValueError, OverflowError):
                return None
            if len(self._days) > 1000:
                self._days.clear()
            self._days[day] = start
        zone = 0.0
        if clock.endswith("Z"):
            clock = clock[:-1]
        else:
            cut = max(clock.rfind("+"), clock.rfind("-"))
            if cut > 0:
                hours, minutes = clock[cut + 1 : cut + 3], clock[-2:]
                zone = (int(hours) * 3600 + int(minutes) * 60) * (1 if clock[cut] == "+" else -1)
                clock = clock[:cut]
        try:
            seconds = int(clock[0:2]) * 3600 + int(clock[3:5]) * 60 + float(clock[6:].replace(",", "."))
        except ValueError:
            return None
        return start + seconds - zone

    def _json(self, text: str) -> tuple[str, float | None] | None:
        """Return the words of a structured line and when they were said; None when it is no such line."""
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            return None
        if not isinstance(found, dict):
            return None
        words = next((found[name] for name in _MESSAGES if isinstance(found.get(name), str)), None)
        if words is None:
            return None
        told = next((found[name] for name in _TIMES if name in found), None)
        # What a structured logger kept beside its message belongs to it: slog's and tracing's fields.
        fields = [
            f'{name}="{value}"' if isinstance(value, str) and " " in value else f"{name}={value}"
            for name, value in found.items()
            if name not in (*_MESSAGES, *_TIMES) and isinstance(value, str | int | float)
        ]
        return (" ".join([words.rstrip("\n").replace("\n", " "), *fields])[:_LIMIT], self._when(told))

    def _when(self, told: object) -> float | None:
        if isinstance(told, bool):
            return None
        if isinstance(told, int | float) or (isinstance(told, str) and told.isdecimal() and len(told) < 20):
            value = float(told)
        elif isinstance(told, str) and re.match(_ISO, told):
            return self._iso(told[:40])
        else:
            return None
        # Seconds, milliseconds, microseconds or nanoseconds since the epoch: told apart by their size.
        for scale in (1.0, 1e3, 1e6, 1e9):
            if 1e9 <= value / scale < 1e10:
                return value / scale
        return None
