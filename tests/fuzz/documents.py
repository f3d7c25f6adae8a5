"""What the readers of single documents take, and how each is read: events, spans, tables, settings, lists, configs."""

from __future__ import annotations

import gzip
import json
import random
import struct
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from kvscope.plan.config import read_config
from kvscope.sources import settings as of
from kvscope.sources._promapi import data_of, series_of
from kvscope.sources.service_discovery import lookup_of
from kvscope.sources.settings import Settings
from tests.fuzz.changes import NUMBERS, TEXTS, as_json, few, of_bytes, of_text, of_tree

SAMPLES = Path(__file__).resolve().parents[2] / "samples"

Make = Callable[[random.Random], bytes]


def events(rng: random.Random) -> bytes:
    """Batches of KV events: lines of JSON, packed ones, or payloads of msgpack."""
    lines = [json.loads(line) for line in gzip.decompress(_sample("events/unique-prompts.jsonl.gz")).split(b"\n")[:12]]
    if rng.random() < 0.4 and find_spec("msgpack"):
        import msgpack

        out = []
        for line in of_tree(rng, [[line["ts"], line["events"]] for line in lines], few(rng)):
            try:
                payload = msgpack.packb(line)
            except (ValueError, TypeError, OverflowError, UnicodeError):
                payload = b"\xc1"
            out.append(struct.pack(">I", rng.choice((len(payload),) * 9 + (0, 1, 2**32 - 1))) + payload)
        return of_bytes(rng, b"".join(out)) if rng.random() < 0.2 and out else b"".join(out)
    data = b"\n".join(map(as_json, of_tree(rng, lines, few(rng)))) + b"\n"
    return gzip.compress(data, 1) if rng.random() < 0.2 else data


def spans(rng: random.Random) -> bytes:
    """Finished requests: OTLP spans of vLLM, or SGLang's export."""
    if rng.random() < 0.3:
        row = {"request_parameters": {"rid": "r"}, "e2e_latency": 2.0, "queue_time": 0.1, "prompt_tokens": 9,
               "completion_tokens": 5, "cached_tokens": 1, "num_retractions": 0, "prefill_finished_ts": 1001.0,
               "request_received_ts": 1000.0, "decode_finished_ts": 1002.0,
               "request_sent_to_scheduler_ts": 1000.1, "response_sent_to_client_ts": 1002.1}  # fmt: skip
        return b"\n".join(map(as_json, of_tree(rng, [row] * 3, few(rng)))) + b"\n"
    lines = [json.loads(line) for line in _sample("requests/vllm-0.32.0.jsonl").splitlines()]
    tree = of_tree(rng, lines, few(rng))
    return json.dumps(tree, indent=1).encode() if rng.random() < 0.2 else b"\n".join(map(as_json, tree)) + b"\n"


def tables(rng: random.Random) -> bytes:
    """A long table, a wide one, or nvidia-smi's."""
    heads = (
        ("t,metric,value,labels", '{t},sched.running,{v},"{{""engine"": ""0""}}"'),
        ("t,metric,value,labels", "{t},kv.usage,0.{v},layer=0"),
        ("time,vllm:num_requests_running,kv_usage [%]", "2026-01-01T00:00:{v}0Z,{v},{v}"),
        (
            "timestamp, index, utilization.gpu [%], memory.used [MiB], power.draw [W]",
            "2026/01/01 00:00:0{v}.1, 0, {v}, 900, 70.1",
        ),
    )
    head, row = rng.choice(heads)
    text = "\n".join([head, *(row.format(t=1000 + n, v=n) for n in range(9))]) + "\n"
    return of_text(rng, text, few(rng)).encode("utf-8", "surrogatepass")


def iterations(rng: random.Random) -> bytes:
    """TensorRT-LLM's list of iterations."""
    one = {"iter": 1, "iterLatencyMS": 9.5, "numActiveRequests": 3, "numQueuedRequests": 1, "gpuMemUsage": 1 << 33,
           "kvCacheStats": {"maxNumBlocks": 100, "freeNumBlocks": 40, "usedNumBlocks": 60, "tokensPerBlock": 32,
                            "reusedBlocks": 5, "missedBlocks": 6, "cacheHitRate": 0.45},
           "inflightBatchingStats": {"numContextRequests": 1, "numGenRequests": 2, "numCtxTokens": 64,
                                     "numPausedRequests": 0, "numScheduledRequests": 3}}  # fmt: skip
    tree = of_tree(rng, [{**one, "iter": n} for n in range(6)], few(rng))
    return b"\n".join(map(as_json, tree)) if rng.random() < 0.3 and isinstance(tree, list) else as_json(tree)


