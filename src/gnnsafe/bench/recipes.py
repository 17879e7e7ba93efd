"""A recipe: how to train and how to score, under the name that tables give it."""

from __future__ import annotations

from dataclasses import dataclass

from gnnsafe.methods import Method
from gnnsafe.training import Objective

__all__ = ["Recipe"]


@dataclass(frozen=True)
class Recipe:
    """An objective and a method: GNNSafe++ is the energy margin, scored by propagated energy."""

    name: str
    objective: Objective
    method: Method
