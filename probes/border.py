"""The border: what comes from outside (a file, a page, a request, another process) is bounded here before it is used.

Every reader of kvscope, of the engine and of the probes asks this module for what it takes out of a document, and
never converts by itself. What cannot be used raises ``Refused``, one line that says what, where and what was expected;
it is a ValueError, so that a reader which skips a bad line and counts it goes on doing so. How a reader is written:

    with border.open_file(path, most=MOST) as file:          # regular files only: a FIFO or a device is refused
        document = border.document(file.read(MOST), str(path))        # JSON; nesting and digits are bounded
    for number, row in enumerate(border.items(document.get("rows"), "rows")):
        where = f"{path}, row {number}"
        t = border.time_s(row.get("t"), f"{where}: t")               # a time that a calendar has
        value = border.number(row.get("value"), f"{where}: value")   # finite, and of a size something measured has
        name = border.text(row.get("model"), f"{where}: model")      # bounded, and printable as it stands

``printable`` is the one way in which text of others becomes text of ours: what a terminal would obey or a reader could
not see (control and direction characters, lone surrogates) stands there as its escape. Markup of HTML and of Textual is
escaped where those are written. A gzip stream is unpacked by ``open_packed``, a memory of what was met is a ``Memo``.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import stat
from collections.abc import Callable, Hashable, Iterable, Mapping
from io import BufferedReader
from pathlib import Path
from typing import Any, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

LARGEST = 1e30
"""No counter or gauge is larger: a link of one exabyte a second would take thirty thousand years to move 1e30 bytes.
Squares, and products of eight such values, are finite doubles."""
EXACT = 2**53
"""Whole numbers up to this one are doubles without loss."""
EARLIEST_S, LATEST_S = -62_135_596_800.0, 253_402_300_799.0
"""Years 1 to 9999, in seconds since the epoch: what calendars and ``strftime`` know."""
MOST_DEPTH = 48
"""Lists and objects inside each other. Configurations, profiles and requests use less than twelve."""
MOST_DIGITS = 32
"""Digits of a whole number that are read exactly; a longer one is a float (and infinite beyond 308)."""
PAGE_BYTES = 64 << 20
"""Most bytes of a page or a line, unpacked: ten times the largest real page."""
TEXT_CHARS = 256
"""Longest name, tag or label value kept: it names a setting, and nothing longer belongs on a screen."""
SAID_CHARS = 500
"""Longest message of others (an error body, a reason) that is quoted."""

_GZIP_MAGIC = b"\x1f\x8b"
_UNSEEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e007f]"
)
"""Control characters of both tables, direction and zero-width characters, line separators, tags, lone surrogates."""


class Refused(ValueError):
    """What came cannot be used; the message says what, where and what was expected."""


def printable(said: object, most: int = SAID_CHARS) -> str:
    """Return text of others as text that can be shown: one line, at most ``most`` characters, nothing to obey in it."""
    whole = said if isinstance(said, str) else str(said)
    cut = whole[:most]
    if not cut.isprintable():
        cut = _UNSEEN.sub(_escape, cut)[:most]
    return cut if len(whole) <= most else cut[: most - 1] + "…"


def lines_printable(said: str) -> str:
    """As ``printable`` for text of ours that may quote others: line ends stay, and so does its length."""
    return said if said.isprintable() else "\n".join(_UNSEEN.sub(_escape, line) for line in said.split("\n"))


def _escape(found: re.Match[str]) -> str:
    code = ord(found.group())
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def shown(value: object, most: int = 60) -> str:
    """Return a value as it may be quoted in an error, whatever it is and however long."""
    if isinstance(value, str):
        return repr(printable(value, most))
    if isinstance(value, bool | None | float):
        return repr(value)
    if isinstance(value, int):
        return repr(value) if abs(value) < 10**MOST_DIGITS else f"a number of {len(f'{value:x}')} hexadecimal digits"
    if isinstance(value, list | tuple):
        return f"a list of {len(value)}"
    return "an object" if isinstance(value, Mapping) else printable(type(value).__name__)


def number(value: object, where: str, low: float = -LARGEST, high: float = LARGEST) -> float:
    """Return a finite number from ``low`` to ``high``; true and false are none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Refused(f"{where} is {shown(value)}, expected a number")
    if not low <= value <= high:
        raise Refused(f"{where} is {shown(value)}, expected a number from {low:g} to {high:g}")
    return float(value)


