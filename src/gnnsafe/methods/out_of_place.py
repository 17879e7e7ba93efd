"""How unlike its neighbours a node is, taken by itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from torch import Tensor

from gnnsafe.errors import require_known
from gnnsafe.methods.base import Method
from gnnsafe.methods.rows import unit_rows
from gnnsafe.outputs import Outputs
from gnnsafe.propagation import diffused
from gnnsafe.scores import log_probabilities

__all__ = ["OutOfPlace"]

Place = Literal["prediction", "embedding"]


@dataclass
class OutOfPlace(Method):
    """A node by itself, unlike its neighbours: −⟨f°_i, mean_j f_j⟩ over in-neighbours, f° without edges (ours).

    f are probabilities or (`of="embedding"`) embeddings of unit length. The model runs twice, once with every node
    alone: a node whose neighbours lead it to what it would not predict alone is out of place. One
    without in-neighbours has only itself to be like, −‖f_i‖².

    Args:
        of: What is compared with the neighbours': the "prediction" or the "embedding".

    Raises:
        InputError: An argument breaks its rule.
    """

    of: Place = "prediction"

    base_reach = 1

    @property
    def says(self) -> str:
        """Which of the two."""
        return f"{self.of} unlike its neighbours'"

    def __post_init__(self) -> None:
        require_known("of", self.of, get_args(Place))

    def base_scores(self, outputs: Outputs) -> Tensor:
        """−⟨f°_i, mean_j f_j⟩."""
        averaged = diffused(self.rows_of(outputs), outputs.graph.edges, steps=1, alpha=0.0)
        return self.unlike(self.rows_of(outputs.without_edges), averaged)

    @staticmethod
    def unlike(alone: Tensor, averaged: Tensor) -> Tensor:
        """−⟨f°_i, mean_j f_j⟩, of f without edges and of the means over in-neighbours."""
        return -(alone * averaged).sum(dim=1).float()

    def rows_of(self, outputs: Outputs) -> Tensor:
        """F, a row per node."""
        if self.of == "embedding":
            return unit_rows(outputs.embeddings)
        return log_probabilities(outputs.logits, task=outputs.task).exp()
