"""The device's kernels without a device: interpreted against float64 in a process of their own, compiled for sm_90."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from engine.forms import cold_names

pytest.importorskip("triton")

ROOT = Path(__file__).parents[3]


def interpreted(code: str) -> str:
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT), "TRITON_DEFAULT_FP_FUSION": "1"}
    start = "import torch\nfrom engine.forms import cold_names\nfrom tests.gpu.checks import *\n"
    command = [sys.executable, "-W", "ignore", "-c", start + code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.strip()


ATTENTION = """
for geometry, dtype, bar in (
    (KVGeometry(1, 2, 8, 32, block_tokens=64), torch.float32, 1e-5),
    (KVGeometry(1, 1, 4, 64, block_tokens=32), torch.bfloat16, 1e-2),
    (KVGeometry(1, 1, 20, 32, block_tokens=16), torch.float32, 1e-5),
):
    lens = [150, 1, geometry.block_tokens, 3 * geometry.block_tokens + 1]
    for cold, gone in ((0.0, 0.0), (0.6, 0.2)):
        made = case(geometry, lens, cold_share=cold, evicted_share=gone, dtype=dtype, seed=7)
        work = dense_list(made)
        check_attention(made, work, Launch(3 if cold else 1), bar)
        check_attention(made, work, Launch(1), bar, planned=True)
for forms in (*((form,) for form in cold_names()), cold_names()):
    geometry = KVGeometry(1, 2, 8, 32, block_tokens=64, entries=5)
    lens, share = [150, 1, 64], {"cold_share": 0.7, "evicted_share": 0.1}
    made = case(geometry, lens, **share, dtype=torch.float32, seed=8, forms=forms)
    check_attention(made, dense_list(made), Launch(2), 1e-5)
    check_prompt(made, 1e-5)
print("agrees")
"""

SELECTION = """
for statistics, rep_tokens in (("mean", 64), ("mean", 16), ("bounds", 64), ("bounds", 16)):
    geometry = KVGeometry(1, 2, 8, 32, block_tokens=64, rep_tokens=rep_tokens)
    lens = [1500, 1, 64]
    mixed = ((0.0, 0.0, ()), (0.5, 0.2, ("cold_int8",))) if rep_tokens == 64 else ()
    for cold, gone, forms in (*mixed, (0.5, 0.2, ("cold_int4", "lowrank"))):
        made = case(
            geometry, lens, cold_share=cold, evicted_share=gone, statistics=statistics, dtype=torch.float32, forms=forms
        )
        keep = Keep(0.3, sink_tokens=64, window_tokens=100, block_tokens=64)
        for ranked in (0, 256):
            work = check_selection(made, keep, Choice(units=16, ranked=ranked))
        check_attention(made, work, Launch(2), 1e-5)
made.pool.reps.zero_()
work = check_selection(made, Keep(0.3, block_tokens=64), Choice(units=16))
first = listed(made, work)[0, 0]
hot = [s for s in range(23) if int(made.pool.place[made.table[0, s].long(), 0]) != ABSENT]
assert sorted(first) == sorted(hot[: len(first) - 1] + [23]), "ties do not go to the first block"
print("agrees")
"""

STORING = """
for dtype in (torch.float32, torch.bfloat16):
    for statistics, rep_tokens in (("mean", 64), ("bounds", 16)):
        check_append(KVGeometry(1, 2, 4, 32, block_tokens=64, rep_tokens=rep_tokens), statistics, "cpu", dtype)
    geometry = KVGeometry(1, 2, 4, 32, block_tokens=64)
    plain, made = (case(geometry, [640], cold_share=c, dtype=dtype) for c in (0.0, 0.7))
    check_quantised(made, plain.pool.hot[plain.pool.place.long()].float())
