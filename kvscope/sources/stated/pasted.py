"""Results as people paste them: lists of ``name: value`` and tables, of whatever benchmark printed them.

Nothing here knows a tool. A label is taken apart into statistic (``p99``, ``Mean``), unit (``(ms)``, ``tok/s``) and
quantity; what is left must be a name in ``named.yaml``, whole. A table is read by what its head names: statistics
(a row a quantity), quantities (a row a run), or runs (a column a run). A name that comes again begins another run;
a run's title is the last line of words before it.
"""

from __future__ import annotations

import contextlib
import csv
import re
from collections.abc import Iterable, Sequence, Set

from kvscope import kv_types
from kvscope.sources.stated.named import NUMBER, VALUE, Cell, Label, Run, cells_of, label_of, table

_LINES = 20_000
_LONGEST = 2_000
_PAIR = re.compile(r"^(?P<label>[A-Za-z#][^:=|]{0,80}?)\s*(?:[:=]|\s{2,})\s*(?P<value>\S.{0,80}?)\s*$")
_AMOUNT = re.compile(
    rf"(?<![\w.])({NUMBER}) ((?:total |output |input |prompt )?(?:tokens?|toks?|requests?|reqs?)/s(?:ec)?)\b"
)
_BARS = str.maketrans({"┃": "|", "│": "|", "║": "|", "¦": "|"})
_COLUMN = re.compile(r"\s{2,}|\t")
_PAIRS = re.compile(r"\s{3,}(?=[A-Za-z-][^:=]{1,60}[:=] |[=-]{4,})")
"""Between two results that were pasted side by side."""
_LISTED = re.compile(r",\s+(?=[A-Za-z][\w ]{1,40}[:=])")
_RULES = "+-=|╒╞╘╡╕╛├└┌┏┡╇┳━─┬┼┴╤╪╧═┐┘┤┓┩╈╋┻┗┛ "
_LOGGED = re.compile(r"\b(?:INFO|WARNING|ERROR|DEBUG)\b.{0,40}\d\d:\d\d:\d\d|^\[?\d{4}-\d\d-\d\d[ T]\d\d:")
"""A server's own lines, whose names are not a result's."""
_NOISE = re.compile(r"it/s|%\||^tip:|^[\W\d_]*$|^```|^Traffic |^Burstiness|^Starting |^Initial ", re.IGNORECASE)
_BANNER = re.compile(r"Benchmark Result|LLM Metrics|^=+ ?Result|metrics summary", re.IGNORECASE)
_KV_WORD = re.compile(
    r"(?:kv[-_ ]?cache[-_ ]?(?:d?type|quant\w*)|cache[-_]type[-_]k|-ctk|\btype_k|\bkv(?:[-_ ]?cache)?)"
    r"[\s=:`'\"]{1,6}([A-Za-z]\w{1,30})|"
    r"\b([A-Za-z]\w{1,16})[- ]kv\b",
    re.IGNORECASE,
)


def looks(text: str) -> bool:
    """Whether a text tells how fast or slow something was: a latency or rate, and another number of it or of a run."""
    kinds = {name: one["unit"] for name, one in table()[3].items()}
    known: set[str] = set()
    for run in Reader().read(text):
        named = {quantity for quantity, _ in run.cells}
        told = {one for one in named - {"duration", "offered"} if kinds[one] in ("s", "rate")}
        if told and (len(named) > 1 or told & known):
            return True
        known |= told
    return False


