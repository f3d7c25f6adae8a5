"""Numbers of a cell: what was right, by how much, how sure, and how far from the full cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

Z95 = 1.959964


@dataclass(frozen=True, slots=True)
class Answers:
    """``logits`` [tokens, vocab] where the answers' tokens were due, ``tokens`` the right ones; ``lengths`` tokens of
    each answer. A token is scored behind the right ones before it, so an answer is right here exactly where greedy
    generation would have given the whole of it.
    """

    logits: Tensor
    tokens: Tensor
    lengths: tuple[int, ...]

    @property
    def right(self) -> Tensor:
        """bool [tokens]."""
        return self.logits.argmax(-1) == self.tokens

    @property
    def whole(self) -> tuple[int, int]:
        """Answers that are right in every token, of how many."""
        parts = torch.split(self.right, list(self.lengths))
        return sum(bool(part.all()) for part in parts), len(parts)

    @property
    def nll(self) -> Tensor:
        """Nats of the right token, [tokens]."""
        return torch.nn.functional.cross_entropy(self.logits.float(), self.tokens, reduction="none")

    @property
    def margins(self) -> Tensor:
        """The right token's logit less the best other one's, [tokens]."""
        right = self.logits.gather(1, self.tokens[:, None])
        others = self.logits.scatter(1, self.tokens[:, None], -torch.inf)
        return (right - others.amax(1, keepdim=True))[:, 0]

    def kl(self, reference: Answers) -> Tensor:
        """Nats by which these distributions differ from the reference's, KL(reference ‖ this), [tokens]."""
        mine, full = (one.logits.float().log_softmax(-1) for one in (self, reference))
        return (full.exp() * (full - mine)).sum(-1).clamp_min(0.0)


def join(parts: Sequence[Answers]) -> Answers:
    lengths = tuple(length for part in parts for length in part.lengths)
    return Answers(torch.cat([part.logits for part in parts]), torch.cat([part.tokens for part in parts]), lengths)


def wilson(right: int, of: int) -> tuple[float, float]:
    """The 95 % interval of a share (E. B. Wilson, 1927); (0, 1) of nothing."""
    if of == 0:
        return 0.0, 1.0
    share, spread = right / of, Z95 * Z95 / of
    middle = (share + spread / 2) / (1 + spread)
    half = Z95 / (1 + spread) * (share * (1 - share) / of + spread / (4 * of)) ** 0.5
    # The ends are exact where every answer is right or wrong; rounding must not move them inside.
    return min(share, max(0.0, middle - half)), max(share, min(1.0, middle + half))


def row_of(first: Answers, second: Answers, full: tuple[Answers, Answers]) -> dict[str, float | int]:
    """The measured part of a row: ``accuracy`` to ``n`` of the first turn, ``second_…`` of the second."""
    row: dict[str, float | int] = {}
    for prefix, answers, reference in (("", first, full[0]), ("second_", second, full[1])):
        right, of = answers.whole
        low, high = wilson(right, of)
        row[f"{prefix}accuracy"], row[f"{prefix}low"], row[f"{prefix}high"] = right / max(1, of), low, high
        row[f"{prefix}nll"] = float(answers.nll.mean())
        row[f"{prefix}margin_p5"] = float(answers.margins.quantile(0.05))
        row[f"{prefix}kl"] = float(answers.kl(reference).mean())
        row[f"{prefix}n"] = of
    return row
