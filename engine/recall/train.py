"""Train the shipped recall model from a seed: `python -m engine.recall.train --out DIR --seed 0`.

Sequences double from 128 to 16384 tokens; only walk tokens are supervised. The end is a step count; the clock
is a safety net that fails loudly.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor

from engine.model import Decoder, ModelConfig
from engine.recall.batch import IGNORE, BatchShape, make_batch
from engine.recall.evaluate import table
from engine.recall.task import VOCAB_SIZE
from engine.weights.shipped import CONFIG_FILE, WEIGHTS_FILE, from_safetensors

LEARNING_RATE, WARMUP_STEPS, WEIGHT_DECAY, GRADIENT_NORM = 1.5e-3, 200, 0.05, 1.0
REPORT_EVERY = 100


@dataclass(frozen=True)
class Stage:
    """A stretch of training at one length; spacings are document tokens per fact, one drawn per step."""

    length: int
    steps: int
    tokens_per_step: int
    walks: int
    walk_steps: int
    spacings: tuple[int, ...]

    def draw(self, rng: random.Random) -> BatchShape:
        """The shape of one step's batch: walks of half to full length, at a drawn density."""
        walk_steps = rng.randint(self.walk_steps // 2, self.walk_steps)
        rows = max(1, self.tokens_per_step // self.length)
        return BatchShape(rows, self.length, rng.choice(self.spacings), self.walks, walk_steps)


CURRICULUM = (
    Stage(128, 1200, 65536, 2, 8, (6, 8, 12)),
    Stage(256, 500, 65536, 2, 16, (8, 12, 24)),
    Stage(512, 400, 65536, 3, 24, (8, 12, 24)),
    Stage(1024, 300, 65536, 3, 48, (8, 12, 24)),
    Stage(2048, 300, 65536, 3, 96, (12, 16, 24)),
    Stage(4096, 300, 65536, 4, 128, (12, 16, 24)),
    Stage(8192, 300, 131072, 4, 160, (12, 24, 24)),
    Stage(16384, 400, 131072, 5, 160, (16, 24, 24)),
)


class BatchAttend:
    """Causal attention over rows of equal length, for training."""

    def __init__(self, rows: int) -> None:
        self.rows = rows

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        query, key, value = (x.reshape(self.rows, -1, *x.shape[1:]).transpose(1, 2) for x in (q, k, v))
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
        return mixed.transpose(1, 2).flatten(0, 1)


def shipped_config() -> ModelConfig:
    """The shape that is shipped; every second layer has no RoPE, so that recall does not depend on distance."""
    return ModelConfig(
        vocab_size=VOCAB_SIZE,
        hidden=256,
        layers=4,
        q_heads=4,
        kv_heads=2,
        head_dim=64,
        ffn=768,
        rope_base=10000.0,
        norm_eps=1e-5,
        rope_layers=(True, False, True, False),
        max_context=32768,
    )


def learning_rate(step: int, total: int) -> float:
    """Linear warm-up, then a cosine to a hundredth."""
    if step < WARMUP_STEPS:
        return LEARNING_RATE * (step + 1) / WARMUP_STEPS
    done = (step - WARMUP_STEPS) / max(1, total - WARMUP_STEPS)
    return LEARNING_RATE * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * done)))


def loss_on(model: Decoder, shape: BatchShape, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Mean loss and share of right next tokens over the walks of one fresh batch."""
    batch = make_batch(shape, generator)
    device = batch.tokens.device
    positions = torch.arange(shape.length, device=device).repeat(shape.batch)
    with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
        hidden = model(batch.tokens.flatten(), positions, BatchAttend(shape.batch))
        targets = batch.targets.flatten()
        supervised = targets != IGNORE
        logits = model.logits(hidden[supervised]).float()
    right = (logits.argmax(-1) == targets[supervised]).float().mean()
    return F.cross_entropy(logits, targets[supervised]), right


def optimiser_for(model: Decoder) -> torch.optim.AdamW:
    """AdamW that leaves the norm gains undecayed."""
    decayed = [weight for weight in model.parameters() if weight.dim() > 1]
    gains = [weight for weight in model.parameters() if weight.dim() < 2]
    groups = [{"params": decayed, "weight_decay": WEIGHT_DECAY}, {"params": gains, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=LEARNING_RATE, betas=(0.9, 0.98), fused=model.embed.weight.is_cuda)


def train(model: Decoder, curriculum: tuple[Stage, ...], seed: int, minutes: float) -> float:
    """Run every stage; returns the seconds it took, or raises TimeoutError past `minutes`."""
    generator, rng = torch.Generator(model.embed.weight.device).manual_seed(seed), random.Random(seed)
    optimiser = optimiser_for(model)
    total, step, began = sum(stage.steps for stage in curriculum), 0, time.monotonic()
    for stage in curriculum:
        for index in range(stage.steps):
            for group in optimiser.param_groups:
                group["lr"] = learning_rate(step, total)
            loss, right = loss_on(model, stage.draw(rng), generator)
            optimiser.zero_grad(set_to_none=True)
            torch.autograd.backward(loss)
            torch.nn.utils.clip_grad_norm_(model.parameters(), GRADIENT_NORM)
            optimiser.step()
            step += 1
            if step % REPORT_EVERY == 0 or index + 1 == stage.steps:
                elapsed = time.monotonic() - began
                print(
                    f"{elapsed:6.1f} s  step {step:5d}/{total}  length {stage.length:5d}  "
                    f"loss {loss.item():.4f}  right {right.item():.4f}",
                    flush=True,
                )
                if elapsed > 60 * minutes:
                    raise TimeoutError(f"step {step} of {total} after {minutes} minutes: raise --minutes")
    return time.monotonic() - began


def save(model: Decoder, out: Path) -> Decoder:
    """Write float16 weights and the config to `out`; returns the model as it will be loaded."""
    out.mkdir(parents=True, exist_ok=True)
    halves = {name: value.detach().to("cpu", torch.float16).contiguous() for name, value in model.state_dict().items()}
    save_file(halves, out / WEIGHTS_FILE)
    (out / CONFIG_FILE).write_text(model.config.to_json())
    return from_safetensors(model.config, (out / WEIGHTS_FILE).read_bytes(), WEIGHTS_FILE)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m engine.recall.train", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder for the weights, the config and the scores")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=30.0, help="give up after this long")
    options = parser.parse_args(arguments)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = Decoder(shipped_config())
    model.init_weights(torch.Generator().manual_seed(options.seed))
    print(f"{sum(weight.numel() for weight in model.parameters())} parameters on {device}", flush=True)
    seconds = train(model.to(device), CURRICULUM, options.seed, options.minutes)
    served = save(model, options.out).to(device)
    report = {"seed": options.seed, "train_s": round(seconds, 1), "rows": table(served)}
    (options.out / "measured.json").write_text(json.dumps(report, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
