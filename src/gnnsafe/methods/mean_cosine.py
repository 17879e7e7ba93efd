"""Likeness of a node's features to its neighbours'."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from gnnsafe.checks import full_precision
from gnnsafe.methods.base import Kind, Method
from gnnsafe.methods.rows import unit_rows
from gnnsafe.outputs import Outputs
from gnnsafe.sparse import scipy_csr, sparse_enough

__all__ = ["MeanCosine"]


@dataclass
class MeanCosine(Method):
    """Unlike its neighbours: −mean_j cos(x_i, x_j) over in-neighbours, no model (trivial).

    A node that nobody points to is like nobody: its score is 0.
    """

    kind: ClassVar[Kind] = "trivial"

    base_reach = 1

    def base_scores(self, outputs: Outputs) -> Tensor:
        """−⟨x̂_i, mean_j x̂_j⟩."""
        x = full_precision(outputs.graph.x)
        mean: Any = outputs.graph.edges.mean(x.dtype, "decay")
        if x.device.type != "cpu" or not sparse_enough(x):  # scipy's products are the CPU's
            unit = unit_rows(full_precision(outputs.dense_features()))
            heard: Tensor = mean @ unit
            return -(unit * heard).sum(dim=1).float()
        rows = scipy_csr(x).astype(np.float64)  # float32 has no square of 1e20
        length = sp.linalg.norm(rows, axis=1)
        unit = sp.diags_array(1 / np.where(length > 0, length, 1)) @ rows
        return -torch.from_numpy(unit.multiply(scipy_csr(mean.csr) @ unit).sum(axis=1)).float()
