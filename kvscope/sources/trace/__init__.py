"""A profiler trace of torch (Kineto, Chrome trace events) or of Nsight Systems: where the time of a token goes."""

from __future__ import annotations

import re
import zlib
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from kvscope import kv_types
from kvscope.errors import SourceError
from kvscope.recording.schema import SQLITE_MAGIC
from kvscope.sources.source import Description, Poll
from kvscope.sources.trace import events, nsys
from kvscope.sources.trace.account import Account, Piece, account
from kvscope.sources.trace.events import KERNEL, Trace
from kvscope.sources.trace.rules import HOST, Rules, load
from kvscope.sources.trace.steps import DECODE, PREFILL
from kvscope.sources.trace.timeline import IDLE
from probes import border
from probes.sample import Sample, labels_of

_WRITE = re.compile(r"reshape_and_cache|concat_and_cache|store_kv_?cache|set_(?:mla_)?kv|AppendPagedKV", re.IGNORECASE)
_HELD = re.compile(r"(?:reshape|concat)_and_cache\w*<\s*[^,<>]+,\s*([^,<>]+)\s*,")
_BITS = {
    "unsigned char": 8.0,
    "uint8_t": 8.0,
    "__nv_fp8_e4m3": 8.0,
    "__nv_bfloat16": 16.0,
    "__half": 16.0,
    "half": 16.0,
    "unsigned short": 16.0,
    "uint16_t": 16.0,
    "float": 32.0,
}


@dataclass(frozen=True, slots=True)
class Writes:
    """Starts and durations (µs) of every such kernel in time order; ``bits`` of a stored number where names tell."""

    starts: tuple[float, ...]
    durations: tuple[float, ...]
    bits: float | None

    def within(self, start: float, end: float) -> tuple[float, ...]:
        """Return the durations of the writes that start in a stretch."""
        return self.durations[bisect_left(self.starts, start) : bisect_left(self.starts, end)]


def writes_of(trace: Trace) -> Writes:
    """Find them by name; without one a layer's share of a step is not known."""
    writing = {index for index, name in enumerate(trace.names) if _WRITE.search(name)}
    kernels = (i for i, kind in enumerate(trace.kind) if kind == KERNEL and trace.name[i] in writing)
    found = sorted((trace.start[i], trace.duration[i]) for i in kernels)
    held = {matched[1].strip() for index in writing if (matched := _HELD.search(trace.names[index]))}
    bits = {_BITS[name] for name in held if name in _BITS}
    told = bits.pop() if len(bits) == 1 == len(held) else None
    return Writes(tuple(start for start, _ in found), tuple(taken for _, taken in found), told)


_US = 1e-6
_WHOLE = ("time.step", "time.idle", "batch.steps", "tier.bytes_in", "tier.bytes_out")
_TOLD = ("time.prefill", "prefill.decompress_time", "tokens.generated", "tokens.prefilled")
_NAMES_SHOWN = 5
_GAPS_SHOWN = 3
_LONG_GAP_US = 50.0
_KV_TYPES = (
    ("e4m3", "fp8_e4m3"),
    ("e5m2", "fp8_e5m2"),
    ("bfloat16", "bf16"),
    ("bf16", "bf16"),
    ("half", "fp16"),
    ("fp16", "fp16"),
)
"""Words in a kernel's name, the narrowest type first."""


