"""Structure-aware mutations of what each reader takes: python -m tests.fuzz.mutate [READER ...] [--count N] [--seed N].

A document is taken apart into its parts (values of JSON and YAML, samples and labels of a page, rows of a table, fields
of a recorder or a model file), some of them are replaced by what breaks readers, and it is put together again. What
comes out is read to the end, stored, and a few signals are computed. A case fails when anything but the reader's own
error is raised, when it takes longer than ``LIMIT_S``, or when a character that a terminal would obey comes out of it.
Every case is made from ``seed/number`` alone, so that a line of the output is enough to see it again.
"""

from __future__ import annotations

import argparse
import gzip
import importlib
import json
import os
import random
import re
import signal
import sqlite3
import struct
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import yaml

from kvscope import signals
from kvscope.errors import KvscopeError
from kvscope.playbook import load_playbook, shipped_dir
from kvscope.recording import Recorder
from kvscope.sources import open_file_target
from kvscope.sources.source import Mark
from kvscope.store import Store
from probes.border import Refused
from probes.ring import RingWriter
from probes.ring_reader import RingError
from probes.sample import Sample, labels_of
from tests.fuzz import documents
from tests.fuzz.changes import NUMBERS, TEXTS, as_json, few, of_bytes, of_text, of_tree, walk

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 10.0
"""Of processor time: a machine that is busy with other work makes no hang. Waiting may last ten times as long."""
MEMORY = "/dev/shm" if os.path.isdir("/dev/shm") else None
LOOKED_AT = ("generation_tokens_per_s", "ttft_mean_s", "ttft_p95_s", "running", "kv_usage", "prefix_hit_rate")
_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")

Make = Callable[[random.Random], bytes]


class Late(Exception):
    """A case took too long."""


# What each reader takes.


def _page(t: float) -> str:
    text = (ROOT / "samples/quiet/page.prom").read_text() if (ROOT / "samples/quiet/page.prom").exists() else _PAGE
    return text.replace("@T", str(int(t)))


_HISTOGRAM = "".join(
    f'vllm:time_to_first_token_seconds_bucket{{model_name="m",engine="0",le="{le}"}} @T\n' for le in (0.1, 1.0, "+Inf")
)
_PAGE = (
    "# TYPE vllm:num_requests_running gauge\n"
    'vllm:num_requests_running{model_name="m",engine="0"} 6.0\n'
    'vllm:num_requests_waiting{model_name="m",engine="0"} 2.0\n'
    'vllm:kv_cache_usage_perc{model_name="m",engine="0"} 0.4\n'
    'vllm:prompt_tokens_total{model_name="m",engine="0"} @T000\n'
    'vllm:generation_tokens_total{model_name="m",engine="0"} @T00\nprocess_start_time_seconds 100.0\n'
    'vllm:request_success_total{model_name="m",engine="0",finished_reason="stop"} @T\n'
    'vllm:cache_config_info{engine="0",block_size="16",num_gpu_blocks="1000",cache_dtype="auto"} 1.0\n'
    + _HISTOGRAM
    + 'vllm:time_to_first_token_seconds_sum{model_name="m",engine="0"} @T\n'
    'vllm:time_to_first_token_seconds_count{model_name="m",engine="0"} @T\n'
)


def pages(rng: random.Random) -> bytes:
    return of_text(rng, _page(100), few(rng)).encode("utf-8", "surrogatepass")


def series(rng: random.Random) -> bytes:
    lines: list[Any] = [{"t": 1000.0 + t, "text": _page(100 + t)} for t in range(8)]
    for _ in range(few(rng)):
        at = rng.randrange(8)
        if rng.random() < 0.6:
            lines[at]["text"] = of_text(rng, lines[at]["text"], 1)
        else:
            lines[at] = of_tree(rng, {**lines[at], "status": None, "error": "x"}, 1)
        if not isinstance(lines[at], dict) or not isinstance(lines[at].get("text"), str):
            break
    data = b"\n".join(map(as_json, lines)) + b"\n"
    return gzip.compress(data, 1) if rng.random() < 0.1 else data