def maps(rng: random.Random) -> bytes:
    """A page of every engine that has a map."""
    text = rng.choice(sorted((SAMPLES / "scrapes").glob("*.prom"))).read_text()
    lines = text.split("\n")
    start = rng.randrange(max(len(lines) - 60, 1))
    return of_text(rng, "\n".join(lines[start : start + 120]), few(rng)).encode("utf-8", "surrogatepass")


def configs(rng: random.Random) -> bytes:
    path = rng.choice(sorted((SAMPLES / "configs").glob("*.json")))
    return as_json(of_tree(rng, json.loads(path.read_text()), few(rng)))


def settings(rng: random.Random) -> bytes:
    """An engine's account of itself, and what a person sets."""
    account = {"vllm_config": {"cache_config": {"block_size": 16, "gpu_memory_utilization": 0.9, "cache_dtype": "auto",
               "num_gpu_blocks": 1000, "swap_space": 4}, "scheduler_config": {"max_num_seqs": 256,
               "max_num_batched_tokens": 8192, "cuda_graph_sizes": [1, 2, 4]}}, "max_model_len": 4096,
               "chunked_prefill_size": 2048, "n_ctx": 4096, "total_slots": 4, "cache_type_k": "q8_0"}  # fmt: skip
    said = rng.choice(("config.max_batched_tokens=8192", "kv_type=fp8", "config.block_tokens=64"))
    said = of_text(rng, said, 1) if rng.random() < 0.4 else said
    engine = rng.choice(("vllm", "sglang", "llama.cpp"))
    return as_json({"engine": engine, "account": of_tree(rng, account, few(rng)), "set": said})


def discovery(rng: random.Random) -> bytes:
    groups: list[Any] = [
        {"targets": ["a:1", "b:2"], "labels": {"__scheme__": "http", "job": "x"}},
        {"targets": ["[::1]:80"]},
    ]
    for _ in range(few(rng)):
        # Labels of others may be any: what is wrong there must not hide the rest.
        labels = rng.choice(groups).setdefault("labels", {})
        labels[rng.choice(("job", "__metrics_path__", "x"))] = rng.choice((*NUMBERS, *TEXTS))
    tree = of_tree(rng, groups, 1) if rng.random() < 0.5 else groups
    return as_json(tree) if rng.random() < 0.8 else of_text(rng, json.dumps(tree), 1).encode("utf-8", "surrogatepass")


def answers(rng: random.Random) -> bytes:
    """What a Prometheus server answers."""
    series = [{"metric": {"__name__": "vllm:num_requests_running", "engine": str(n)},
               "values": [[1000 + t, str(t)] for t in range(5)]} for n in range(3)]  # fmt: skip
    answer = {"status": "success", "data": {"resultType": "matrix", "result": series}}
    return as_json(of_tree(rng, answer, few(rng)))


def read_settings(data: bytes, path: Path) -> list[str]:
    """The account goes into settings as a page's would, what a person set after it."""
    asked = json.loads(data)
    found = Settings(asked["engine"])
    of.of_document(found, asked["account"])
    if isinstance(asked["account"], dict):
        of.of_model(found, asked["account"])
    samples = list(found.samples(1000.0))
    of.of_person(found, [asked["set"]])
    return [*found.tags().values(), *(text for sample in samples for _, text in sample.labels)]


def read_config_file(data: bytes, path: Path) -> list[str]:
    path.write_bytes(data)
    config = read_config(path)
    return [str(config), *config.unread()]


def read_discovery(data: bytes, path: Path) -> list[str]:
    path.write_bytes(data)
    return list(lookup_of(f"file_sd:{path}")())


def read_answer(data: bytes, path: Path) -> list[str]:
    found: list[Any] = [(labels, list(points)) for labels, points in series_of(data_of(data.decode(), "http://p"))]
    return [str(labels) for labels, _ in found]


def _sample(name: str) -> bytes:
    return (SAMPLES / name).read_bytes()
