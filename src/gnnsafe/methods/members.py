"""What several networks' predictions say together: entropy of their mean, and what they disagree about."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, get_args

import torch
from torch import Tensor

from gnnsafe.scores import saturated

__all__ = ["MEASURES", "Measure", "disagreement"]

Measure = Literal["entropy", "mutual-information"]
MEASURES = get_args(Measure)


def disagreement(answers: Iterable[Tensor], measure: Measure) -> Tensor:
    """H(mean_m p_m), or H(mean_m p_m) − mean_m H(p_m), of networks' log p_m  (Depeweg et al., 2018); float32.

    Of a multilabel head these are log p of both outcomes of every label, and entropies are summed over labels.

    >>> sure = torch.tensor([[0.0, -60.0]]), torch.tensor([[-60.0, 0.0]])  # of two different things
    >>> disagreement(sure, "entropy"), disagreement(sure, "mutual-information")
    (tensor([0.6931]), tensor([0.6931]))
    """
    total, entropies, number = torch.zeros(()), torch.zeros(()), 0
    for log_p in answers:  # one at a time: all at once are so many times the logits
        p = log_p.double().exp()
        total, entropies = (p, _entropy(p)) if number == 0 else (total + p, entropies + _entropy(p))
        number += 1
    predictive = _entropy(total / number)
    if measure == "entropy":
        return saturated(predictive)
    return saturated((predictive - entropies / number).clamp(min=0))


def _entropy(p: Tensor) -> Tensor:
    entropy: Tensor = torch.special.entr(p).sum(dim=1)
    return entropy
