"""How numbers of a graph's nodes are spread: what is asked of all nodes together, wherever these are."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

__all__ = ["Spread", "spread_of"]


class Spread(Protocol):
    """Numbers of so many nodes: in memory, or in a table of an engine (`gnnsafe.engines`)."""

    def __len__(self) -> int: ...

    def below(self, value: float) -> float:
        """The share of them below a value."""

    def quantile(self, share: float) -> float:
        """The lower one."""


def spread_of(values: Tensor) -> Spread:
    """That of numbers in memory.

    >>> import torch
    >>> spread = spread_of(torch.tensor([4.0, 1.0, 2.0, 3.0]))
    >>> spread.below(3.0), spread.quantile(0.5)
    (0.5, 2.0)
    """
    return _Values(values)


@dataclass(frozen=True, eq=False)
class _Values:
    values: Tensor

    def __len__(self) -> int:
        return len(self.values)

    def below(self, value: float) -> float:
        return float((self.values < value).double().mean())

    def quantile(self, share: float) -> float:
        """Of any number of values: `torch.quantile` takes 16 million."""
        return float(self.values.kthvalue(math.floor(share * (len(self) - 1)) + 1).values)