def recordings(rng: random.Random) -> bytes:
    if rng.random() < 0.3:
        return _stored(rng)
    head = {
        "kvscope_recording": 1,
        "source": {"engine": "e", "version": "1"},
        "synthetic": True,
        "tags": {"model": "m"},
    }
    lines: list[Any] = [head, {"mark": "before", "t": 1000.0, "tags": {"policy": "full"}}]
    for t in range(12):
        values = {"sched.running": 4.0, "tokens.generated": 900.0 * t, "kv.bytes_per_layer{layer=0}": 1e6}
        values |= {
            "latency.ttft.bucket{le=0.5}": 2.0 * t,
            "latency.ttft.bucket{le=+Inf}": 4.0 * t,
            "latency.ttft.sum": t,
        }
        lines.append({"t": 1000.0 + t, "s": values})
    lines.insert(8, {"mark": "after", "t": 1005.0, "tags": {"policy": "combined"}})
    return b"\n".join(map(as_json, [*(of_tree(rng, lines, few(rng)) or [0])])) + b"\n"


def _stored(rng: random.Random) -> bytes:
    """A recording as SQLite with one of its cells replaced, or a few of its bytes."""
    if rng.random() < 0.3:
        return of_bytes(rng, _database())
    table, column = rng.choice(_CELLS)
    values: list[Any] = [one for one in NUMBERS if isinstance(one, str | float | None)]
    value = rng.choice([*values, b"\x00" * 9, -1, "[1]", '[["le","x"]]'])
    value = value.encode("utf-8", "replace").decode() if isinstance(value, str) else value
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        path = Path(folder) / "r.db"
        path.write_bytes(_database())
        with closing(sqlite3.connect(path)) as db, suppress(sqlite3.Error):
            db.execute("PRAGMA synchronous=OFF")
            db.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = (SELECT min(rowid) FROM {table})", (value,))
            db.commit()
        return path.read_bytes()


_CELLS = (
    *(("header", "value"), ("series", "metric"), ("series", "labels"), ("times", "data"), ("chunks", "data")),
    *(("chunks", "start_s"), ("chunks", "total"), ("chunks", "n"), ("chunks", "series"), ("marks", "t")),
    *(("marks", "name"), ("marks", "tags")),
)


def _database() -> bytes:
    if "database" not in _made:
        with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
            recorder = Recorder(Path(folder) / "r.db")
            for t in range(6):
                bucket = Sample("latency.ttft.bucket", t, 1000.0 + t, labels_of(le="0.5"))
                recorder.add([Sample("sched.running", float(t), 1000.0 + t), bucket])
            recorder.mark(Mark("after", 1006.0, {"policy": "full"}))
            recorder.close()
            _made["database"] = (Path(folder) / "r.db").read_bytes()
    return _made["database"]


def rings(rng: random.Random) -> bytes:
    data = bytearray(_ring())
    length = struct.unpack_from("<I", data, 12)[0]
    if rng.random() < 0.7:
        head = as_json(of_tree(rng, json.loads(bytes(data[64 : 64 + length])), few(rng)))
        if len(head) <= length + 1000:
            data[64 : 64 + len(head)] = head
            struct.pack_into("<I", data, 12, len(head))
            return bytes(data)
    for _ in range(rng.choice((1, 2, 10))):
        at = rng.choice((rng.randrange(16, 56), rng.randrange(len(data))))
        struct.pack_into("<d", data, min(at, len(data) - 8), rng.choice((1e300, float("nan"), -1.0, 1e18, 0.0)))
    return bytes(data)


_made: dict[str, bytes] = {}


def _ring() -> bytes:
    if "ring" not in _made:
        with tempfile.TemporaryDirectory() as folder:
            columns = ["t", "sched.running", "tokens.generated", "kv.bytes_per_layer[0]"]
            header = {
                "engine": "e",
                "model": "m",
                "tags": {"policy": "full"},
                "rank": {"index": 0, "run": "r"},
                "beats_s": 0.05,
            }
            writer = RingWriter(header, columns, ["t", "latency.ttft"], directory=Path(folder), step_bytes=1 << 15)
            for n in range(300):
                writer.write_step([n * 0.1, 4.0, 90.0 * n, 1e6])
            writer.write_event({"kind": "mark", "mark": "after", "tags": {"policy": "x"}, "t": 10.0})
            writer.write_request([12.0, 0.2])
            writer.close()
            _made["ring"] = writer.path.read_bytes()
    return _made["ring"]


