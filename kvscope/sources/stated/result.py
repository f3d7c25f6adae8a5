"""Results of benchmarks as stated figures: one run each, with the error of a mean where the result tells its spread.

Formats as of vLLM 0.32.0 (``bench serve``, ``bench throughput``), SGLang 0.5.23 (``bench_serving``), AIPerf 0.3,
GuideLLM 0.4, llama.cpp b11434 (``llama-bench``), lm_eval 0.4.9; read in their sources and documents.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvscope.errors import SourceError
from kvscope.sources.stated.figure import Figure, Stated
from probes import border

if TYPE_CHECKING:
    from kvscope.sources.stated import named

_BYTES = 64 << 20
_NORMAL_P99 = 2.326
"""Standard deviations from the middle to the 99th percentile where nothing else is known of a spread."""


@dataclass(frozen=True, slots=True)
class Number:
    """One number of a result: mean or quantile of a quantity, in the catalogue's unit; ``error`` None: not told."""

    name: str
    value: float
    unit: str
    error: float | None = None
    better: str = ""


@dataclass(slots=True)
class Result:
    """What a benchmark found: ``tool``, what it ran on, how many requests, and its numbers."""

    tool: str
    tags: dict[str, str] = field(default_factory=dict)
    count: float = 0.0
    numbers: list[Number] = field(default_factory=list)
    means: dict[str, float] = field(default_factory=dict)
    """Metric → mean over requests, or a rate."""
    name: str = ""
    """What the run is called where a document holds several."""

    def spread(self, name: str, metric: str, scale: float, given: Mapping[str, float | None]) -> None:
        """Take a latency's mean and quantiles; the error of the mean follows from its spread and the requests."""
        mean, middle, far = given.get("mean"), given.get("p50"), given.get("p99")
        deviation = given.get("std")
        if deviation is None and middle is not None and far is not None and far > middle:
            deviation = (far - middle) / _NORMAL_P99
        if deviation is None:
            # Nobody tells the spread: requests that differ by as much as their mean bound it from above.
            deviation = mean
        error = 2 * deviation * scale / self.count**0.5 if deviation is not None and self.count >= 2 else None
        if mean is not None:
            self.means[metric] = mean * scale
            self.numbers.append(Number(f"{name}_mean_s", mean * scale, "s", error, "lower"))
        for quantile in ("p50", "p90", "p95", "p99"):
            value = given.get(quantile)
            if value is not None:
                # A median's error is a quarter more than a mean's; of a far quantile it is not known.
                known = 1.25 * error if error is not None and quantile == "p50" else None
                self.numbers.append(Number(f"{name}_{quantile}", value * scale, "s", known, "lower"))

    def rate(self, name: str, metric: str, value: float | None, error: float | None = None) -> None:
        """Take a throughput; its error is that of counting its requests, where nothing better is told."""
        if value is None:
            return
        if error is None and self.count >= 2:
            error = 2 * value / self.count**0.5
        self.means[metric] = value
        self.numbers.append(Number(name, value, "1/s", error, "higher"))


def looks_result(start: bytes) -> bool:
    """Whether a text starts as a benchmark's result does."""
    return any(mark in start for mark in _MARKS) or bool(_SPEEDS.search(start))


_SPEEDS = re.compile(rb"^\s*\|[^\n]*\|\s*(?:t/s(?: [^|\n]{1,60})?|S_TG t/s)\s*\|", re.MULTILINE)
"""The head of a table of llama-bench, of a comparison of two of its runs, or of llama-batched-bench."""


_MARKS = (
    b"Serving Benchmark Result",
    b'"mean_ttft_ms"',
    b'"median_ttft_ms"',
    b'"tokens_per_second"',
    b'"time_to_first_token"',
    b'"time_to_first_token_ms"',
    b'"avg_ts"',
    b'"acc,none"',
    b'"acc_norm,none"',
    b'"exact_match,',
    b'"word_perplexity,none"',
)


def read_runs(path: Path) -> list[Result]:
    """Read every run of a benchmark's result; none where it holds no number that is known. SourceError."""
    try:
        with border.open_packed(path) as file:
            data = file.read(_BYTES + 1)
    except border.Refused as error:
        raise SourceError(str(error)) from error
    except (OSError, EOFError) as error:
        raise SourceError(f"{path}: {error}") from error
    text = data[:_BYTES].decode("utf-8", errors="replace")
    return [one for one in _runs(text, path) if one.numbers]


def _runs(text: str, path: Path) -> list[Result]:
    if text.lstrip()[:1] in "{[":
        return _of_json(text, path)
    # What a person pasted: words, and the tool's own lines of JSON among them.
    return [one for document in border.embedded(text) for one in _of_document(document)] or _of_text(text)