class Reader:
    """Reads a text line by line into runs; results side by side are told apart by their order in the line."""

    def __init__(self) -> None:
        self.runs: list[Run] = []
        self._open: dict[int, Run] = {}
        self._title: list[str] = []
        self._banner = self._blank = False
        self._rows: list[list[str]] = []
        self._piped = False
        self._scale: float | None = None
        """Size of a latency's unit where the tool prints none; its banner tells which tool that is."""

    def read(self, text: str) -> list[Run]:
        """Return the runs of a text that hold a number."""
        for raw in [*text.splitlines()[:_LINES], ""]:
            line = raw[:_LONGEST].translate(_BARS).strip().removeprefix("> ").strip()
            if line.startswith('"'):
                line = line.replace('"', "").rstrip(",")
            piped = (line.startswith("|") and line.count("|") > 2) or line.count(" | ") > 1
            if self._rows and line and not line.strip(_RULES):
                continue
            parts = _parts(line, piped)
            piped = piped or (line.count(",") > 1 and self._in_csv(parts))
            aligned = not piped and len(parts) > 2 and not _PAIRS.search(line) and label_of(line) is None
            if self._rows and not (piped if self._piped else aligned):
                self._end_table()
            if piped or aligned:
                self._piped = piped
                self._rows.append(parts)
            elif not _LOGGED.search(line):
                self._line(line)
        found = [run for run in self.runs if run.cells]
        for run in found:
            run.title = title_of(run.lines, {line for other in found if other is not run for line in other.lines})
        return found

    def _in_csv(self, parts: Sequence[str]) -> bool:
        """Whether cells between commas belong to a table: its head names quantities or statistics."""
        if self._rows:
            return self._piped and len(parts) == len(self._rows[0]) > 2
        statistics = table()[1]
        return len(parts) > 2 and sum(one.lower() in statistics or label_of(one) is not None for one in parts) > 1

    def _line(self, line: str) -> None:
        found = False
        for index, side in enumerate(_PAIRS.split(line)):
            for part in _LISTED.split(side):
                found |= self._pair(part, index)
        if not found and not self._amounts(line):
            self._words(line)

    def _pair(self, part: str, index: int) -> bool:
        matched = _PAIR.match(part.strip())
        label = label_of(matched["label"].strip()) if matched is not None else None
        if matched is not None and label is None and (rated := VALUE.fullmatch(matched["value"])) and rated[2]:
            # "throughput: 22.9 token/s": of what, its unit tells.
            label = label_of(f"{matched['label'].strip()} {rated[2]}")
        if matched is None or label is None:
            if index and not _BANNER.search(part) and not self._open.setdefault(index, Run()).labels:
                # What heads the second of two columns.
                self._open[index].lines.append(part.strip())
            elif index in self._open and not self._title and not self._blank and self._open[index].kv_bits is None:
                # A line among a run's own figures; after a blank one it heads the next run.
                self._open[index].kv_bits = _bits(part)
            return False
        if label.scale is None and self._scale is not None and table()[3][label.quantity]["unit"] == "s":
            label = label._replace(scale=self._scale)
        self._take(cells_of(label, matched["value"]), matched["label"], index)
        return True

    def _amounts(self, line: str) -> bool:
        """``Throughput: 0.13 requests/s, 99.79 total tokens/s``: the number stands before its name."""
        found = False
        for value, name in _AMOUNT.findall(line) if "hroughput" in line else ():
            label = label_of(name)
            if label is not None:
                self._take([Cell(label.quantity, "", float(value.replace(",", "")))], name, 0)
                found = True
        return found

    def _words(self, line: str) -> None:
        if _BANNER.search(line):
            self._banner, self._scale = True, 1.0 if "metrics summary" in line.lower() else None
        elif not line:
            self._blank = True
        elif not _NOISE.search(line):
            self._title.append(line)

    def _take(self, cells: Iterable[Cell], label: str, index: int) -> None:
        told = list(cells)
        if not told:
            return
        run = self._open.get(index)
        if run is None or label in run.labels or (self._banner and index == 0) or (index and not run.labels):
            run = self._new(index)
        self._title, self._banner, self._blank = [], False, False
        run.take(told)
        run.labels.add(label)

    def _new(self, index: int) -> Run:
        headed = self._open.get(index) if index else None
        if index == 0:
            self._open = {place: run for place, run in self._open.items() if place and not run.labels}
        lines = headed.lines if headed is not None else [_PAIRS.split(line)[0] for line in self._title]
        run = Run(lines=lines, kv_bits=_bits("\n".join(lines[-6:])))
        self._open[index] = run
        self.runs.append(run)
        return run

    def _end_table(self) -> None:
        rows, self._rows = self._rows, []
        if not self._piped and self._title and len(head := _COLUMN.split(self._title[-1])) == len(rows[0]) - 1 > 1:
            # A head of two columns above three: its first is empty.
            rows.insert(0, head)
        found = of_table(rows)
        if not found:
            self._title += ["  ".join(row) for row in rows[:1] if not self._piped]
            return
        known = self._open.get(0)
        if known is not None and len(found) == 1 and not (found[0].labels & known.labels) and not self._banner:
            # What follows a table of the same run adds to it.
            known.labels |= found[0].labels
            known.cells = {**found[0].cells, **known.cells}
        else:
            for run in found:
                run.kv_bits = _bits(f"{run.title} kv") or _bits("\n".join(self._title[-6:]))
                run.lines = [*self._title, run.title] if run.title else self._title
            self.runs += found
            self._open = {0: found[-1]}
        self._title, self._banner = [], False


def _parts(line: str, piped: bool) -> list[str]:
    """Return the cells of a line: between pipes, two blanks, or commas."""
    if piped:
        return [cell.strip() for cell in line.removeprefix("|").removesuffix("|").split("|")]
    if line.count(",") > 1 and not _COLUMN.search(line):
        with contextlib.suppress(csv.Error, StopIteration):
            return [cell.strip() for cell in next(csv.reader([line]))]
    return _COLUMN.split(line)


def _bits(text: str) -> float | None:
    """Return the bits of a KV element that words name: by an option, or right before "KV"."""
    for one, two in _KV_WORD.findall(text):
        kind = kv_types.find((one or two).lower())
        if kind is not None and kind.bits() is not None:
            return kind.bits()
    return None


