"""What the members of an ensemble say together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from gnnsafe.errors import require, require_known
from gnnsafe.methods.base import Kind, Method
from gnnsafe.methods.classes import check_multiclass
from gnnsafe.methods.members import MEASURES, Measure, disagreement
from gnnsafe.outputs import Outputs
from gnnsafe.scores import log_probabilities

__all__ = ["DeepEnsemble"]


@dataclass
class DeepEnsemble(Method):
    """Entropy of the mean prediction of independently trained networks, or mutual information (Lakshminarayanan, 2017).

    For the model `Ensemble`, whose logits are the logarithm of its members' mean probabilities, and whose embedding is
    its members' logits side by side. The mutual information, entropy of the mean less the members' mean entropy, is
    what they disagree about.

    Args:
        measure: "entropy" or "mutual-information".

    Raises:
        InputError: An argument breaks its rule.
    """

    measure: Measure = "entropy"

    kind: ClassVar[Kind] = "model"
    objective: ClassVar[str] = "member-cross-entropy"
    model: ClassVar[str | None] = "ensemble"

    base_reach = 0
    says = "the members of the ensemble are unsure"

    def __post_init__(self) -> None:
        require_known("measure", self.measure, MEASURES)

    def base_scores(self, outputs: Outputs) -> Tensor:
        """The measure, over all members."""
        check_multiclass(self, outputs)
        if self.measure == "entropy":
            return disagreement([log_probabilities(outputs.logits)], "entropy")
        classes, width = outputs.logits.shape[1], outputs.embeddings.shape[1]
        require(width % classes == 0, "embeddings", f"be logits of members, {classes} each", width, "train an Ensemble")
        answers = torch.split(outputs.embeddings, classes, dim=1)
        return disagreement((log_probabilities(logits.double()) for logits in answers), self.measure)
