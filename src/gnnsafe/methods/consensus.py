"""Several methods, combined."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from gnnsafe.errors import require
from gnnsafe.graph import node_mask
from gnnsafe.methods.agreement import Agreement
from gnnsafe.methods.base import Method, fitted
from gnnsafe.methods.edge_disagreement import EdgeDisagreement
from gnnsafe.methods.energy import Energy
from gnnsafe.methods.evidence import rarity
from gnnsafe.methods.knn import KNN
from gnnsafe.methods.reasons import Addend, Reasons
from gnnsafe.outputs import Outputs

__all__ = ["Consensus"]


def _each_of_its_kind() -> tuple[Method, ...]:
    """One that reads logits, one embeddings, one neighbours, one edges."""
    return Energy(), KNN(), Agreement(), EdgeDisagreement()


@dataclass
class Consensus(Method):
    """Several methods together: −Σ_m log p_m, p their conformal p-values among ID validation nodes (Fisher, 1925).

    The methods depend on each other, so this is an order of nodes and not a test with Fisher's distribution.

    Args:
        methods: The methods to combine; by default one of each kind.

    Raises:
        InputError: An argument breaks its rule.
    """

    methods: tuple[Method, ...] = field(default_factory=_each_of_its_kind)
    calibration_: Tensor = fitted()

    def __post_init__(self) -> None:
        known = isinstance(self.methods, tuple) and all(isinstance(method, Method) for method in self.methods)
        require(known and len(self.methods) > 0, "methods", "be a tuple of methods", repr(self.methods))

    def parts(self) -> tuple[Method, ...]:
        """The methods."""
        return self.methods

    def learns_from_validation(self) -> bool:
        """It does."""
        return True

    def fit(self, outputs: Outputs, y: Tensor, mask: Tensor) -> Consensus:
        """Fit each method, and keep its scores of the validation nodes, `val_mask` of the graph."""
        super().fit(outputs, y, mask)
        held_out = node_mask(outputs.graph, "val_mask")
        scores = [method.fit(outputs, y, mask).score(outputs)[held_out] for method in self.methods]
        self.calibration_ = torch.stack(scores).sort(dim=1).values
        return self

    @property
    def base_reach(self) -> int | None:
        """That of the method that reaches furthest."""
        reaches = [method.reach_within() for method in self.methods]
        return None if None in reaches else max(reach for reach in reaches if reach is not None)

    def rows(self, outputs: Outputs) -> Tensor:
        """−log((1 + #{calibration scores ≥ s_m}) / (n + 1)) of each node by each method, [nodes, methods]."""
        calibration = self.calibration_
        fits = calibration.dim() == 2 and len(calibration) == len(self.methods)
        rule = f"have a row for each of {len(self.methods)} methods"
        require(fits, "calibration_", rule, list(calibration.shape), "fit again")
        pairs = zip(self.methods, calibration, strict=True)
        return torch.stack([rarity(method.score(outputs), row) for method, row in pairs], dim=1)

    def weighed(self, rows: Tensor) -> Tensor:
        """Their sum."""
        return rows.sum(dim=1).float()

    def reasons(self, row: Tensor, around: Tensor | None = None) -> Reasons:
        """Every method adds its own."""
        return Reasons(tuple(Addend(math.exp(-value), 1.0, value) for value in row.tolist()))

    def base_scores(self, outputs: Outputs) -> Tensor:
        """−Σ_m log p_m."""
        return self.weighed(self.rows(outputs))