def read(path: Path) -> Result:
    """Read a benchmark's result; of several runs the last. SourceError when it is of none that is known."""
    found = read_runs(path)
    if not found:
        raise SourceError(f"{path}: looks like a benchmark's result, but holds no number that is known")
    return found[-1]


def stated(path: Path) -> Stated:
    """Return a result as stated figures: means stand for every request. Of two runs the first came before.

    Runs are held against each other where one tool put the same load on both; of more than two the first against the
    one that differs most from it in tokens a second. Of runs that all differ in their load the heaviest is told.
    """
    runs = read_runs(path)
    if not runs:
        raise SourceError(f"{path}: looks like a benchmark's result, but holds no number that is known")
    alike: dict[tuple[object, ...], list[Result]] = {}
    for one in runs:
        alike.setdefault(_load_of(one), []).append(one)
    same = max(alike.values(), key=lambda group: (len(group), group[0].means.get("sched.running", 0.0)))
    if len(same) == 1:
        last = max(runs, key=_weight)
        found = _stated(last)
        found.figures = _figures(last)
        if len(runs) > 1:
            named = f" {last.name!r}" if last.name else ""
            load = last.tags.get("offered_load", "")
            found.notes.append(
                f"{len(runs)} runs under different loads: told is{named or ' one'}{f', {load}' if load else ''}"
            )
        return found
    first, last = same[0], same[-1]
    if len(same) > 2:
        speed = first.means.get("tokens.generated") or first.means.get("tokens.prompt") or 0.0
        last = max(same[1:], key=lambda one: abs((one.means.get("tokens.generated") or speed) / (speed or 1.0) - 1))
    found = _stated(last)
    for arm, one in (("before", first), ("after", last)):
        found.figures += _figures(one, arm)
        found.arms[arm] = one.name
    for name, value in list(found.tags.items()):
        if first.tags.get(name) != value:
            del found.tags[name]
    return found


def _stated(of: Result) -> Stated:
    found = Stated(of.tags.get("engine", ""), dict(of.tags), what=of.tool)
    found.tags.pop("engine", None)
    return found


def _figures(one: Result, arm: str = "") -> list[Figure]:
    """Return a run's means as figures, and its gaps between tokens as they would be counted.

    Half of the gaps are no longer than their median: it tells a step without a prompt beside it better than the mean.
    """
    means = dict(one.means)
    middle = next((number.value for number in one.numbers if number.name == "itl_p50"), None)
    gap = middle or means.get("latency.itl") or means.get("latency.tpot")
    gaps = means.get("tokens.generated", 0.0) - means.get("requests.finished", 0.0)
    if gap and gaps > 0:
        means.pop("latency.itl", None)
        means |= {"latency.itl.sum": gaps * gap, "latency.itl.count": gaps}
    if gap and "tokens.generated" in means:
        # Little's law: tokens a second times the time of one are the requests that decode, requests a second times
        # the time to the first token those before it. Where these are many, how many of them wait is not told.
        decoding = means["tokens.generated"] * means.get("latency.tpot", gap)
        before = means.get("requests.finished", 0.0) * means.get("latency.ttft", 0.0)
        if before <= max(1.0, decoding / 10):
            means.setdefault("sched.running", decoding)
            means.setdefault("sched.waiting", 0.0)
        means["batch.steps"] = 1.0 / gap
    return [Figure(metric, metric, (), value, arm) for metric, value in means.items()]


def _load_of(one: Result) -> tuple[object, ...]:
    """Return what was sent, as far as two runs must agree in it to be compared; lengths to a tenth."""
    lengths = (one.means.get(name) for name in ("request.tokens_in", "request.tokens_out"))
    rounded = (round(math.log(value, 1.1)) if value and value > 0 else 0 for value in lengths)
    return one.tool, one.tags.get("offered_load"), one.means.get("sched.running"), *rounded


def _weight(one: Result) -> tuple[float, float]:
    clients = re.match(r"([\d.]+) clients", one.tags.get("offered_load", ""))
    return float(clients[1]) if clients else 0.0, one.means.get("tokens.generated", 0.0)


def _of_json(text: str, path: Path) -> list[Result]:
    try:
        document = border.document(text, str(path))
    except border.Refused:
        # SGLang appends one line a run: the last one counts.
        lines = [line for line in text.splitlines() if line.strip().startswith("{")]
        try:
            document = border.document(lines[-1], str(path)) if lines else None
        except border.Refused as error:
            raise SourceError(str(error)) from error
    return _of_document(document)


