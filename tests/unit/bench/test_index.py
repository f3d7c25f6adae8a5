"""Index and gather are told alone and as a share of decode, and too large a share is a finding."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvscope.bench.index import Share, result_of, share_of
from kvscope.cli import run
from kvscope.errors import NotEnoughData
from kvscope.store import Store
from probes.sample import Sample

TRACE = Path(__file__).parents[3] / "samples/traces/vllm-0.32.0-cpu.json.gz"
ROWS = [
    {"kernels": "generic", "order": "memory", "context": 4096, "index": 1.0, "gather": 2.0, "attend": 1.0},
    {"kernels": "generic", "order": "random", "context": 4096, "index": 1.0, "gather": 4.0, "attend": 1.0},
]


def share(index: float, gather: float | None) -> Share:
    parts = {"index_share": index, "gather_share": gather, "attend_share": 0.3}
    return Share(4096, "generic", dict.fromkeys(("decompress_share", "linear_share"), None) | parts, 0.01)


def test_more_than_three_tenths_is_a_warning() -> None:
    found = result_of(ROWS, [share(0.1, 0.25), share(0.1, None)], {}, {})
    assert len(found.warns) == 1
    assert "generic kernels at 4096 tokens: index and gather take 35% of decode" in found.warns[0]


def test_the_order_of_blocks_is_told_apart() -> None:
    found = result_of(ROWS, [share(0.1, 0.1)], {}, {})
    assert found.says[0].startswith("generic, 4096 tokens: random order takes 1.50 times the order of memory")
    assert {q.name: q.value for q in found.quantities}["generic_random_4096.gather_s"] == pytest.approx(0.004)


def test_who_tells_neither_is_refused() -> None:
    store = Store()
    store.add(Sample("tokens.generated", float(t), float(t)) for t in range(5))
    with pytest.raises(NotEnoughData, match="index and gather are not told"):
        share_of(store, store.segments[0], None, "vllm")


def test_a_trace_tells_its_share(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", "index", "--target", str(TRACE), "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert 0 <= found["quantities"][0]["value"] < 0.3


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--kept", "0"], "expected more than 0"),
        (["--device", "cud"], "--device 'cud' (did you mean 'cuda'?); expected cpu or cuda"),
        (["--model", "random:llama-8b"], "--model random:llama-8b: say how large its KV pool is, --pool-mib N"),
        (["--clients", "0"], "--clients 0: expected at least 1"),
    ],
)
def test_a_mistake_is_one_line(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", "index", *words]) == 2
    told = capsys.readouterr().err
    assert said in told
    assert told.count("\n") == 1
