"""Agreement with the neighbours' predictions."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from gnnsafe.methods.base import Method
from gnnsafe.outputs import Outputs
from gnnsafe.propagation import diffused
from gnnsafe.scores import log_probabilities

__all__ = ["Agreement"]


@dataclass
class Agreement(Method):
    """How little a prediction agrees with its surroundings: −⟨p_i, mean_j p_j⟩ over in-neighbours (ours).

    A node without in-neighbours has no neighbour to agree with: its score is 0, the most OOD there is.
    """

    base_reach = 1
    says = "prediction unlike its neighbours'"

    def base_scores(self, outputs: Outputs) -> Tensor:
        """−⟨p_i, mean_j p_j⟩."""
        p = log_probabilities(outputs.logits, task=outputs.task).exp()
        return -(p * diffused(p, outputs.graph.edges, steps=1, alpha=0.0, isolated="decay")).sum(dim=1).float()