def traces(rng: random.Random) -> bytes:
    events: list[Any] = []
    for n in range(25):
        events.append({"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 100 * n, "dur": 40,
                       "args": {"Input Dims": [[4, 8], [8, 4]]}})  # fmt: skip
        events.append({"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 100 * n + 9, "dur": 50,
                       "args": {"device": 0, "stream": 7, "correlation": n}})  # fmt: skip
    tree = of_tree(rng, {"deviceProperties": [{"name": "H200"}], "traceEvents": events}, few(rng))
    return as_json(tree)


def _of_samples(folder: str, longest: int = 60_000) -> Make:
    paths = [p for p in sorted((ROOT / "samples" / folder).rglob("*")) if p.is_file() and p.stat().st_size < 3_000_000]

    def make(rng: random.Random) -> bytes:
        path = rng.choice(paths)
        data = path.read_bytes()
        text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8", "replace")[:longest]
        try:
            return as_json(of_tree(rng, json.loads(text), few(rng)))
        except (ValueError, RecursionError):
            return of_text(rng, text, few(rng)).encode("utf-8", "surrogatepass")

    return make


def playbooks(rng: random.Random) -> bytes:
    path = rng.choice(sorted(shipped_dir().glob("*.yaml")))
    way = rng.random()
    if way < 0.3:
        return of_text(rng, path.read_text(), few(rng)).encode("utf-8", "surrogatepass")
    tree = yaml.safe_load(path.read_text())
    if way < 0.5:
        tree = of_tree(rng, tree, few(rng))
    else:
        # Words in their places: what a person writes wrongly in a file that is right.
        for _ in range(few(rng)):
            holder, key = rng.choice([(one, key) for one in walk(tree) for key in _texts(one)])
            holder[key] = of_text(rng, holder[key], 1) if rng.random() < 0.5 else rng.choice(TEXTS)
    return json.dumps(tree, default=str).encode("utf-8", "surrogatepass")


def _texts(holder: Any) -> list[Any]:
    """Where free text stands: its words may be any."""
    if isinstance(holder, dict):
        return [key for key, value in holder.items() if isinstance(value, str) and " " in value]
    return [at for at, value in enumerate(holder) if isinstance(value, str) and " " in value]


def models(rng: random.Random) -> bytes:
    """A GGUF file whose keys and tensors are mutated before they are written."""

    def text(said: str) -> bytes:
        data = said.encode("utf-8", "replace")
        return struct.pack("<Q", len(data)) + data

    keys: dict[str, Any] = {"general.architecture": "llama", "llama.embedding_length": 8, "llama.block_count": 1,
        "llama.attention.head_count": 2, "llama.attention.head_count_kv": 1, "llama.feed_forward_length": 16,
        "llama.attention.layer_norm_rms_epsilon": 1e-5, "llama.context_length": 64, "general.alignment": 32,
        "tokenizer.ggml.tokens": ["a", "b"]}  # fmt: skip
    keys = of_tree(rng, keys, rng.choice((0, 0, 1, 1, 2)))
    shapes = {"token_embd.weight": [8, 4], "output_norm.weight": [8], "blk.0.attn_q.weight": [8, 8]}
    out = [b"GGUF", struct.pack("<IQQ", 3, len(shapes), len(keys))]
    for name, value in keys.items():
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float | str | list)
            or (isinstance(value, int) and abs(value) >= 2**63)
        ):
            value = "x"
        kind, body = (
            (8, text(value))
            if isinstance(value, str)
            else (10, struct.pack("<q", value))
            if isinstance(value, int)
            else (
                (12, struct.pack("<d", value))
                if isinstance(value, float)
                else (9, struct.pack("<IQ", 8, len(value)) + b"".join(text(str(one)) for one in value))
            )
        )
        out += [text(name), struct.pack("<I", kind), body]
    wrong = rng.choice(list(shapes)) if rng.random() < 0.3 else ""
    for name, shape in shapes.items():
        dims, code, offset = list(shape), 0, 0
        if name == wrong:
            dims[rng.randrange(len(dims))] = rng.choice((0, 1, 2**40, 2**63))
            code, offset = rng.choice((0, 1, 8, 99)), rng.choice((0, 2**62, 128))
        out += [text(name), struct.pack("<I", len(dims)), *(struct.pack("<Q", size) for size in dims)]
        out.append(struct.pack("<IQ", code, offset))
    data = b"".join(out) + bytes(4096)
    return of_bytes(rng, data) if rng.random() < 0.2 else data


