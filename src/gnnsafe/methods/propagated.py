"""Any score, propagated along the edges."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from gnnsafe.edges import Isolated
from gnnsafe.errors import require
from gnnsafe.methods.base import Method
from gnnsafe.outputs import Outputs
from gnnsafe.propagation import Propagation, Weighting, check_propagation

__all__ = ["Propagated"]


@dataclass
class Propagated(Method):
    """Any method's score, propagated: K times s ← α s + (1−α) D⁻¹A s, as Wu et al. do with energy (2023).

    Propagation reads a node's surroundings: it helps where OOD nodes stand together, in a graph or a region of their
    own, and hurts where they stand scattered among ID nodes. With weighting="similarity" neighbours
    of a similar score count most: see `gnnsafe.propagation.Propagation`.

    Args:
        method: The method whose scores are propagated.
        steps: How often, K.
        alpha: How much of its own score a node keeps at each step, from 0 to 1.
        isolated: What becomes of a node without in-neighbours: "keep" its score, or let it "decay" by α at every step.
        weighting: "equal", in which all in-neighbours count alike, or "similarity".

    Raises:
        InputError: An argument breaks its rule.

    >>> import torch
    >>> from types import SimpleNamespace
    >>> from gnnsafe.methods import MaxLogit
    >>> path = SimpleNamespace(x=torch.eye(2), edge_index=torch.tensor([[0], [1]]))  # 0 → 1
    >>> Propagated(MaxLogit(), steps=1).score(Outputs(torch.tensor([[8.0, 0.0], [0.0, 0.0]]), path)).tolist()
    [-8.0, -4.0]
    """

    method: Method
    steps: int = 2
    alpha: float = 0.5
    isolated: Isolated = "keep"
    weighting: Weighting = "equal"

    def __post_init__(self) -> None:
        require(isinstance(self.method, Method), "method", "be a method such as Energy()", repr(self.method))
        check_propagation(self.steps, self.alpha, self.isolated, self.weighting)

    def fit(self, outputs: Outputs, y: Tensor, mask: Tensor) -> Propagated:
        """Fit the method within."""
        self.method.fit(outputs, y, mask)
        return self

    def base_scores(self, outputs: Outputs) -> Tensor:
        """The method's own score of each node."""
        return self.method.score(outputs)

    @property
    def base_reach(self) -> int | None:
        """That of the method's own scores."""
        return self.method.reach_within()

    @property
    def propagation(self) -> Propagation:
        """As its settings say."""
        return Propagation(self.steps, self.alpha, self.isolated, self.weighting)

    @property
    def says(self) -> str:
        """What the method within says, of the surroundings."""
        return f"{'around it: ' * (self.steps > 0)}{self.method.says}"

    def parts(self) -> tuple[Method, ...]:
        """The method within."""
        return (self.method,)
