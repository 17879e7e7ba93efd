"""Number of features that are there."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gnnsafe.methods.rows import entries_by_row, sums_by_row
from gnnsafe.methods.typicality import Typicality
from gnnsafe.outputs import Outputs

__all__ = ["NonzeroFeatures"]


@dataclass
class NonzeroFeatures(Typicality):
    """Unusual number of non-zero features: its distance from the training nodes' median, no model (trivial)."""

    base_reach = 0
    says = "unusual number of non-zero features"

    def value(self, outputs: Outputs) -> Tensor:
        """How many features of each node are not 0."""
        x = outputs.graph.x
        if x.layout == torch.sparse_csr:
            rows, _, entries = entries_by_row(x)
            return sums_by_row(rows, (entries != 0).double(), x.shape[0])
        count: Tensor = torch.linalg.vector_norm(x, ord=0, dim=1)  # six times faster than count_nonzero
        return count