def control(rng: random.Random) -> bytes:
    from engine.knobs import Knobs
    from engine.lab.workload import Load

    values = {**Knobs().as_text(), **Load().as_text()}
    chosen = dict(rng.sample(sorted(values.items()), 3))
    if rng.random() < 0.5:
        # A number somewhere in what its knob might take.
        name = rng.choice(sorted(chosen))
        value, far = values[name], rng.choice((rng.randrange(10**9), rng.random(), -1, 1e30, 10**18))
        near = int(value) + rng.randrange(9) if value.isdecimal() else value
        chosen[name] = str(near if rng.random() < 0.7 else far)
        return as_json({"set": chosen, "mark": rng.choice((*TEXTS, "after"))})
    return as_json(of_tree(rng, {"set": chosen, "mark": "after"}, rng.choice((1, 1, 2))))


def requests(rng: random.Random) -> bytes:
    asked: dict[str, Any] = {"model": "m", "max_tokens": 4, "temperature": 0.5, "top_p": 0.9, "seed": 3, "stop": ["x"],
                             "stream": False, "stream_options": {"include_usage": True}, "n": 1}  # fmt: skip
    if rng.random() < 0.5:
        asked["prompt"] = rng.choice(([1, 2, 3], "1 2 3"))
    else:
        asked["messages"] = [{"role": "user", "content": rng.choice(("1 2", [{"type": "text", "text": "1 2"}]))}]
    if rng.random() < 0.5:
        asked |= {
            "temperature": rng.choice((0, 1e-300, 2, rng.random())),
            "top_p": rng.choice((0, 1e-12, 1, rng.random())),
            "seed": rng.choice((None, 0, -(2**63), 2**63 - 1, 2**63)),
            "max_tokens": rng.choice((None, 1, 61, 2**31)),
            "stop": rng.choice((None, "\u202e", ["a"] * 16, ["a"] * 17, "x" * 512)),
        }
        return as_json(asked)
    return as_json(of_tree(rng, asked, 1))


# How each is read: what comes out of it as text, or the reader's own error.


def read_target(data: bytes, path: Path) -> list[str]:
    path.write_bytes(data)
    source = open_file_target(path)
    store, said = Store(), []
    try:
        for _ in range(20):
            poll = source.poll()
            for mark in poll.marks:
                store.mark(mark)
                said += [mark.name, *mark.tags, *mark.tags.values()]
            store.add(poll.samples)
            said += [text for sample in poll.samples[:50] for _, text in sample.labels]
            said += poll.notices
            if poll.ended and not poll.more:
                break
        about = source.describe()
    finally:
        source.close()
    said += [about.engine, about.version, about.note, *about.tags, *about.tags.values(), *store.notices]
    for segment in store.segments[-2:]:
        for name in LOOKED_AT:
            if name in signals.names():
                said.append(str(signals.compute(name, store, segment)))
    return said


def read_playbook(data: bytes, path: Path) -> list[str]:
    named = re.search(rb'"?\bid"?: "?([a-z0-9-]{1,80})', data)
    path = path.with_name(f"{named[1].decode() if named else 'book'}.yaml")
    path.write_bytes(data)
    try:
        found = load_playbook(path)
    finally:
        path.unlink()
    return [found.id, found.title, found.cause.says]


def read_model(data: bytes, path: Path) -> list[str]:
    from engine.gguf import GGUFFile
    from engine.weights.gguf import config_of

    path.write_bytes(data)
    file = GGUFFile(path)
    config_of(file)
    for name in file.tensors:
        file.tensor(name)
    return []


def read_control(data: bytes, path: Path) -> list[str]:
    from engine.knobs import Knobs
    from engine.lab.workload import Load
    from engine.process import _changes
    from engine.settings import apply
    from probes import border

    body = border.mapping(border.document(data, "the body"), "the body")
    apply(Knobs(), Load(), _changes(body.get("set")))
    if body.get("mark"):
        return [border.text(body["mark"], "mark")]
    return []


def read_request(data: bytes, path: Path) -> list[str]:
    from engine.serving.routes import routes
    from probes import border

    body = border.mapping(border.document(data, "the body"), "the body")
    heard = _Heard(body)
    asked = "/v1/chat/completions" if "messages" in body else "/v1/completions"
    routes()["POST", asked].handle(heard, _service())
    return []


