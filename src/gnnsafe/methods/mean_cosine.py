"""Likeness of a node's features to its neighbours'."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from gnnsafe.methods.base import Kind, Method
from gnnsafe.methods.likeness import mean_cosines
from gnnsafe.outputs import Outputs

__all__ = ["MeanCosine"]


@dataclass
class MeanCosine(Method):
    """Unlike its neighbours: −mean_j cos(x_i, x_j) over in-neighbours, no model (trivial).

    A node without in-neighbours has no similarity: its score is 0.
    """

    kind: ClassVar[Kind] = "trivial"

    base_reach = 1
    says = "features unlike its neighbours'"

    def base_scores(self, outputs: Outputs) -> Tensor:
        """−⟨x̂_i, mean_j x̂_j⟩."""
        return -mean_cosines(outputs)
