"""Train the shipped recall model from a seed: `python -m engine.lab.recall.train --out DIR --seed 0`.

Stages and mixtures are in `curriculum`; only answers are supervised. The end is a step count; the clock is a safety net
that fails loudly. Weights are written after each long stage, so that an interrupted run leaves something.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor

from engine.lab.recall.batch import IGNORE, Batch, make_batch
from engine.lab.recall.curriculum import CURRICULUM, Stage
from engine.lab.recall.evaluate import table
from engine.lab.recall.task import VOCAB_SIZE
from engine.model import Decoder, ModelConfig
from engine.weights.shipped import CONFIG_FILE, WEIGHTS_FILE, from_safetensors

LEARNING_RATE, WARMUP_STEPS, WEIGHT_DECAY, GRADIENT_NORM = 1.5e-3, 200, 0.05, 1.0
FALLING = 0.5
"""Share of the steps over which the learning rate falls."""
REPORT_EVERY = 100
LONG = 8192
"""Tokens of the stages after which weights are written."""


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
        max_context=66560,
    )


def learning_rate(step: int, total: int) -> float:
    """Linear warm-up, constant, and a linear fall to a twentieth: long contexts come last and few."""
    warm = min(1.0, (step + 1) / WARMUP_STEPS)
    left = (total - step) / (FALLING * total)
    return LEARNING_RATE * warm * min(1.0, max(0.05, left))


def loss_on(model: Decoder, batch: Batch) -> tuple[Tensor, Tensor]:
    """Mean loss and share of right next tokens over what a batch asks."""
    device, (rows, length) = batch.tokens.device, batch.tokens.shape
    positions = torch.arange(length, device=device).repeat(rows)
    with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
        hidden = model(batch.tokens.flatten(), positions, BatchAttend(rows))
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


class Progress:
    """Prints how training goes, by kind of document; raises TimeoutError past `minutes`."""

    def __init__(self, total: int, minutes: float) -> None:
        self._total, self._minutes, self._began = total, minutes, time.monotonic()
        self._rights: dict[str, list[Tensor]] = {}

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def count(self, kind: str, right: Tensor) -> None:
        self._rights.setdefault(kind, []).append(right)

    def report(self, step: int, length: int, loss: float) -> None:
        """Print the shares right since the last report."""
        shares = "  ".join(
            f"{kind} {float(torch.stack(rights).mean()):.3f}" for kind, rights in sorted(self._rights.items())
        )
        print(
            f"{self.seconds:6.1f} s  step {step:5d}/{self._total}  length {length:5d}  loss {loss:.4f}  {shares}",
            flush=True,
        )
        self._rights.clear()
        if self.seconds > 60 * self._minutes:
            raise TimeoutError(f"step {step} of {self._total} after {self._minutes} minutes: raise --minutes")


def train(
    model: Decoder,
    curriculum: tuple[Stage, ...],
    seed: int,
    minutes: float,
    ended: Callable[[Stage], object] = lambda stage: None,
) -> float:
    """Run every stage, telling `ended` after each; returns the seconds it took."""
    generator, rng = torch.Generator(model.embed.weight.device).manual_seed(seed), random.Random(seed)
    optimiser, step = optimiser_for(model), 0
    total = sum(stage.steps for stage in curriculum)
    progress = Progress(total, minutes)
    for stage in curriculum:
        for index in range(stage.steps):
            for group in optimiser.param_groups:
                group["lr"] = learning_rate(step, total)
            shape = stage.draw(rng)
            loss, right = loss_on(model, make_batch(shape, generator, rng))
            optimiser.zero_grad(set_to_none=True)
            torch.autograd.backward(loss)
            torch.nn.utils.clip_grad_norm_(model.parameters(), GRADIENT_NORM)
            optimiser.step()
            progress.count(shape.kind, right)
            step += 1
            if step % REPORT_EVERY == 0 or index + 1 == stage.steps:
                progress.report(step, stage.length, loss.item())
        ended(stage)
    return progress.seconds


def save(model: Decoder, out: Path) -> Decoder:
    """Write float16 weights and the config to `out`; returns the model as it will be loaded."""
    out.mkdir(parents=True, exist_ok=True)
    halves = {name: value.detach().to("cpu", torch.float16).contiguous() for name, value in model.state_dict().items()}
    save_file(halves, out / WEIGHTS_FILE)
    (out / CONFIG_FILE).write_text(model.config.to_json())
    return from_safetensors(model.config, (out / WEIGHTS_FILE).read_bytes(), WEIGHTS_FILE)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m engine.lab.recall.train", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder for the weights, the config and the scores")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=30.0, help="give up after this long")
    options = parser.parse_args(arguments)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = Decoder(shipped_config())
    model.init_weights(torch.Generator().manual_seed(options.seed))
    print(f"{sum(weight.numel() for weight in model.parameters())} parameters on {device}", flush=True)
    seconds = train(
        model.to(device),
        CURRICULUM,
        options.seed,
        options.minutes,
        lambda stage: save(model, options.out) if stage.length >= LONG else None,
    )
    measured: list[dict[str, object]] = []

    def keep(row: dict[str, object]) -> None:
        measured.append(row)
        report = {"seed": options.seed, "train_s": round(seconds, 1), "rows": measured}
        (options.out / "measured.json").write_text(json.dumps(report, indent=1) + "\n")

    table(save(model, options.out).to(device), keep)
    return 0


if __name__ == "__main__":
    sys.exit(main())