class _Heard:
    def __init__(self, body: dict[str, Any]) -> None:
        self.body = body

    def gone(self) -> bool:
        return False

    def send_json(self, status: int, body: dict[str, Any]) -> None:
        json.dumps(body).encode()

    def begin_events(self) -> None: ...
    def send_event(self, data: str) -> None:
        data.encode()

    def end_events(self) -> None: ...


def _service() -> Any:
    from engine.sampler import draw
    from engine.serving.service import Service
    from engine.serving.text import TextStream
    from engine.serving.ticket import Piece, Ticket
    from engine.tokenizer import NumberTokenizer

    def post(ticket: Ticket) -> None:
        import torch

        numbers = ticket.ask.sampling.numbers()
        token = draw(torch.zeros(16), ticket.ask.sampling, numbers.random()) if numbers else 0
        stream = TextStream(NumberTokenizer(16), ticket.ask.stops)
        ticket.events.put(Piece(stream.add(token) + stream.finish(), 1, "length"))

    return Service("m", NumberTokenizer(16), 16, 64, 1, post)


_EXPORT: dict[str, tuple[str, tuple[tuple[Any, ...], ...]]] = {
    "StringIds": ("id, value", ((1, "flash_fwd"), (2, "nccl"), (3, "cudaLaunchKernel"))),
    "TARGET_INFO_SESSION_START_TIME": ("utcEpochNs", ((1_700_000_000_000_000_000,),)),
    "TARGET_INFO_GPU": ("name", (("NVIDIA H200",),)),
    "CUPTI_ACTIVITY_KIND_RUNTIME": (
        "start, end, correlationId, nameId, globalTid",
        tuple((at * 10_000, at * 10_000 + 900, at, 3, 1 << 24) for at in range(1, 9)),
    ),
    "CUPTI_ACTIVITY_KIND_KERNEL": (
        "start, end, correlationId, demangledName, globalPid, deviceId, streamId",
        tuple((at * 10_000 + 1000, at * 10_000 + 8000, at, 1 + at % 2, 1 << 24, 0, 7) for at in range(1, 9)),
    ),
    "NVTX_EVENTS": ("start, end, text, textId, globalTid", ((10_000, 50_000, "step", None, 1 << 24),)),
}
"""The tables of an export of Nsight Systems that are read."""


def exports(rng: random.Random) -> bytes:
    """An export with some of its cells, names or rows replaced, or a few of its bytes."""
    heads = {name: columns for name, (columns, _) in _EXPORT.items()}
    tables = {name: [list(row) for row in rows] for name, (_, rows) in _EXPORT.items()}
    for _ in range(few(rng)):
        name = rng.choice(list(tables))
        columns, rows = heads[name], tables[name]
        way = rng.randrange(6)
        if way == 0 and len(tables) > 1:
            del tables[name]
        elif way == 1:
            heads[name] = columns.replace(rng.choice(columns.split(", ")), f"c{rng.randrange(9)}")
        elif rows:
            row = rng.choice(rows)
            row[rng.randrange(len(row))] = rng.choice((*NUMBERS[:5], -(2**63), 2**63 - 1, 1e300, b"\xff" * 9, *TEXTS))
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        path = Path(folder) / "e.sqlite"
        with closing(sqlite3.connect(path)) as db, db:
            for name, rows in tables.items():
                with suppress(sqlite3.Error, UnicodeError, OverflowError):
                    db.execute(f"CREATE TABLE {name} ({heads[name]})")
                    for row in rows:
                        db.execute(f"INSERT INTO {name} VALUES ({', '.join('?' * len(row))})", row)
        data = path.read_bytes()
    return of_bytes(rng, data) if rng.random() < 0.2 else data


