"""Number of features that are there."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gnnsafe.methods.typicality import Typicality
from gnnsafe.outputs import Outputs
from gnnsafe.sparse import scipy_csr

__all__ = ["NonzeroFeatures"]


@dataclass
class NonzeroFeatures(Typicality):
    """Unusual number of non-zero features: its distance from the training nodes' median, no model (trivial)."""

    def value(self, outputs: Outputs) -> Tensor:
        """How many features of each node are not 0."""
        x = outputs.graph.x
        if x.layout == torch.sparse_csr:
            return torch.from_numpy((scipy_csr(x) != 0).sum(axis=1))
        count: Tensor = torch.linalg.vector_norm(x, ord=0, dim=1)  # six times faster than count_nonzero
        return count