def _of_document(document: Any) -> list[Result]:
    if isinstance(document, list):
        from kvscope.sources.stated.llama_bench import of_rows

        return of_rows(document) or [run for one in document[:1000] for run in _of_document(one)]
    if not isinstance(document, dict):
        return []
    scores = _lm_eval(document)
    if scores is not None and scores.numbers:
        return [scores]
    runs = document.get("benchmarks")
    parts = [one["metrics"] for one in runs[:1000] if _holds(one, "metrics")] if isinstance(runs, list) else []
    return [found for part in parts or [document] if (found := _of_names(part, bool(parts))) is not None]


def _holds(one: Any, name: str) -> bool:
    return isinstance(one, dict) and isinstance(one.get(name), dict)


def _of_names(document: Mapping[str, Any], guidellm: bool) -> Result | None:
    """Any tool's document, by what its names say; which tool it was, by names that are its own."""
    from kvscope.sources.stated import named

    seconds: float | None = None
    if guidellm:
        tool, seconds = "guidellm", 1.0
    elif "load_summary" in document and "successes" in document:
        tool, seconds = "inference-perf", 1.0
    elif "tokens_per_second" in document and "elapsed_time" in document:
        # vLLM's offline throughput counts prompts too.
        tool = "vllm bench throughput"
        document = {**document, "tokens_per_second": None, "total_tokens_per_second": document["tokens_per_second"]}
    elif "mean_ttft_ms" in document or "median_ttft_ms" in document or "mean_tpot_ms" in document:
        sglang = "median_e2e_latency_ms" in document or "accept_length" in document
        tool = "sglang bench_serving" if sglang else "vllm bench serve"
    else:
        tool = "aiperf" if _holds(document.get("records", document), "time_to_first_token") else "benchmark"
    run = named.of_document(document, seconds)
    if guidellm and ("count", "") not in run.cells:
        told = [
            document[name].get("successful")
            for name in ("time_to_first_token_ms", "request_latency")
            if _holds(document, name)
        ]
        counts = [count for one in told if isinstance(one, dict) and (count := number_at(one, "count")) is not None]
        run.cells |= {("count", ""): counts[0]} if counts else {}
    if not run.cells:
        return None
    found = _of_run(run, tool, {"engine": "vllm"} if tool == "vllm bench throughput" else {})
    _who(found, document)
    return found


def number_at(document: Mapping[str, Any], *names: str) -> float | None:
    """Return the first of ``names`` that holds a number that can be used, or None."""
    for name in names:
        value = document.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool):
            try:
                return border.number(value, name)
            except border.Refused:
                return None
    return None


def _who(found: Result, document: Mapping[str, Any]) -> None:
    backend = document.get("backend") or document.get("endpoint_type")
    if isinstance(backend, str):
        found.tags["engine"] = "sglang" if "sglang" in backend else "vllm" if "vllm" in backend else backend[:40]
    for name in ("model_id", "model", "model_name"):
        if isinstance(document.get(name), str):
            found.tags.setdefault("model", document[name][:120])


def _lm_eval(document: Mapping[str, Any]) -> Result | None:
    results = document.get("results")
    if not isinstance(results, dict):
        return None
    found = Result("lm_eval")
    for task, one in list(results.items())[:500]:
        if not isinstance(one, dict):
            continue
        for name in one:
            measure, _, rest = str(name).partition(",")
            known = number_at(one, name)
            if known is None or "stderr" in measure:
                continue
            if measure in ("acc", "acc_norm", "exact_match", "f1", "pass@1"):
                error = number_at(one, f"{measure}_stderr,{rest}")
                found.numbers.append(
                    Number(
                        f"{task} {measure}"[:120], known, "ratio", 2 * error if error is not None else None, "higher"
                    )
                )
                found.means.setdefault("quality.score", known)
            elif measure in ("word_perplexity", "perplexity", "byte_perplexity"):
                found.numbers.append(Number(f"{task} {measure}"[:120], known, "ppl", None, "lower"))
                found.means.setdefault("quality.perplexity", known)
    model = document.get("model_name")
    if isinstance(model, str):
        found.tags["model"] = model[:120]
    return found


_TOOLS = (
    ("GenAI-Perf", "genai-perf"),
    ("AIPerf", "aiperf"),
    ("Total generated tokens (retokenized)", "sglang bench_serving"),
    ("Serving Benchmark Result", "vllm bench serve"),
    ("TensorRT-LLM Version", "trtllm-bench"),
    ("TensorRT LLM Version", "trtllm-bench"),
    ("(Completed Requests)", "guidellm"),
    ("total tokens/s", "vllm bench throughput"),
)
_WROTE = (
    ("sglang", re.compile(r"^Backend:\s+sglang", re.MULTILINE)),
    ("tensorrt-llm", re.compile(r"^TensorRT.LLM Version:")),
)
_RATES = {
    "generated": ("generation_tokens_per_s", "tokens.generated"),
    "prompt": ("prompt_tokens_per_s", "tokens.prompt"),
    "requests": ("requests_per_s", "requests.finished"),
}
_STATES = {
    "tokens_in": "request.tokens_in",
    "tokens_out": "request.tokens_out",
    "kv_bytes": "kv.resident_bytes",
    "memory": "gpu.mem_used",
    "score": "quality.score",
    "perplexity": "quality.perplexity",
}


