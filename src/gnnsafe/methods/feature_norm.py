"""Length of the feature vector."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gnnsafe.checks import full_precision
from gnnsafe.methods.rows import entries_by_row, lengths, sums_by_row
from gnnsafe.methods.typicality import Typicality
from gnnsafe.outputs import Outputs

__all__ = ["FeatureNorm"]


@dataclass
class FeatureNorm(Typicality):
    """Unusual length of the features: ‖x‖'s distance from the training nodes' median, no model (trivial)."""

    base_reach = 0
    says = "unusual length of the features"

    def value(self, outputs: Outputs) -> Tensor:
        """‖x‖₂."""
        x = outputs.graph.x
        if x.layout == torch.sparse_csr:
            rows, _, entries = entries_by_row(x)
            return sums_by_row(rows, entries.square(), x.shape[0]).sqrt()
        return lengths(full_precision(x))