def whole(value: object, where: str, low: int = 0, high: int = EXACT) -> int:
    """Return a whole number from ``low`` to ``high``; true and false are none."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise Refused(f"{where} is {shown(value)}, expected a whole number")
    if not low <= value <= high:
        raise Refused(f"{where} is {shown(value)}, expected a whole number from {low} to {high}")
    return value


def written(value: object, where: str, low: float = -LARGEST, high: float = LARGEST) -> float:
    """As ``number``, and takes one that is written as text, as labels and command lines have it."""
    if isinstance(value, str) and len(value) <= TEXT_CHARS:
        try:
            value = float(value)
        except ValueError:
            raise Refused(f"{where} is {shown(value)}, expected a number") from None
    return number(value, where, low, high)


def time_s(value: object, where: str) -> float:
    """Return seconds since the epoch that a calendar has."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Refused(f"{where} is {shown(value)}, expected a time in seconds since the epoch")
    if not EARLIEST_S <= value <= LATEST_S:
        raise Refused(f"{where} is {shown(value)}, expected seconds since the epoch, of the years 1 to 9999")
    return float(value)


def text(value: object, where: str, most: int = TEXT_CHARS) -> str:
    """Return text of others in printable form, cut at ``most`` characters; a number or a truth value is text too."""
    if isinstance(value, str):
        return printable(value, most)
    if isinstance(value, bool | int | float):
        return printable(shown(value), most)
    raise Refused(f"{where} is {shown(value)}, expected text")


def mapping(value: object, where: str) -> dict[str, Any]:
    """Return an object as a dict with text for keys; one that is absent (None) is empty."""
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise Refused(f"{where} is {shown(value)}, expected an object of names and values")
    return value


def items(value: object, where: str, most: int = 1_000_000) -> list[Any]:
    """Return a list of at most ``most`` entries; one that is absent (None) is empty."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise Refused(f"{where} is {shown(value)}, expected a list")
    if len(value) > most:
        raise Refused(f"{where} is a list of {len(value)}, expected at most {most} entries")
    return value


def tags(value: object, where: str, most: int = 64) -> dict[str, str]:
    """Return name → value of a few tags, both printable and bounded."""
    found = mapping(value, where)
    if len(found) > most:
        raise Refused(f"{where} has {len(found)} names, expected at most {most}")
    return {printable(name, TEXT_CHARS): text(one, f"{where}.{printable(name, 40)}") for name, one in found.items()}


def document(data: str | bytes | bytearray, where: str, most_depth: int = MOST_DEPTH) -> Any:
    """Return what JSON says. Refused for no JSON, and for one nested deeper than ``most_depth``.

    Whole numbers of more digits than ``MOST_DIGITS`` come as floats, which are infinite beyond 308 digits: ``number``
    and ``whole`` refuse those as any other number that nothing measured has.
    """
    try:
        found = DECODER.decode(data if isinstance(data, str) else bytes(data).decode("utf-8"))
    except RecursionError:
        raise Refused(
            f"{where}: nested too deeply, expected at most {most_depth} lists and objects in another"
        ) from None
    except ValueError as error:
        raise Refused(f"{where}: no JSON ({printable(error, 120)})") from None
    return shallow(found, where, most_depth)


_OPENS = re.compile(r"^[\s>`|]{0,20}(?=[\[{][\s\[{\"])", re.MULTILINE)
_MOST_EMBEDDED = 2000


def embedded(text: str) -> Iterable[Any]:
    """Yield each JSON object or list that begins a line of a text, quoted or fenced as it may be."""
    position = 0
    for _ in range(_MOST_EMBEDDED):
        found = _OPENS.search(text, position)
        if found is None:
            return
        try:
            document, position = DECODER.raw_decode(text, found.end())
            yield shallow(document, "text")
        except (ValueError, RecursionError):
            position = found.end() + 1


def shallow(found: Any, where: str, most_depth: int = MOST_DEPTH) -> Any:
    """Return a document of lists and dicts unchanged; Refused where it is nested deeper than ``most_depth``."""
    level: list[Any] = [found]
    for _ in range(most_depth):
        # Each but once: YAML's aliases name one list in many places, and sixty doubled ones would be walked 2^60 times.
        level = list({id(inner): inner for outer in level for inner in _inside(outer)}.values())
        if not level:
            return found
    raise Refused(_too_deep(where, most_depth))


def _too_deep(where: str, most_depth: int) -> str:
    return f"{where}: nested too deeply, expected at most {most_depth} lists and objects in each other"


def _inside(outer: Any) -> Iterable[Any]:
    values = outer.values() if isinstance(outer, dict) else outer if isinstance(outer, list) else ()
    return [value for value in values if isinstance(value, dict | list)]


def _integer(digits: str) -> int | float:
    return int(digits) if len(digits) <= MOST_DIGITS else float(digits)


DECODER = json.JSONDecoder(parse_int=_integer)


def exists(typed: str) -> bool:
    """Whether what somebody typed is the path of something there; a name that no file can have is none."""
    try:
        return os.path.exists(os.path.expanduser(typed))
    except ValueError:
        return False


def open_file(path: Path | str, most: int | None = None) -> BufferedReader:
    """Open a regular file for reading. Refused for a folder, a FIFO, a socket or a device, and for more bytes than
    ``most``; OSError where the system says no. Opening never waits for somebody to write."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except ValueError as error:
        raise Refused(f"{printable(path, 80)}: no name that a file can have ({printable(error)})") from None
    try:
        about = os.fstat(handle)
        if not stat.S_ISREG(about.st_mode):
            raise Refused(f"{printable(path)}: {_kind(about.st_mode)}; expected a file")
        if most is not None and about.st_size > most:
            raise Refused(f"{printable(path)}: {about.st_size} bytes, expected at most {most}")
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def read_file(path: Path | str, most: int = PAGE_BYTES) -> bytes:
    """Return the bytes of a regular file of at most ``most``. Refused, OSError."""
    with open_file(path, most) as file:
        return file.read(most)


