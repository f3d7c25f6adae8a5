"""What a plan counts is, to the byte, what transformers holds: all layers of published sizes, on the meta device.

``samples/configs/held.yaml`` has the figures, so that they are checked without transformers too; where it is installed,
some are measured again.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from kvscope.plan import engines, geometry
from kvscope.plan.engines import Ask

CONFIGS = Path("samples/configs")
HELD: dict[str, dict[int, int]] = yaml.safe_load((CONFIGS / "held.yaml").read_text())
CASES = [(name, tokens, held) for name, figures in HELD.items() for tokens, held in figures.items()]
AGAIN = ("llama-3.1-8b", "gemma-3-1b", "qwen2.5-1.5b", "lfm2-1.2b", "deepseek-v2-lite")
TOKENS = 200


def counted(name: str, tokens: int) -> int:
    model = geometry(CONFIGS / f"{name}.json")
    engine, _ = engines.find("transformers")
    return int(engine.layout(Ask(model, model.forms("bf16"), tokens)).request_bytes)


@pytest.mark.parametrize(("name", "tokens", "held"), CASES, ids=[f"{name}-{tokens}" for name, tokens, _ in CASES])
def test_the_count_is_what_transformers_held(name: str, tokens: int, held: int) -> None:
    assert counted(name, tokens) == held


def test_enough_architectures_were_measured() -> None:
    types = {geometry(CONFIGS / f"{name}.json").model_type for name in HELD}
    assert len(types) >= 12


def tensors(found: object, seen: dict[int, Any]) -> None:
    """Collect every tensor that a cache holds, once."""
    torch = pytest.importorskip("torch")
    if isinstance(found, torch.Tensor):
        seen[id(found)] = found
    elif isinstance(found, list | tuple):
        for one in found:
            tensors(one, seen)
    elif isinstance(found, dict):
        for one in found.values():
            tensors(one, seen)
    elif hasattr(found, "__dict__") and type(found).__module__.startswith("transformers"):
        tensors(vars(found), seen)


@pytest.mark.slow
@pytest.mark.parametrize("name", AGAIN)
def test_transformers_still_holds_that(name: str) -> None:
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    values = json.loads((CONFIGS / f"{name}.json").read_text())
    options = {key: value for key, value in values.items() if key not in ("model_type", "_about", "torch_dtype")}
    config = transformers.AutoConfig.for_model(values["model_type"], **options)
    config.vocab_size, config.pad_token_id = 64, 0
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()
    with torch.inference_mode():
        answer = model(torch.ones(1, TOKENS, dtype=torch.long, device="meta"), use_cache=True)
    seen: dict[int, Any] = {}
    tensors((answer["cache"] if "cache" in answer else answer["past_key_values"]).layers, seen)
    assert sum(one.numel() * one.element_size() for one in seen.values() if one.dim() > 1) == counted(name, TOKENS)