print("agrees")
"""


@pytest.mark.slow
@pytest.mark.parametrize("code", [ATTENTION, SELECTION, STORING], ids=["attention", "selection", "storing"])
def test_the_interpreted_kernels_agree_with_float64(code: str) -> None:
    assert interpreted(code) == "agrees"


POINTERS = {
    "q": "*bf16", "out": "*bf16", "hot": "*bf16", "data": "*i8", "cold": "*i8", "part_at": "*fp32",
    "weight_at": "*fp32", "scale": "fp32", "reps": "*bf16", "scores": "*fp32", "k": "*bf16", "v": "*bf16",
    "mass_at": "*fp32", "mass": "*fp32", "x": "*bf16", "cosine": "*fp32", "sine": "*fp32",
}  # fmt: skip
INTEGERS = (
    "heads",
    "pairs",
    "capacity",
    "parts",
    "sinks",
    "pool_blocks",
    "table_stride",
    "splits",
    "k_stride",
    "start",
    "queries",
    "sight",
    "stride",
    "v_stride",
)
SHAPE = {
    "GROUP": 4,
    "ROWS": 16,
    "DIM": 128,
    "TOKENS": 64,
    "UPCAST": False,
    "PRECISION": "tf32",
}


def of_forms(forms: tuple[str, ...], *, folds: bool) -> dict[str, object]:
    from engine.geometry import KVGeometry
    from engine.kernels._cuda.pool import PAGE_BITS, PagedPool, constants

    shape = KVGeometry(1, 8, 32, 128, 64, dtype="bfloat16")
    pool = PagedPool.empty(shape, 1, 1, device="cpu", forms=forms, slab_bytes=4 * shape.hot_page_bytes)
    return constants(pool, folds=folds) | {"BITS": PAGE_BITS}


def compiled_for_hopper(kernel: Any, constants: dict[str, object], warps: int, kind: str = "bf16") -> Any:
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, compile

    pointers = {name: f"*{kind}" if target == "*bf16" else target for name, target in POINTERS.items()}
    types = {name: pointers.get(name, "i32" if name in INTEGERS else "*i32") for name in kernel.arg_names}
    constants = {name: value for name, value in constants.items() if name in types}
    source = ASTSource(fn=kernel, signature=types | dict.fromkeys(constants, "constexpr"), constexprs=constants)
    return compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": warps, "enable_fp_fusion": True})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("forms", "kind"),
    [
        *(((), "bf16"), (("cold_int8",), "fp32"), (("cold_int4",), "fp32")),
        *(((form,), "bf16") for form in cold_names()),
    ],
    ids=str,
)
def test_attention_compiles_for_hopper_within_its_shared_memory(forms: tuple[str, ...], kind: str) -> None:
    from engine.kernels._cuda.attend import attend_pages

    early, warps = len(forms) != 1, 4 if forms else 8
    constants = {"LANES": 4, "PLANNED": not early, "STAGES": 3, "COLD_STAGES": 2, "STEP": 16, "EVICT": ""}
    made = compiled_for_hopper(
        attend_pages, SHAPE | constants | of_forms(forms, folds=True) | {"EARLY": early}, warps, kind
    )
    assert "cubin" in made.asm
    assert ("griddepcontrol.wait" in made.asm["ptx"]) == early
    assert made.metadata.shared <= 227 * 1024


@pytest.mark.slow
@pytest.mark.parametrize("bounds", [True, False])
def test_selection_and_storing_compile_for_hopper(bounds: bool) -> None:
    from engine.forms.cold_int8.cuda import ROUNDER, quantise_pages
    from engine.kernels._cuda.select import choose_pages
    from engine.kernels._cuda.store import append_rows

    forms = ("cold_int8", "lowrank") if bounds else ()
    constants = (
        SHAPE
        | of_forms(forms, folds=False)
        | {
            "SUBS": 4 if bounds else 1,
            "BOUNDS": bounds,
            "CAP": 1024,
            "UNITS": 128,
            "PAGE": 16896,
            "RANKED": False,
            "TURNED": bounds,
            "EARLY": bounds,
        }
    )
    for kernel in (choose_pages, append_rows, quantise_pages):
        made = compiled_for_hopper(kernel, constants | {"ROUND": ROUNDER}, 4)
        assert "cubin" in made.asm
        assert made.metadata.shared <= 227 * 1024


@pytest.mark.slow
@pytest.mark.parametrize("cold", [True, False])
def test_prompts_lists_ranks_and_rotation_compile_for_hopper(cold: bool) -> None:
    from engine.kernels._cuda.lists import list_pages
    from engine.kernels._cuda.prefill import observe_pages, prefill_pages
    from engine.kernels._cuda.select import choose_pages
    from engine.kernels._cuda.turn import turn_rows

    shape = SHAPE | of_forms(cold_names() if cold else (), folds=False)
    shape |= {"LANES": 4, "CHUNK": 1024, "HEADS": 32, "HALF": 64}
    ranked = {"SUBS": 1, "BOUNDS": False, "CAP": 256, "UNITS": 256, "RANKED": True, "TURNED": True, "EARLY": cold}
    for kernel, more, warps in (
        (prefill_pages, {"ROWS": 128}, 8), (observe_pages, {"ROWS": 64}, 4), (list_pages, {}, 4),
        (turn_rows, {"LANES": 32}, 4), (choose_pages, ranked, 8),
    ):  # fmt: skip
        made = compiled_for_hopper(kernel, shape | more, warps)
        assert "cubin" in made.asm
        assert made.metadata.shared <= 227 * 1024


LATENT_POINTERS = {
    "q": "*bf16", "out": "*bf16", "rows": "*bf16", "part_at": "*fp32", "weight_at": "*fp32", "queries": "*i8",
    "weights": "*fp32", "keys": "*i8", "hits": "*i64",
}  # fmt: skip
LATENT_NUMBERS = (
    "capacity",
    "parts",
    "share",
    "table_stride",
    "list_stride",
    "tiles",
    "k",
    "pieces",
    "fetchers",
    "stride",
)


@pytest.mark.slow
@pytest.mark.parametrize("paged", [True, False])
def test_latent_rows_their_index_and_the_host_tier_compile_for_hopper(paged: bool) -> None:
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, compile

    from engine.kernels._cuda.hosted import OLDEST, PIECE, fetch_pages, find_slots
    from engine.kernels._cuda.latent import JOINED_AT_ONCE, attend_rows, join_rows
    from engine.kernels._cuda.latent_index import BINS, mark_rows, pick_rows, score_rows

    shape = {
        "HEADS": 16, "LANES": 16, "LATENT": 512, "ROPE": 64, "PAGED": paged, "TOKENS": 64 if paged else 1, "STEP": 32,
        "STAGES": 2, "JOINED": not paged, "TURNED": paged, "UPCAST": False, "PRECISION": "tf32", "EARLY": paged,
    }  # fmt: skip
    index = {"HEADS": 64, "LANES": 64, "DIM": 128, "TOKENS": 64, "BINS": BINS, "STAGES": 4, "UPCAST": False}
    picked = {"BINS": BINS, "TOKENS": 64, "OWN": 0 if paged else 128, "ROWS": 4096, "TILES": 16, "EARLY": paged}
    hosted = {"CAP": 256, "SLOTS": 512, "OLDEST": OLDEST, "WORDS": 16384, "PIECE": PIECE}
    for kernel, constants, warps in (
        (attend_rows, shape, 4), (join_rows, shape | {"STEP": JOINED_AT_ONCE}, 4),
        (score_rows, index | {"EARLY": paged}, 4), (mark_rows, picked, 8), (pick_rows, picked, 8),
        (find_slots, hosted, 4), (fetch_pages, hosted, 4),
    ):  # fmt: skip
        numbers = dict.fromkeys(LATENT_NUMBERS, "i32") | {"scale": "fp32"}
        types = {name: numbers.get(name, LATENT_POINTERS.get(name, "*i32")) for name in kernel.arg_names}
        own = {name: value for name, value in constants.items() if name in types}
        source = ASTSource(fn=kernel, signature=types | dict.fromkeys(own, "constexpr"), constexprs=own)
        made = compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": warps, "enable_fp_fusion": True})
        assert "cubin" in made.asm
        assert made.metadata.shared <= 227 * 1024


def test_every_kernel_that_is_launched_is_compiled_for_hopper_here() -> None:
    files = [*(ROOT / "engine/kernels/_cuda").glob("*.py"), *(ROOT / "engine/forms").glob("*/cuda.py")]
    here = Path(__file__).read_text()
    launched = {match.group(1) for file in files for match in re.finditer(r"^ +(\w+)\[\(", file.read_text(), re.M)}
    assert len(launched) >= 8
    assert not [name for name in launched if name not in here]
