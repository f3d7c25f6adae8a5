"""Finished requests, one by one, from files: spans as OTLP writes them, and SGLang's request export.

OTLP (JSON, one document or one a line, as a collector's file exporter writes): spans with ``gen_ai.latency.*``
attributes, named in vLLM 0.32.0 ``vllm/tracing``. SGLang 0.5.23 ``--export-metrics-to-file``
(``srt/observability/request_metrics_exporter.py``): one JSON object a line. Of ``request_parameters``, which hold the
prompt, nothing is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from math import ceil
from pathlib import Path
from typing import Any

from kvscope.errors import SourceError
from kvscope.requests import Request
from kvscope.sources._lines import JsonLines
from kvscope.sources.saved import read_text
from kvscope.sources.source import Description, Poll
from probes import border
from probes.sample import Sample

_MOST = 1_000_000
_APART = 1e-6
"""Requests that end at one moment are told apart by so many seconds: values of one time belong together by order."""
_OTLP: Mapping[str, str] = {
    "gen_ai.latency.time_in_queue": "sched.queue_time",
    "gen_ai.latency.time_in_model_prefill": "latency.prefill_time",
    "gen_ai.latency.time_in_model_decode": "latency.decode_time",
    "gen_ai.latency.time_to_first_token": "latency.ttft",
    "gen_ai.server.time_to_first_token": "latency.ttft",
    "gen_ai.latency.e2e": "latency.e2e",
    "gen_ai.usage.prompt_tokens": "request.tokens_in",
    "gen_ai.usage.input_tokens": "request.tokens_in",
    "gen_ai.usage.completion_tokens": "request.tokens_out",
    "gen_ai.usage.output_tokens": "request.tokens_out",
    "gen_ai.usage.cached_tokens": "request.prefix_hits",
    "gen_ai.usage.cache_read.input_tokens": "request.prefix_hits",
}
_SGLANG: Mapping[str, str] = {
    "queue_time": "sched.queue_time",
    "e2e_latency": "latency.e2e",
    "prompt_tokens": "request.tokens_in",
    "completion_tokens": "request.tokens_out",
    "cached_tokens": "request.prefix_hits",
    "num_retractions": "request.preemptions",
}
_WALL_S = 1e9
"""A time above is one of the wall clock; below it, one since the machine started, and only spacing means something."""
Row = dict[str, float]


def looks_requests(start: bytes) -> bool:
    """Whether a text starts as spans or as SGLang's request export do."""
    line = start.lstrip()
    if line.startswith(b"{") and b'"resourceSpans"' in line[:4096]:
        return True
    # SGLang's answers hold latencies too, among what they say: an export begins with what was asked for.
    return line.startswith(b'{"request_parameters"')


