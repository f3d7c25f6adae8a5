"""Whatever a config or a header holds, it is counted or refused in one line: never a traceback, never for long."""

from __future__ import annotations

import copy
import json
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kvscope.cli import run
from kvscope.errors import UsageError
from kvscope.plan import engines, geometry, gguf, gguf_model
from kvscope.plan.engines import Ask, Options, Split

CONFIGS = sorted(Path("samples/configs").glob("*.json"))
STRANGE: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 3, 7, 1 << 40, -(1 << 70), 1.5, float("inf"), float("nan"), "", "8", "full_attention",
    "\x1b[31m", [], [1], [None], ["full_attention"], [-1] * 200, {}, {"a": 1}, [[1]], [{}] * 64,
)  # fmt: skip
MUTATIONS = 60
LONGEST = 2000


def parts(values: dict[str, Any]) -> list[dict[str, Any]]:
    """The object, and those inside it."""
    return [values, *(inner for value in values.values() if isinstance(value, dict) for inner in parts(value))]


def mutated(values: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    """A copy with one to three keys dropped, replaced, renamed, or shortened."""
    found: dict[str, Any] = json.loads(json.dumps(values))
    for _ in range(chance.randint(1, 3)):
        part = chance.choice(parts(found))
        if not part:
            continue
        key = chance.choice(sorted(part))
        change = chance.random()
        if change < 0.25:
            del part[key]
        elif change < 0.75:
            part[key] = copy.deepcopy(chance.choice(STRANGE))
        elif change < 0.9:
            part[key + chance.choice(("s", "_", "x"))] = part.pop(key)
        elif isinstance(part[key], list) and part[key]:
            part[key][chance.randrange(len(part[key]))] = copy.deepcopy(chance.choice(STRANGE))
    return found


def count(values: dict[str, Any], chance: random.Random) -> None:
    """Count as any engine would, or be refused."""
    try:
        model = geometry(values)
        name = chance.choice(engines.names())
        module, release = engines.find(name)
        split = Split(tp=chance.choice((1, 2, 8)), pp=chance.choice((1, 2)))
        ask = Ask(model, model.forms("bf16"), chance.choice((1, 4096, 1 << 20)), split, Options(release=release))
        found = module.layout(ask, 0)
        assert found.request_bytes >= 0
        assert found.growing >= 0
        found.fill(1 << 30)
    except UsageError as error:
        said = str(error)
        if "\n" in said or len(said) > LONGEST:
            pytest.fail(f"not one line: {said!r:.300}")


@pytest.mark.parametrize("path", CONFIGS, ids=[path.stem for path in CONFIGS])
def test_a_mutated_config_is_counted_or_refused(path: Path) -> None:
    values, chance = json.loads(path.read_text()), random.Random(path.stem)
    for _ in range(MUTATIONS):
        count(mutated(values, chance), chance)


@pytest.mark.parametrize("text", ["", "[]", "null", "{", '{"a":' * 5000, "\x00", '{"model_type": NaN}', "[" * 100000])
def test_what_is_no_config_is_refused_in_one_line(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "config.json"
    config.write_text(text)
    assert run(["plan", str(config), "--context", "1024"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "[" * 9000,
        '{"curve": []}',
        '{"curve": [[1e999, 1]]}',
        '{"curve": [[0, 1e999]]}',
        '{"curve": [[0, 1], [0, 2]]}',
        '{"curve": [[0, 0.5]], "margin": "x"}',
    ],
)
def test_what_is_no_curve_is_refused_in_one_line(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    curve = tmp_path / "curve.json"
    curve.write_text(text)
    assert run(["plan", str(CONFIGS[0]), "--context", "1024", "--curve", str(curve)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def text_of(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()


def header(architecture: str, numbers: dict[str, int], *, arrays: dict[str, list[int]] | None = None) -> bytes:
    """A GGUF header with whole numbers, arrays of them, and two tensors."""
    keys = [text_of("general.architecture") + struct.pack("<I", 8) + text_of(architecture)]
    keys += [text_of(f"{architecture}.{key}") + struct.pack("<II", 4, value) for key, value in numbers.items()]
    for key, values in (arrays or {}).items():
        packed = struct.pack(f"<IIQ{len(values)}i", 9, 5, len(values), *values)
        keys.append(text_of(f"{architecture}.{key}") + packed)
    tensors = [
        text_of("token_embd.weight") + struct.pack("<IQQIQ", 2, 4096, 1000, 8, 0),
        text_of("blk.0.ffn_down_exps.weight") + struct.pack("<IQQQIQ", 3, 256, 256, 8, 12, 0),
    ]
    return b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys)) + b"".join(keys) + b"".join(tensors)


LLAMA = {
    "block_count": 32, "context_length": 8192, "embedding_length": 4096, "feed_forward_length": 14336,
    "attention.head_count": 32, "attention.head_count_kv": 8,
}  # fmt: skip


def opened(content: bytes, tmp_path: Path) -> gguf.Header:
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    return gguf.read_header(path)


def test_a_gguf_header_is_counted_without_its_tensors(tmp_path: Path) -> None:
    model = gguf_model.geometry_of(opened(header("llama", LLAMA), tmp_path))
    assert model.token_bytes(64, model.forms("f16")) == 131072
    assert model.weights is not None
    assert model.weights.total_bytes == 4096 * 1000 // 32 * 34 + 256 * 256 * 8 // 256 * 144
    assert model.weights.expert_bytes == 256 * 256 * 8 // 256 * 144


def test_heads_and_windows_may_differ_by_layer(tmp_path: Path) -> None:
    numbers = {**LLAMA, "block_count": 4, "attention.sliding_window": 512, "attention.key_length": 256}
    del numbers["attention.head_count_kv"]
    arrays = {"attention.head_count_kv": [8, 8, 2, 8], "attention.sliding_window_pattern": [1, 1, 0, 1]}
    model = gguf_model.geometry_of(opened(header("gemma3", numbers, arrays=arrays), tmp_path))
    assert [(layer.kind, layer.kv_heads) for layer in model.layers] == [
        ("window", 8),
        ("window", 8),
        ("full", 2),
        ("window", 8),
    ]


def test_a_gguf_of_a_delta_rule_keeps_states(tmp_path: Path) -> None:
    numbers = {**LLAMA, "block_count": 4, "ssm.inner_size": 4096, "ssm.state_size": 128, "ssm.group_count": 16}
    model = gguf_model.geometry_of(opened(header("qwen3next", {**numbers, "ssm.conv_kernel": 4}), tmp_path))
    assert [layer.kind for layer in model.layers] == ["linear", "linear", "linear", "full"]
    assert model.state_bytes() == 3 * (4096 * 128 * 4 + (4096 + 2 * 16 * 128) * 3 * 2)


def cut(content: bytes, chance: random.Random) -> bytes:
    return content[: chance.randrange(len(content))]


def flipped(content: bytes, chance: random.Random) -> bytes:
    found = bytearray(content)
    for _ in range(chance.randint(1, 8)):
        found[chance.randrange(len(found))] = chance.randrange(256)
    return bytes(found)


def inflated(content: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(content) - 8)
    return content[:at] + struct.pack("<Q", chance.choice((1 << 63, 1 << 40, (1 << 64) - 1))) + content[at + 8 :]


@pytest.mark.parametrize("harm", [cut, flipped, inflated])
def test_a_damaged_gguf_header_is_read_or_refused(
    harm: Callable[[bytes, random.Random], bytes], tmp_path: Path
) -> None:
    chance = random.Random(harm.__name__)
    whole = header("llama", LLAMA, arrays={"attention.sliding_window_pattern": [1, 0]})
    for _ in range(400):
        try:
            model = gguf_model.geometry_of(opened(harm(whole, chance), tmp_path))
            model.held(1024, model.forms("f16"))
        except UsageError as error:
            if "\n" in str(error):
                pytest.fail(f"not one line: {error!r:.300}")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"GGUF" + struct.pack("<I", 9), "version 9"),
        (b"GGUF" + struct.pack("<IQQ", 3, 1 << 60, 1), "more than any model has"),
        (header("martian", LLAMA), "'martian' is not known"),
        (header("llama", {**LLAMA, "attention.head_count": 0}), "attention.head_count"),
        (header("mimo2", {**LLAMA, "attention.sliding_window": 128}), "expected an array, one entry a layer"),
    ],
)
def test_a_gguf_that_is_not_understood_says_why(content: bytes, says: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=says):
        gguf_model.geometry_of(opened(content, tmp_path))