READERS: dict[str, tuple[Make, Callable[[bytes, Path], list[str]], str]] = {
    "pages": (pages, read_target, "page.prom"),
    "series": (series, read_target, "series.jsonl"),
    "recordings": (recordings, read_target, "recording.db"),
    "rings": (rings, read_target, "engine-1-1.ring"),
    "traces": (traces, read_target, "trace.json"),
    "exports": (exports, read_target, "export.sqlite"),
    "logs": (_of_samples("logs", 20_000), read_target, "server.log"),
    "figures": (_of_samples("figures"), read_target, "figures.yaml"),
    "results": (_of_samples("results"), read_target, "result.json"),
    "playbooks": (playbooks, read_playbook, "book.yaml"),
    "models": (models, read_model, "model.gguf"),
    "control": (control, read_control, "control.json"),
    "requests": (requests, read_request, "request.json"),
    "maps": (documents.maps, read_target, "page.prom"),
    "events": (documents.events, read_target, "events.msgpack"),
    "spans": (documents.spans, read_target, "spans.jsonl"),
    "tables": (documents.tables, read_target, "table.csv"),
    "iterations": (documents.iterations, read_target, "iterations.json"),
    "settings": (documents.settings, documents.read_settings, "settings.json"),
    "configs": (documents.configs, documents.read_config_file, "config.json"),
    "discovery": (documents.discovery, documents.read_discovery, "targets.json"),
    "answers": (documents.answers, documents.read_answer, "answer.json"),
}


OF_THE_ENGINE = ("models", "control", "requests")


def own_errors() -> tuple[type[Exception], ...]:
    """What a reader may raise: one line with what, where and what was expected."""
    from engine.serving.errors import ApiError

    return KvscopeError, Refused, RingError, ApiError


def one(reader: str, seed: int, number: int, path: Path) -> tuple[str, str]:
    """Run one case; return what became of it (``read``, ``refused`` or a failure) and why."""
    make, read, _ = READERS[reader]
    data = make(random.Random(f"{reader}/{seed}/{number}"))
    # A reader of the engine's says ValueError where it is used by the engine's own start, in one line.
    engines = (ValueError,) if reader in ("models", "control") else ()
    _allow(LIMIT_S)
    try:
        said = read(data, path)
    except Late:
        return "hang", f"more than {LIMIT_S:g} s"
    except (*own_errors(), *engines) as error:
        # An engine's own error reaches a person through its launcher, as one of these.
        said, outcome = [str(error if isinstance(error, KvscopeError) else KvscopeError(str(error)))], "refused"
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        place = traceback.extract_tb(error.__traceback__)[-1]
        return (
            "traceback",
            f"{type(error).__name__} at {Path(place.filename).name}:{place.lineno}: {str(error)[:100]!r}",
        )
    else:
        outcome = "read"
    finally:
        _allow(0.0)
    escapes = next((text for text in said if _OBEYED.search(text.replace("\n", " "))), None)
    return ("escape", ascii(escapes)[:120]) if escapes is not None else (outcome, said[0] if said else "")


def _allow(seconds: float) -> None:
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.setitimer(signal.ITIMER_REAL, 10 * seconds)


def run(reader: str, count: int, seed: int, show: int = 5) -> Counter[str]:
    """Run ``count`` cases of a reader; print the first failures; return how many ended how."""
    found: Counter[str] = Counter()

    def late(*_: object) -> None:
        raise Late

    if reader in OF_THE_ENGINE:
        # What a case imports is no time of its reader, and an import that is broken off cannot be begun again.
        importlib.import_module("torch")
    before = {one: signal.signal(one, late) for one in (signal.SIGALRM, signal.SIGPROF)}
    began = time.monotonic()
    try:
        with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
            for number in range(count):
                outcome, why = one(reader, seed, number, Path(folder) / READERS[reader][2])
                found[outcome] += 1
                if outcome not in ("read", "refused") and sum(found[bad] for bad in BAD) <= show:
                    print(f"  {reader} {seed}/{number}: {outcome}: {why}", file=sys.stderr)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    found["seconds"] = round(time.monotonic() - began)
    return found


HEAD = "|---|---|---|---|---|---|---|---|"
BAD = ("traceback", "hang", "escape")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("readers", nargs="*", default=list(READERS), help=f"of {', '.join(READERS)}")
    parser.add_argument("--count", type=int, default=20_000, help="mutations a reader (20000)")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    print("| reader | mutations | read | refused in a line | tracebacks | hangs | escapes | s |", HEAD, sep="\n")
    failures = 0
    for reader in options.readers:
        found = run(reader, options.count, options.seed)
        failures += sum(found[bad] for bad in BAD)
        cells = [options.count, f"{found['read'] / options.count:.0%}", found["refused"], *(found[bad] for bad in BAD)]
        print("| " + " | ".join(map(str, [reader, *cells, found["seconds"]])) + " |", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
