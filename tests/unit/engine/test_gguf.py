"""GGUF files: what is read is what was written, bit for bit, and what is damaged is named."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from engine.gguf import GGUFFile
from engine.quants import BY_CODE, Quant


def written(path: Path, metadata: bytes, keys: int, tensors: dict[str, tuple[tuple[int, ...], int, bytes]]) -> Path:
    """A GGUF 3 file with 32-byte alignment; shapes are given slowest dimension first."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), keys) + metadata
    body = b""
    for name, (shape, code, data) in tensors.items():
        body += b"\0" * (-len(body) % 32)
        head += text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *reversed(shape), code, len(body))
        body += data
    path.write_bytes(head + b"\0" * (-len(head) % 32) + body)
    return path


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def random_blocks(quant: Quant, count: int) -> np.ndarray:
    """Stored bytes whose float16 fields are finite: every high byte of a pair loses its top exponent bit."""
    data = np.random.default_rng(quant.bytes).integers(0, 256, (count, quant.bytes), dtype=np.uint8)
    data[:, 1::2] &= 0xBF
    return data


def test_metadata_comes_back_as_written(tmp_path: Path) -> None:
    metadata = text("a.name") + struct.pack("<I", 8) + text("näme")
    metadata += text("a.count") + struct.pack("<II", 4, 7)
    metadata += text("a.words") + struct.pack("<IIQ", 9, 8, 2) + text("x") + text("yz")
    metadata += text("a.numbers") + struct.pack("<IIQ3i", 9, 5, 3, -1, 0, 1)
    file = GGUFFile(written(tmp_path / "m.gguf", metadata, 4, {}))
    assert file.metadata == {"a.name": "näme", "a.count": 7, "a.words": ["x", "yz"], "a.numbers": [-1, 0, 1]}


def test_tensors_come_back_in_their_shape(tmp_path: Path) -> None:
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    blocks = random_blocks(BY_CODE[8], 4)
    tensors = {"a": ((2, 3), 0, values.tobytes()), "b": ((4, 32), 8, blocks.tobytes())}
    file = GGUFFile(written(tmp_path / "m.gguf", b"", 0, tensors))
    assert np.array_equal(file.tensor("a"), values)
    assert np.array_equal(file.tensor("b"), BY_CODE[8].decode(blocks.reshape(-1)).reshape(4, 32))


@pytest.mark.parametrize("code", BY_CODE, ids=[quant.name for quant in BY_CODE.values()])
def test_every_type_is_decoded_bit_for_bit_as_the_gguf_package_does(code: int) -> None:
    gguf = pytest.importorskip("gguf")
    quant = BY_CODE[code]
    blocks = random_blocks(quant, 64)
    ours = quant.decode(blocks.reshape(-1)).reshape(-1)
    theirs = gguf.quants.dequantize(blocks, gguf.GGMLQuantizationType(code)).reshape(-1).astype(np.float32)
    assert np.array_equal(ours.view(np.uint32), theirs.view(np.uint32))


def test_damaged_files_are_named(tmp_path: Path) -> None:
    good = written(tmp_path / "m.gguf", b"", 0, {"a": ((4,), 0, bytes(16))}).read_bytes()
    cases = {
        "not a GGUF file": b"PK\3\4" + good[4:],
        "the file is empty": b"",
        "GGUF version 9": good[:4] + struct.pack("<I", 9) + good[8:],
        "damaged or cut short": good[:30],
    }
    for said, data in cases.items():
        (tmp_path / "x.gguf").write_bytes(data)
        with pytest.raises(ValueError, match=said):
            GGUFFile(tmp_path / "x.gguf")
    (tmp_path / "x.gguf").write_bytes(good[:-1])
    with pytest.raises(ValueError, match="ends after the file does"):
        GGUFFile(tmp_path / "x.gguf").tensor("a")


def test_what_cannot_be_read_says_what_could(tmp_path: Path) -> None:
    file = GGUFFile(written(tmp_path / "m.gguf", b"", 0, {"weight": ((256,), 10, bytes(84))}))
    with pytest.raises(ValueError, match=r"weight is Q2_K; types that can be read: .*Q4_1"):
        file.tensor("weight")
    with pytest.raises(ValueError, match="no tensor 'weigth'; nearest is 'weight'"):
        file.tensor("weigth")