def _of_text(text: str) -> list[Result]:
    """Tables of llama.cpp's two benchmarks, or whatever else is printed as names and numbers."""
    from kvscope.sources.stated import pasted
    from kvscope.sources.stated.llama_bench import of_table

    found: list[Result] = []
    for title, head, rows in _tables(text):
        tables = of_table(head, rows)
        for one in tables if len(tables) == 1 and title else ():
            one.name = title
        found += tables
    if found:
        return found
    tool = next((name for mark, name in _TOOLS if mark in text), "benchmark")
    tags = dict([("engine", engine) for engine, pattern in _WROTE if pattern.search(text)][:1])
    return [_of_run(run, tool, tags) for run in pasted.Reader().read(text)]


def _of_run(run: named.Run, tool: str, tags: Mapping[str, str]) -> Result:
    found = Result(tool, dict(tags), name=run.title)
    found.count = run.get("count", "", "mean") or 0.0
    if (everything := run.get("all_tokens", "", "mean")) is not None:
        found.numbers.append(Number("all_tokens_per_s", everything, "1/s", None, "higher"))
    for name, metric in (
        *((one, f"latency.{one}") for one in ("ttft", "tpot", "itl", "e2e")),
        ("queue", "sched.queue_time"),
    ):
        given = {one: run.get(name, one) for one in ("p50", "p90", "p95", "p99", "std")}
        # One number without a statistic is taken for the mean; with a median alone that stands for it.
        given["mean"] = run.get(name, "mean", "")
        if any(value is not None for value in given.values()):
            found.spread(name, metric, 1.0, given)
            if given["mean"] is None and given["p50"] is not None:
                found.means[metric] = given["p50"]
    if tool in ("aiperf", "genai-perf") and "latency.itl" in found.means:
        # Its gap between tokens is a mean per request, which is what others call TPOT.
        found.means["latency.tpot"] = found.means["latency.itl"]
    for quantity, (name, metric) in _RATES.items():
        found.rate(name, metric, run.get(quantity, "", "mean", "p50"))
    seconds = run.get("duration", "")
    for quantity, total, (name, metric) in (
        ("tokens_in", "total_in", _RATES["prompt"]),
        ("tokens_out", "total_out", _RATES["generated"]),
    ):
        summed = run.get(total, "")
        if summed is not None and found.count:
            found.means[_STATES[quantity]] = summed / found.count
        if summed is not None and seconds and metric not in found.means:
            found.rate(name, metric, summed / seconds)
    lengths, finished = run.get("tokens_out", "", "mean"), found.means.get("requests.finished")
    if lengths and finished and "tokens.generated" not in found.means:
        found.rate("generation_tokens_per_s", "tokens.generated", lengths * finished)
    for quantity, metric in _STATES.items():
        value = run.get(quantity, "", "mean", "p50")
        if value is not None:
            found.means.setdefault(metric, value)
    if (hits := run.get("hits", "", "mean")) is not None and 0 <= hits <= 1 and "tokens.prompt" in found.means:
        found.means["prefix.queries"] = found.means["tokens.prompt"]
        found.means["prefix.hits"] = found.means["tokens.prompt"] * hits
    if run.kv_bits is not None:
        found.means["config.kv_bits"] = run.kv_bits
    clients, offered = run.get("clients", "", "mean"), run.get("offered", "")
    said = [f"{clients:g} clients"] if clients else []
    if offered:
        said.append(f"{offered:g} requests/s")
    if said:
        found.tags["offered_load"] = ", ".join(said)
    return found


def _tables(text: str) -> Iterator[tuple[str, list[str], list[list[str]]]]:
    """Yield title, head and rows of each table of pipes."""
    from kvscope.sources.stated.pasted import title_of

    words: list[str] = []
    head: list[str] = []
    rows: list[list[str]] = []
    for line in [*text.splitlines()[:5000], ""]:
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")] if line.strip().startswith("|") else []
        if not cells:
            if head and rows:
                yield title_of(words[-4:]), head, rows
                words = []
            head, rows = [], []
            words += [line] if line.strip() and not line.startswith(("ggml_", "  Device", "main:", "build:")) else []
        elif not head:
            head = cells
        elif not all(set(cell) <= set(":- ") for cell in cells) and len(cells) == len(head):
            rows.append(cells)
