"""Objectives: what training minimises. Independent of the method that scores afterwards."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - torch's own idiom

from gnnsafe.errors import InputError, is_number, require
from gnnsafe.graph import node_labels, node_mask
from gnnsafe.outputs import Outputs
from gnnsafe.propagation import check_propagation, propagate
from gnnsafe.scores import energy
from gnnsafe.sparse import Isolated

__all__ = ["OBJECTIVES", "CrossEntropy", "EnergyMargin", "Objective"]


class Objective(Protocol):
    """A loss on the training nodes and, where it needs them, on exposure nodes: OOD nodes seen in training."""

    @property
    def needs_exposure(self) -> bool:
        """Whether the loss reads exposure nodes."""
        ...

    def loss(self, outputs: Outputs, exposure: Outputs | None) -> Tensor:
        """One number to minimise; `outputs.graph` has `y` and `train_mask`, `exposure.graph` has `mask`."""
        ...


def exposure_missing(objective: Objective) -> InputError:
    """The error for an objective that needs exposure nodes and got none."""
    return InputError(
        f"'exposure' must be given for {objective!r} (got none); pass a graph of known OOD nodes with .mask, "
        "or train with CrossEntropy()"
    )


@dataclass(frozen=True)
class CrossEntropy:
    """Cross-entropy on the training nodes."""

    needs_exposure = False

    def loss(self, outputs: Outputs, exposure: Outputs | None = None) -> Tensor:
        """Mean of −log p_y over the training nodes."""
        mask = node_mask(outputs.graph, "train_mask")
        return F.cross_entropy(outputs.logits[mask], node_labels(outputs.graph)[mask])


@dataclass(frozen=True)
class EnergyMargin:
    """Cross-entropy + λ (mean_ID relu(E − t_in)² + mean_exposure relu(t_out − E)²)  (Liu et al., 2020).

    E is the energy after `steps` rounds of propagation, with gradients through them: GNNSafe++'s objective
    (Wu et al., 2023, eq. 8). With `steps=0` it is Energy FT's. Each mean is over its own set, as the formula says.
    """

    t_in: float
    t_out: float
    weight: float
    steps: int = 2
    alpha: float = 0.5
    isolated: Isolated = "keep"

    needs_exposure = True

    def __post_init__(self) -> None:
        check_propagation(self.steps, self.alpha, self.isolated)
        for name in ("t_in", "t_out"):
            value = getattr(self, name)
            require(is_number(value) and math.isfinite(value), name, "be a finite number", value)
        require(is_number(self.weight) and 0 <= self.weight < math.inf, "weight", "be >= 0", self.weight)

    def loss(self, outputs: Outputs, exposure: Outputs | None) -> Tensor:
        """Cross-entropy plus the weighted margin loss."""
        if exposure is None:
            raise exposure_missing(self)
        above = F.relu(self._energy(outputs)[node_mask(outputs.graph, "train_mask")] - self.t_in)
        below = F.relu(self.t_out - self._energy(exposure)[node_mask(exposure.graph, "mask")])
        margin = above.square().mean() + below.square().mean()
        return CrossEntropy().loss(outputs) + self.weight * margin

    def _energy(self, outputs: Outputs) -> Tensor:
        scores, edges = energy(outputs.logits), outputs.graph.edge_index
        return propagate(scores, edges, steps=self.steps, alpha=self.alpha, isolated=self.isolated)


OBJECTIVES: dict[str, type[Objective]] = {
    "cross-entropy": CrossEntropy,
    "energy-margin": EnergyMargin,
}
