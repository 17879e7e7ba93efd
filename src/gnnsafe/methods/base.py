"""What a method is: fit on a model's outputs, score a model's outputs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TypeVar

from torch import Tensor

from gnnsafe.checks import check_labels, check_mask
from gnnsafe.outputs import Outputs

__all__ = ["Method"]

AnyMethod = TypeVar("AnyMethod", bound="Method")


class Method(ABC):
    """How to score: a small dataclass that knows no model, no file and no threshold."""

    def fit(self: AnyMethod, outputs: Outputs, y: Tensor, mask: Tensor) -> AnyMethod:
        """Learn from the training nodes (those in `mask`) what in-distribution looks like; returns itself.

        A method with nothing to learn keeps this one, which only checks its arguments.
        """
        check_labels("y", y, len(outputs.logits))
        check_mask("mask", mask, len(outputs.logits))
        return self

    @abstractmethod
    def score(self, outputs: Outputs) -> Tensor:
        """Float32, one per node, higher = more out-of-distribution."""
