"""Likeness of what a node's features have beyond the average to what its neighbours' have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from gnnsafe.methods.base import Kind, Method, fitted
from gnnsafe.methods.likeness import mean_cosines, mean_row
from gnnsafe.outputs import Outputs

__all__ = ["CentredCosine"]


@dataclass
class CentredCosine(Method):
    """Unlike its neighbours beside the average: −mean_j cos(x_i − μ, x_j − μ), no model (trivial).

    μ is the mean of the training nodes' features: what all have in common makes no two nodes alike. A node
    without in-neighbours, or whose features are the average, has no similarity: its score is 0.
    """

    centre_: Tensor = fitted()

    kind: ClassVar[Kind] = "trivial"

    base_reach = 1
    says = "features unlike its neighbours'"

    def fit(self, outputs: Outputs, y: Tensor, mask: Tensor) -> CentredCosine:
        """Learn μ."""
        super().fit(outputs, y, mask)
        self.centre_ = mean_row(outputs.graph.x.detach(), mask)
        return self

    def base_scores(self, outputs: Outputs) -> Tensor:
        """−⟨c_i, mean_j c_j⟩, c = (x − μ) / ‖x − μ‖; no model is in it, so it is kept with the graph."""
        key = self.centre_.cpu().numpy().tobytes()
        return outputs.graph.recent("centred cosine", key, lambda: -mean_cosines(outputs, self.centre_)).clone()
