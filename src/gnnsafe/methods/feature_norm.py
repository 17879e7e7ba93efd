"""Length of the feature vector."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from gnnsafe.checks import full_precision
from gnnsafe.methods.rows import lengths
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
            return torch.from_numpy(sp.linalg.norm(scipy_csr(x).astype(np.float64), axis=1))
        return lengths(full_precision(x))
