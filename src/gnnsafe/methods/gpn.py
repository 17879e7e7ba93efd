"""The uncertainty of a graph posterior network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import torch
from torch import Tensor

from gnnsafe.errors import require_known
from gnnsafe.methods.base import Kind, Method
from gnnsafe.methods.classes import check_multiclass
from gnnsafe.outputs import Outputs
from gnnsafe.scores import energy, max_softmax, saturated

__all__ = ["GPN"]

Measure = Literal["confidence", "epistemic", "features"]


@dataclass
class GPN(Method):
    """Graph posterior network: −max_c ᾱ_c, or lack of evidence 1 / α₀, of logits log α (Stadler et al., 2021).

    For the model `GPN`. ᾱ = α / α₀ is its mean, "confidence", the measure that GKDE has too; "epistemic" is 1 / α₀;
    "features" is 1 / α₀ of every node alone, before its neighbours' evidence reaches it.

    Args:
        measure: "confidence", "epistemic" or "features".

    Raises:
        InputError: An argument breaks its rule.
    """

    measure: Measure = "confidence"

    kind: ClassVar[Kind] = "model"
    objective: ClassVar[str] = "uncertain-cross-entropy"
    model: ClassVar[str | None] = "gpn"

    base_reach = 0

    def __post_init__(self) -> None:
        require_known("measure", self.measure, get_args(Measure))

    def base_scores(self, outputs: Outputs) -> Tensor:
        """−max_c ᾱ_c, or 1 / α₀ with or without edges."""
        check_multiclass(self, outputs)
        if self.measure == "confidence":
            return max_softmax(outputs.logits).float()
        seen = outputs.without_edges if self.measure == "features" else outputs
        return saturated(torch.exp(energy(seen.logits).double()))  # energy(log α) = −log α₀