class TraceSource:
    """Reads a trace whole at the first poll; counters stand where each step ends."""

    def __init__(self, path: Path, rules: Rules | None = None) -> None:
        self._path, self._rules = path, rules or load()
        trace = nsys.read(path) if _is_database(path) else events.read(path)
        found = account(trace, self._rules)
        if found is None:
            raise SourceError(f"{path}: {trace.damage or 'no operator and no kernel with a duration in this trace'}")
        self._account, self._base_s, self._damage = found, trace.base_s, trace.damage
        self._writes = writes_of(trace)
        self._engine = found.steps.engine or self._rules.engine(trace.names) or "torch"
        self._device = trace.device if found.on_device else "cpu"
        self._dtype = kv_type(trace.names, self._rules) if found.on_device else ""
        self._read = False

    def describe(self) -> Description:
        told = {"engine": self._engine, "device": self._device, "dtype": self._dtype}
        tags = {name: value for name, value in told.items() if value}
        return Description("trace", str(self._path), self._engine, "", tags, alive=False, note="profiler trace")

    def poll(self) -> Poll:
        if self._read:
            return Poll([], ended=True)
        self._read = True
        return Poll(self._samples(), notices=tuple(self._notices()), ended=True)

    def close(self) -> None:
        """Nothing is held open."""

    def _samples(self) -> list[Sample]:
        told, pieces = self._account.steps.told, self._account.pieces
        totals = dict.fromkeys((*_WHOLE, *(_TOLD if told else ())), 0.0)
        # What is only of decode is sampled from the first decode step to the last: batches of an error must not be
        # stretches of prefill, in which it stands still.
        decode = dict.fromkeys(("time.decode", *(["batch.decode_steps"] if told else ())), 0.0)
        decode |= dict.fromkeys((metric for metric in self._rules.metrics.values() if metric), 0.0)
        decoding = [i for i, piece in enumerate(pieces) if not told or piece.step.phase == DECODE]
        samples = [*_at(totals, self._wall(self._account.start)), *self._settings()]
        for i, piece in enumerate(pieces):
            if decoding and i == decoding[0]:
                samples += _at(decode, self._wall(pieces[i - 1].end if i else self._account.start))
            self._add(piece, totals, decode, told)
            samples += _at(totals, self._wall(piece.end))
            if decoding and decoding[0] <= i <= decoding[-1]:
                samples += _at(decode, self._wall(piece.end))
            samples += self._layers(piece, pieces[i - 1].end if i else self._account.start)
            if piece.step.context_tokens is not None and piece.whole:
                samples.append(Sample("batch.context_tokens", piece.step.context_tokens, self._wall(piece.end)))
        return samples

    def _layers(self, piece: Piece, began: float) -> list[Sample]:
        """A layer's attention and KV write in one step: KV is written once a layer, so writes count the layers."""
        writes, t = self._writes.within(began, piece.end), self._wall(piece.end)
        if not writes or not piece.whole:
            return []
        attend, told = piece.work.get("attend", 0.0), self._account.steps.told
        found = [Sample("kernel.kv_write", sum(writes) / len(writes) * _US, t)]
        if told and attend:
            phase = "prefill" if piece.step.phase == PREFILL else "decode"
            found.append(Sample(f"kernel.{phase}_attention", attend / len(writes) * _US, t))
        return found

    def _settings(self) -> list[Sample]:
        """Bits of the KV: of what the kernels that write it store, else of what attention's names say they read."""
        read, t = kv_types.find(self._dtype), self._wall(self._account.start)
        bits = self._writes.bits or (read.bits() if read is not None else None)
        if bits is None:
            return []
        said = labels_of(setting="config.kv_bits", value=f"{bits:g} bits", source="trace")
        return [Sample("config.kv_bits", bits, t), Sample("config.said", 1.0, t, said)]

    def _add(self, piece: Piece, totals: dict[str, float], decode: dict[str, float], told: bool) -> None:
        step = piece.step
        spent = sum(us for work, us in piece.work.items() if work != IDLE) * _US
        totals["time.step"] += spent
        totals["time.idle"] += piece.work.get(IDLE, 0.0) * _US
        totals["tier.bytes_in"] += piece.bytes_in
        totals["tier.bytes_out"] += piece.bytes_out
        totals["batch.steps"] += piece.whole
        if told and piece.whole:
            decode["batch.decode_steps"] += step.phase == DECODE
            totals["tokens.generated"] += step.decode_tokens or 0
            totals["tokens.prefilled"] += step.prefill_tokens or 0
        if told and step.phase == PREFILL:
            totals["time.prefill"] += spent
            totals["prefill.decompress_time"] += piece.work.get("dequantise", 0.0) * _US
            return
        decode["time.decode"] += spent
        for work, us in piece.work.items():
            if metric := self._rules.metrics.get(work, ""):
                decode[metric] += us * _US

    def _wall(self, us: float) -> float:
        return self._base_s + us * _US

    def _notices(self) -> list[str]:
        found = self._account
        notices = [self._damage] if self._damage else []
        notices.append(_steps_text(found))
        notices.append(_shares_text(found, self._rules))
        notices += _gaps_text(found)
        if found.unknown:
            notices.append(_unknown_text(found))
        if found.devices > 1:
            notices.append(f"work on {found.devices} devices; the busiest was read")
        return notices


