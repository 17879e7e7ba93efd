"""A value of the graph by itself, as a score: much of it is odd, or little."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

from torch import Tensor

from gnnsafe.errors import require_known
from gnnsafe.methods.base import Kind, Method
from gnnsafe.outputs import Outputs
from gnnsafe.scores import saturated

__all__ = ["OneSided", "Side"]

Side = Literal["high", "low"]


@dataclass
class OneSided(Method):
    """A value, or with side="low" its negative: what a study must beat before it has shown anything."""

    side: Side = "high"

    kind: ClassVar[Kind] = "trivial"

    def __post_init__(self) -> None:
        require_known("side", self.side, get_args(Side))

    @abstractmethod
    def value(self, outputs: Outputs) -> Tensor:
        """A number per node."""

    def base_scores(self, outputs: Outputs) -> Tensor:
        """The value or its negative."""
        value = self.value(outputs)
        return saturated(value if self.side == "high" else -value)