def title_of(lines: Sequence[str], others: Set[str] = frozenset()) -> str:
    """Return what a run is called: the last line of words before it that no other run has, without marks."""
    for line in reversed([one for one in lines if one not in others] or lines):
        text = line.strip(" #*>`=-:\t").replace("`", "")
        if text and len(text) < 200 and not re.search(r"\w: +\S", text):
            return text[:80]
    return ""


def of_table(rows: Sequence[Sequence[str]]) -> list[Run]:
    """Return the runs of a table of cells, by what its head names."""
    body = [list(row) for row in rows if not all(not cell or set(cell) <= set("-=:+━─ ") for cell in row)]
    width = max((len(row) for row in body), default=0)
    # Where columns are told apart by spaces, the head has none above the names of its rows.
    body = [
        [""] * (width - len(row)) + row if index == 0 else row + [""] * (width - len(row))
        for index, row in enumerate(body)
        if len(row) > 1
    ]
    if len(body) < 2 or width < 2:
        return []
    head, rest = _heads(body)
    if not rest:
        return []
    labels = [label_of(cell) for cell in head]
    named = [index for index, label in enumerate(labels) if label is not None]
    statistics = table()[1]
    by_statistic = [index for index, cell in enumerate(head) if cell.lower().strip(". ") in statistics]
    own = [label_of(row[0]) for row in rest]
    if by_statistic and any(own):
        return _by_statistic(head, by_statistic, rest, own)
    if len(named) >= 2:
        return _by_row(head, labels, rest)
    return _by_column(head, rest, own) if any(own) else _by_arm(head, rest[-1])


def _heads(body: list[list[str]]) -> tuple[list[str], list[list[str]]]:
    """Join the head's rows (GuideLLM prints three): a cell that is empty belongs to the one before it."""
    depth = 1
    while depth < min(4, len(body)) and not any(
        re.search(r"\d", cell) and not re.fullmatch(r"[pP]\d\d", cell) for cell in body[depth]
    ):
        depth += 1
    if depth == 1 or depth == len(body):
        return body[0], body[1:]
    parts: list[list[str]] = [[] for _ in body[0]]
    for level, row in enumerate(body[:depth]):
        last = ""
        for index, cell in enumerate(row):
            last = cell or (last if index and level + 1 < depth else "")
            if last:
                parts[index].append(last)
    return [" ".join(one) for one in parts], body[depth:]


def _by_statistic(
    head: Sequence[str], columns: Sequence[int], rows: Sequence[Sequence[str]], labels: Sequence[Label | None]
) -> list[Run]:
    run = Run()
    statistics = table()[1]
    for row, label in zip(rows, labels, strict=True):
        if label is None:
            continue
        for index in columns:
            statistic = statistics[head[index].lower().strip(". ")]
            run.take(cells_of(label._replace(statistics=(statistic,)), row[index]), row[0])
    return [run] if run.cells else []


def _by_row(head: Sequence[str], labels: Sequence[Label | None], rows: Sequence[Sequence[str]]) -> list[Run]:
    others = [
        index
        for index, label in enumerate(labels)
        if label is None and not all(not row[index] or VALUE.fullmatch(row[index]) for row in rows)
    ]
    differ = [index for index in others if len({row[index] for row in rows}) > 1] or others[:1]
    found = []
    for row in rows:
        run = Run(", ".join(row[index].replace("`", "") for index in differ if row[index])[:80])
        for index, label in enumerate(labels):
            if label is not None:
                run.take(cells_of(label, row[index]), head[index])
        if run.cells:
            found.append(run)
    return found


def _by_column(head: Sequence[str], rows: Sequence[Sequence[str]], labels: Sequence[Label | None]) -> list[Run]:
    found = []
    for index in range(1, len(head)):
        run = Run(head[index].replace("`", "")[:80])
        for row, label in zip(rows, labels, strict=True):
            if label is not None:
                run.take(cells_of(label, row[index]), row[0])
        if run.cells:
            found.append(run)
    return found


def _by_arm(head: Sequence[str], row: Sequence[str]) -> list[Run]:
    """Read a row whose columns are a quantity of one run beside that of another: ``TTFT auto | TTFT fp8``."""
    found: dict[str, Run] = {}
    for cell, value in zip(head, row, strict=True):
        words = cell.split()
        for at in range(1, len(words)):
            first, last = " ".join(words[:at]), " ".join(words[at:])
            label, arm = (label_of(first), last) if label_of(first) is not None else (label_of(last), first)
            if label is not None:
                found.setdefault(arm, Run(arm)).take(cells_of(label, value), cell)
    told = [set(run.cells) for run in found.values()]
    return [run for run in found.values() if run.cells and sum(set(run.cells) == one for one in told) > 1]
