"""What of a GPU's memory is left for KV: share of it that an engine takes, less weights, less what it works in.

    pool = memory x share - weights / GPUs - reserve       vLLM, SGLang (its static share holds the reserve back)
    pool = (memory - weights / GPUs - reserve) x share     TensorRT-LLM, LMDeploy: a share of what is free

The reserve is estimated unless it is said: activations of one step and the sampler's logits. vLLM 0.33.0
(``config/cache.py``: 0.92), SGLang 0.5.23 (``arg_groups/memory_hook.py``), TensorRT-LLM and LMDeploy (0.9 and 0.8 of
what is free).
"""

from __future__ import annotations

from dataclasses import dataclass

from kvscope.devices import Device
from kvscope.errors import UsageError
from kvscope.plan.engines import Ask
from kvscope.plan.model import Geometry

MIB = 1 << 20
SHARES = {"vllm": 0.92, "trtllm": 0.9, "lmdeploy": 0.8}
OF_FREE = ("trtllm", "lmdeploy")
OLD_VLLM_SHARE, SHARE_SINCE = 0.9, (0, 26)
PREFILL_CHUNK = 8192
LOGIT_ROWS, LOGIT_BYTES = 256, 4
SGLANG_FLOOR, SGLANG_LARGE = 10 * 1024, 60 * 1024


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of one GPU: all of it where known, and what is left for the pool; ``steps`` say how."""

    pool_bytes: int
    total_bytes: int | None = None
    weights_bytes: int = 0
    reserve_bytes: int = 0
    device: Device | None = None
    steps: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Given:
    """What a person said about memory; bytes of all GPUs together for ``weights``, of one for the rest."""

    memory: int | None = None
    device: Device | None = None
    weights: int | None = None
    share: float | None = None
    reserve: int | None = None


def left_for_kv(engine: str, ask: Ask, given: Given) -> Memory | None:
    """Return what is left for the pool of one GPU, or None where no memory was named; UsageError."""
    if given.memory is not None and given.device is None and given.weights is None and given.share is None:
        return Memory(given.memory, steps=(f"pool of one GPU, as said: {given.memory} B",))
    total = given.memory if given.memory is not None else given.device.memory_bytes if given.device else None
    if total is None:
        return None
    weights, notes = _weights(ask.model, given, ask.split.gpus)
    share, reserve, more = _share(engine, ask, given, total)
    if engine in OF_FREE:
        pool = int((total - weights - reserve) * share)
        step = f"({total} - {weights} weights - {reserve} reserve) x {share:g}"
    else:
        pool = int(total * share) - weights - reserve
        step = f"{total} x {share:g} - {weights} weights - {reserve} reserve"
    return Memory(
        pool, total, weights, reserve, given.device, (f"pool of one GPU: {step} = {pool} B",), (*notes, *more)
    )


def _weights(model: Geometry, given: Given, gpus: int) -> tuple[int, tuple[str, ...]]:
    if given.weights is not None:
        return -(-given.weights // gpus), ()
    if model.weights is None:
        raise UsageError(f"{model.unweighed or model.where}: weights not counted; expected --weights BYTES")
    return -(-model.weights.total_bytes // gpus), (f"weights {model.weights.how}, split evenly over {gpus} GPU(s)",)


def _share(engine: str, ask: Ask, given: Given, total: int) -> tuple[float, int, tuple[str, ...]]:
    if engine == "sglang" and given.share is None:
        reserve = given.reserve if given.reserve is not None else _sglang_reserve(ask, total)
        return 1.0, reserve, () if given.reserve is not None else (f"reserve estimated: {reserve // MIB} MiB",)
    share = given.share
    if share is None:
        share = SHARES.get(engine, 1.0)
        if engine == "vllm" and ask.options.release < SHARE_SINCE:
            share = OLD_VLLM_SHARE
    if given.reserve is not None:
        return share, given.reserve, ()
    if engine == "sglang":
        return share, 0, ("the static share holds activations and graphs back",)
    reserve = _working_bytes(ask)
    return share, reserve, (f"reserve estimated: {reserve // MIB} MiB for activations and logits of one step",)


def _working_bytes(ask: Ask) -> int:
    """Activations of a step of as many tokens as its budget, and logits for the requests in it."""
    model = ask.model
    tokens = ask.options.batched_tokens or PREFILL_CHUNK
    inner = -(-2 * model.widest_mlp // ask.split.tp)
    return tokens * (4 * model.width + inner) * 2 + LOGIT_ROWS * model.words * LOGIT_BYTES


def _sglang_reserve(ask: Ask, total: int) -> int:
    """``reserved_mem`` of ``memory_hook.py``: a constant, 1.5 MiB a token of a prefill chunk, a share a rank."""
    chunk = max(ask.options.batched_tokens or PREFILL_CHUNK, 2048)
    mib = 512 + 1.5 * chunk + ask.split.gpus / 8 * 1024
    if total > SGLANG_LARGE * MIB:
        mib = max(mib, SGLANG_FLOOR)
    return int(mib * MIB)