class RequestsSource:
    """Gives every finished request of a file, in the order of their ends."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._engine, self._damage, self._given = "", "", False

    def describe(self) -> Description:
        return Description(
            "requests", str(self._path), self._engine, "", {"engine": self._engine}, note="single requests only"
        )

    def poll(self) -> Poll:
        if self._given:
            return Poll([], ended=True)
        self._given = True
        rows = sorted(self._rows(), key=lambda one: one[0])
        if not rows:
            raise SourceError(
                f"{self._path}: not one finished request; expected gen_ai.latency.* spans or SGLang's export"
            )
        samples = _over_time(rows)
        last = 0.0
        for count, (t, row) in enumerate(rows, 1):
            last = max(t, last + _APART)
            row.setdefault("latency.tpot", _tpot(row))
            samples += [Sample(metric, value, last) for metric, value in row.items() if value >= 0.0]
            samples.append(Sample("requests.finished", float(count), last))
        told = "running, waiting and tokens per second are worked out from requests that ended: others are not known"
        samples.sort(key=lambda one: one.t)
        return Poll(samples, (), tuple(line for line in (told, self._damage) if line), ended=True)

    def close(self) -> None:
        """Nothing is held open."""

    def _rows(self) -> Iterator[tuple[float, Row]]:
        lines = JsonLines(self._path)
        count = 0
        for _, found in lines:
            for row in _of(found):
                count += 1
                if count > _MOST:
                    self._damage = f"{self._path}: more than {_MOST} requests; the first are read"
                    return
                self._engine = row[2]
                yield row[:2]
        self._damage = lines.damage
        if not count:
            # A document over many lines is no line of JSON.
            for row in _of_document(read_text(self._path), self._path):
                self._damage, self._engine = "", row[2]
                yield row[:2]


def _over_time(rows: Sequence[tuple[float, Row]]) -> list[Sample]:
    """Return what ran and waited, and the tokens so far, at even moments from the first arrival to the last end.

    A request's output is spread evenly over its decode; its prompt counts at its first token.
    """
    told = [(spans, row) for t, row in rows if (spans := Request("", t, row).spans)]
    if not told:
        return []
    begins, ends = min(spans["queue"][0] for spans, _ in told), max(spans["decode"][1] for spans, _ in told)
    every = max(_EVERY_S, (ends - begins) / _MOST_MOMENTS)
    moments = [begins + every * at for at in range(int((ends - begins) / every) + 1)]
    changes: dict[str, list[float]] = {name: [0.0] * (len(moments) + 1) for name in _DERIVED}

    def at(t: float) -> int:
        return min(max(ceil((t - begins) / every), 0), len(moments))

    for spans, row in told:
        (came, started), (first, ended) = spans["queue"], spans["decode"]
        for name, start, end in (("sched.waiting", came, started), ("sched.running", started, ended)):
            changes[name][at(start)] += 1.0
            changes[name][at(end)] -= 1.0
        changes["tokens.prompt"][at(first)] += row.get("request.tokens_in", 0.0)
        inside = range(at(first), max(at(ended), at(first) + 1))
        for moment in inside:
            changes["tokens.generated"][min(moment, len(moments))] += row.get("request.tokens_out", 0.0) / len(inside)
    return [
        Sample(name, round(value, 6), t)
        for name in _DERIVED
        for t, value in zip(moments, accumulate(changes[name]), strict=False)
    ]


_DERIVED = ("sched.waiting", "sched.running", "tokens.prompt", "tokens.generated")
_EVERY_S, _MOST_MOMENTS = 1.0, 20_000


def _of_document(text: str, path: Path) -> Iterator[tuple[float, Row, str]]:
    try:
        found = border.document(text, str(path))
    except border.Refused:
        return
    for one in found if isinstance(found, list) else [found]:
        if isinstance(one, dict):
            yield from _of(one)


def _of(found: Mapping[str, Any]) -> Iterator[tuple[float, Row, str]]:
    """Return end, row and engine of each request that a JSON object tells."""
    if "resourceSpans" in found:
        yield from _spans(found)
    elif "e2e_latency" in found and (row := _numbers(found, _SGLANG)):
        yield _exported(found, row)


def _spans(found: Mapping[str, Any]) -> Iterator[tuple[float, Row, str]]:
    for resource in _dicts(found.get("resourceSpans")):
        for scope in _dicts(resource.get("scopeSpans") or resource.get("instrumentationLibrarySpans")):
            named = next(iter(_dicts([scope.get("scope")])), {}).get("name", "")
            engine = "sglang" if isinstance(named, str) and "sglang" in named else "vllm"
            for span in _dicts(scope.get("spans")):
                row = _numbers(_attributes(span), _OTLP)
                end = _nanoseconds(span.get("endTimeUnixNano"))
                if "latency.e2e" in row and "request.tokens_out" in row and end:
                    yield end, row, engine


def _exported(found: Mapping[str, Any], row: Row) -> tuple[float, Row, str]:
    first, sent = _number(found.get("prefill_finished_ts")), _number(found.get("request_sent_to_scheduler_ts"))
    got, ended = _number(found.get("request_received_ts")), _number(found.get("decode_finished_ts"))
    if first and got and first >= got:
        row["latency.ttft"] = first - got
    if first and sent and "sched.queue_time" in row and first >= sent:
        row["latency.prefill_time"] = max(first - sent - row["sched.queue_time"], 0.0)
    end = (
        ended or _number(found.get("response_sent_to_client_ts")) or (got + row.get("latency.e2e", 0.0) if got else 0.0)
    )
    return (end if end > _WALL_S else _WALL_S + end), row, "sglang"


def _tpot(row: Mapping[str, float]) -> float:
    """Time per output token after the first, negative where it cannot be told."""
    first, whole, out = row.get("latency.ttft"), row.get("latency.e2e"), row.get("request.tokens_out", 0.0)
    return (whole - first) / (out - 1) if first is not None and whole is not None and out > 1 else -1.0


def _attributes(span: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for one in _dicts(span.get("attributes")):
        value = one.get("value")
        if isinstance(value, dict) and value:
            found[str(one.get("key"))] = next(iter(value.values()))
    return found


def _numbers(found: Mapping[str, Any], names: Mapping[str, str]) -> Row:
    row: Row = {}
    for name, metric in names.items():
        value = _number(found.get(name))
        if value is not None and value >= 0.0:
            row.setdefault(metric, value)
    return row


def _number(value: object) -> float | None:
    try:
        return border.written(value, "a value") if isinstance(value, str) else border.number(value, "a value")
    except ValueError:
        return None


def _nanoseconds(value: object) -> float:
    return (_number(value) or 0.0) * 1e-9


def _dicts(value: object) -> Iterable[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else ()
