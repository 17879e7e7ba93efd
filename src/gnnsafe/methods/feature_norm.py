"""Length of the feature vector."""

from __future__ import annotations

from dataclasses import dataclass

import scipy.sparse as sp
import torch
from torch import Tensor

from gnnsafe.methods.typicality import Typicality
from gnnsafe.outputs import Outputs
from gnnsafe.sparse import scipy_csr

__all__ = ["FeatureNorm"]


@dataclass
class FeatureNorm(Typicality):
    """Unusual length of the features: ‖x‖'s distance from the training nodes' median, no model (trivial)."""

    def value(self, outputs: Outputs) -> Tensor:
        """‖x‖₂."""
        x = outputs.graph.x
        if x.layout == torch.sparse_csr:
            return torch.from_numpy(sp.linalg.norm(scipy_csr(x), axis=1))
        norm: Tensor = torch.linalg.vector_norm(x, dim=1)
        return norm
