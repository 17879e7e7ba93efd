"""How far a plain number of a node lies from what training nodes have."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from gnnsafe.methods.base import Kind, Method, fitted
from gnnsafe.methods.rows import quantiles
from gnnsafe.outputs import Outputs
from gnnsafe.scores import saturated

__all__ = ["Typicality"]


@dataclass
class Typicality(Method):
    """|v − median of the training nodes' v| for a number v of each node: whichever way a shift moves it, it is seen."""

    typical_: float = fitted()

    kind: ClassVar[Kind] = "trivial"

    def fit(self, outputs: Outputs, y: Tensor, mask: Tensor) -> Typicality:
        """Learn the training nodes' median."""
        super().fit(outputs, y, mask)
        self.typical_ = float(quantiles(self.value(outputs)[mask].detach(), [0.5]))
        return self

    def base_scores(self, outputs: Outputs) -> Tensor:
        """|v − median|."""
        return saturated((self.value(outputs).detach().double() - self.typical_).abs())

    @abstractmethod
    def value(self, outputs: Outputs) -> Tensor:
        """The number, one per node."""