def open_packed(path: Path | str) -> gzip.GzipFile | BufferedReader:
    """Open a regular file that may be gzipped: its unpacked bytes, however many. Read them in bounded pieces."""
    file = open_file(path)
    try:
        packed = file.read(2) == _GZIP_MAGIC
        file.seek(0)
        return _Packed(file) if packed else file
    except BaseException:
        file.close()
        raise


class _Packed(gzip.GzipFile):
    """A gzip stream that closes the file below it too."""

    def __init__(self, file: BufferedReader) -> None:
        super().__init__(fileobj=file, mode="rb")
        self._below = file

    def close(self) -> None:
        super().close()
        self._below.close()


def _kind(mode: int) -> str:
    kinds: tuple[tuple[Callable[[int], bool], str], ...] = (
        (stat.S_ISDIR, "a folder"),
        (stat.S_ISFIFO, "a FIFO"),
        (stat.S_ISSOCK, "a socket"),
        (stat.S_ISCHR, "a device"),
        (stat.S_ISBLK, "a device"),
    )
    return next((name for test, name in kinds if test(mode)), "no regular file")


class Memo(Generic[K, V]):
    """A memory of what was met, bounded in bytes: when ``most_bytes`` are reached it forgets all and begins again.

    ``cost`` of an entry is what the caller says its key and value weigh, besides ``ENTRY_BYTES`` for the entry itself.
    """

    ENTRY_BYTES = 200

    def __init__(self, most_bytes: int) -> None:
        self.known: dict[K, V] = {}
        self.bytes = 0
        self._most = most_bytes

    def put(self, key: K, value: V, cost: int) -> V:
        """Remember, and return the value."""
        if self.bytes + cost + self.ENTRY_BYTES > self._most:
            self.clear()
        self.known[key] = value
        self.bytes += cost + self.ENTRY_BYTES
        return value

    def offer(self, key: K, value: V, cost: int) -> bool:
        """Remember where there is room; return whether there was. What is known already is not forgotten for it."""
        fits = self.bytes + cost + self.ENTRY_BYTES <= self._most
        if fits:
            self.put(key, value, cost)
        return fits

    def clear(self) -> None:
        """Forget all."""
        self.known.clear()
        self.bytes = 0


def weight(labels: Iterable[tuple[str, str]]) -> int:
    """Return about how many bytes a label set weighs."""
    return sum([100 + len(name) + len(value) for name, value in labels])


def finite(value: float) -> bool:
    """Whether a measured value can be used: a number, and not larger than anything that is measured."""
    return -LARGEST <= value <= LARGEST
