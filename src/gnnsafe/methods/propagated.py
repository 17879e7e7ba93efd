"""Any score, propagated along the edges."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from gnnsafe.errors import require
from gnnsafe.graph import Graph
from gnnsafe.methods.base import Method, scores_of
from gnnsafe.outputs import Outputs
from gnnsafe.propagation import Unpropagated, check_propagation, propagate
from gnnsafe.sparse import Isolated

__all__ = ["Propagated"]


@dataclass
class Propagated(Method):
    """Any method's score, propagated: K times s ← α s + (1−α) D⁻¹A s, as Wu et al. do with energy (2023).

    Propagation asks a node's surroundings: it helps where OOD nodes stand together, in a graph or a region of their
    own, and hurts where they stand scattered among ID nodes.
    """

    method: Method
    steps: int = 2
    alpha: float = 0.5
    isolated: Isolated = "keep"

    def __post_init__(self) -> None:
        require(isinstance(self.method, Method), "method", "be a method such as Energy()", repr(self.method))
        check_propagation(self.steps, self.alpha, self.isolated)

    def needs_model(self) -> bool:
        """Whether the method within does."""
        return self.method.needs_model()

    def learns_from_validation(self) -> bool:
        """Whether the method within does."""
        return self.method.learns_from_validation()

    def fit(self, outputs: Outputs, y: Tensor, mask: Tensor) -> Propagated:
        """Fit the method within."""
        self.method.fit(outputs, y, mask)
        return self

    def score(self, outputs: Outputs) -> Tensor:
        """The method's score of each node after `steps` rounds of hearing its in-neighbours."""
        return self.propagated(scores_of(self.method, outputs), outputs.graph)

    def unpropagated(self, outputs: Outputs) -> Unpropagated:
        """The method's own score of each node."""
        return Unpropagated(scores_of(self.method, outputs), self.steps, self.alpha, self.isolated)

    def reach(self) -> int | None:
        """As many edges further than the method within."""
        reach = self.method.reach()
        return None if reach is None else reach + self.steps

    def propagated(self, scores: Tensor, graph: Graph) -> Tensor:
        """Scores that the method gave on that graph, propagated."""
        return propagate(scores, graph.edge_index, steps=self.steps, alpha=self.alpha, isolated=self.isolated)