def _is_database(path: Path) -> bool:
    try:
        with border.open_packed(path) as file:
            return file.read(len(SQLITE_MAGIC)).startswith(SQLITE_MAGIC)
    except (OSError, EOFError, border.Refused, zlib.error):
        return False


def kv_type(names: Iterable[str], rules: Rules) -> str:
    """Return how KV is kept, by the number types in the names of attention kernels; empty where none is named.

    A kernel that reads eight bits names its output's wider type, too: the narrowest is what it reads.
    """
    attention = [name for name in names if (said := rules.kernel(name)) is not None and said.work == "attend"]
    return next((kind for word, kind in _KV_TYPES if any(word in name for name in attention)), "")


def _at(totals: dict[str, float], t: float) -> list[Sample]:
    return [Sample(name, value, t) for name, value in totals.items()]


def _steps_text(found: Account) -> str:
    steps = found.steps
    where = "GPU time" if found.on_device else "no GPU work in this trace: time of CPU operators"
    if not steps.found:
        return f"{where}; no steps marked: prefill and decode are not told apart, shares are of both together"
    if not steps.told:
        return (
            f"{where}; {len(steps.found)} steps {steps.says}; prefill and decode are not told apart, shares are of "
            "both together (record with record_shapes=True or an engine's own step annotations)"
        )
    count = Counter(step.phase for step in steps.found)
    text = f"{where}; {count[PREFILL]} prefill and {count[DECODE]} decode steps, told apart {steps.says}"
    mixed = sum(bool(step.prefill_tokens and step.decode_tokens) for step in steps.found)
    return text + (f"; {mixed} did both and count as what most of their tokens are" if mixed else "")


def _shares_text(found: Account, rules: Rules) -> str:
    sums: Counter[str] = Counter()
    for piece in found.pieces:
        if not found.steps.told or piece.step.phase != PREFILL:
            sums.update({work: us for work, us in piece.work.items() if work != IDLE})
    if found.on_device:
        # Of a device HOST is what it waited for: no work of its own.
        sums.pop(HOST, None)
    total = sum(sums.values())
    if total <= 0:
        return "no decode step in this trace"
    shares = ", ".join(f"{work} {us / total:.1%}" for work, us in sums.most_common() if us)
    hidden = f"; {found.hidden / 1e3:.1f} ms of work ran hidden behind other work" if found.hidden >= 1000 else ""
    return f"{'decode' if found.steps.told else 'all'} {total / 1e3:.1f} ms: {shares}{hidden}"


def _gaps_text(found: Account) -> list[str]:
    """Say where the device stood between two pieces of work: no time of the GPU, so a line of its own each."""
    if not found.gaps or not found.on_device:
        return []
    total, span = sum(gap.us for gap in found.gaps), found.pieces[-1].end - found.start
    long = [gap for gap in found.gaps if gap.us >= _LONG_GAP_US]
    lines = [
        f"host: the device stood {total / 1e3:.1f} ms of {span / 1e3:.1f} ms ({total / span:.1%}) in {len(found.gaps)} "
        f"gaps, {len(long)} of them of {_LONG_GAP_US:g} us or more"
    ]
    kinds: dict[tuple[str, str], list[float]] = {}
    for gap in long:
        kinds.setdefault((gap.after, gap.before), []).append(gap.us)
    for (after, before), each in sorted(kinds.items(), key=lambda one: -sum(one[1]))[:_GAPS_SHOWN]:
        spent = f"{sum(each) / 1e3:.2f} ms in {len(each)} gaps, longest {max(each) / 1e3:.2f} ms"
        lines.append(f"host: between {after} and {before}: {spent}")
    return lines


def _unknown_text(found: Account) -> str:
    whole = sum(us for piece in found.pieces for work, us in piece.work.items() if work != IDLE)
    names = found.unknown.most_common()
    shown = ", ".join(f"{name[:60]} ({us / whole:.1%})" for name, us in names[:_NAMES_SHOWN])
    more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
    share = sum(found.unknown.values()) / whole
    return f"unknown {share:.1%}: no rule knows {shown}{more}"
