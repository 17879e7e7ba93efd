"""The uncertainty of a network trained with a kernel Dirichlet prior."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - torch's own idiom

from gnnsafe.errors import require_known
from gnnsafe.methods.base import Kind, Method
from gnnsafe.methods.classes import check_multiclass
from gnnsafe.outputs import Outputs
from gnnsafe.scores import energy, max_softmax

__all__ = ["GKDE"]

Measure = Literal["confidence", "vacuity"]


@dataclass
class GKDE(Method):
    """Kernel Dirichlet prior: −max_c ᾱ_c, or vacuity C / α₀, of α = 1 + e^z (Zhao et al., 2020).

    For a model trained with the objective `KernelDirichlet`. ᾱ = α / α₀, α₀ = Σ_c α_c.

    Args:
        measure: "confidence", −max_c ᾱ_c, or "vacuity", C / α₀.

    Raises:
        InputError: An argument breaks its rule.
    """

    measure: Measure = "confidence"

    kind: ClassVar[Kind] = "model"
    objective: ClassVar[str] = "kernel-dirichlet"

    base_reach = 0

    def __post_init__(self) -> None:
        require_known("measure", self.measure, get_args(Measure))

    def base_scores(self, outputs: Outputs) -> Tensor:
        """−max_c ᾱ_c, or the vacuity."""
        check_multiclass(self, outputs)
        log_alpha = F.softplus(outputs.logits)
        if self.measure == "confidence":
            return max_softmax(log_alpha).float()
        return (log_alpha.shape[1] * torch.exp(energy(log_alpha))).float()  # energy(log α) = −log α₀
