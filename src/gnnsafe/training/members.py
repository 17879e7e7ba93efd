"""The objective of ensembles: every member is trained as if it were alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from gnnsafe.errors import require
from gnnsafe.graph import masked, node_labels
from gnnsafe.outputs import Outputs
from gnnsafe.training.objectives import Objective, check_multiclass, cross_entropy

__all__ = ["MemberCrossEntropy"]


@dataclass(frozen=True)
class MemberCrossEntropy(Objective):
    """Σ_m cross-entropy of member m on the training nodes: an `Ensemble` (Lakshminarayanan et al., 2017).

    Members share no weight, and Adam treats every weight by itself, so each learns what it would learn alone. The epoch
    that is kept is the one in which their mean prediction has the lowest validation cross-entropy.
    """

    reads_embeddings: ClassVar[bool] = True

    def loss(self, outputs: Outputs, exposure: Outputs | None = None, *, epoch: int = 0) -> Tensor:
        """The sum over members, whose logits are the embedding, side by side."""
        check_multiclass(outputs.task, self)
        classes, width = outputs.logits.shape[1], outputs.embeddings.shape[1]
        require(width % classes == 0, "embeddings", f"be logits of members, {classes} each", width, "train an Ensemble")
        labels = masked(node_labels(outputs.graph), outputs.graph, "train_mask")
        answers = masked(outputs.embeddings, outputs.graph, "train_mask").view(len(labels), -1, classes)
        members = answers.shape[1]
        return members * cross_entropy(answers.flatten(0, 1), labels.repeat_interleave(members), outputs.task)
