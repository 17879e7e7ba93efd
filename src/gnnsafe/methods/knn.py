"""Distance to the nearest training embeddings."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - torch's own idiom

from gnnsafe.errors import require_whole
from gnnsafe.methods.base import Method, fitted
from gnnsafe.outputs import Outputs

__all__ = ["KNN", "nearest_distances"]

PRODUCTS = 2**22  # numbers held at a time: 16 MB, whatever the number of nodes


def nearest_distances(points: Tensor, bank: Tensor, k: int) -> Tensor:
    """Distances of each point to its `k` nearest in the bank (all of it, if that is fewer), nearest first.

    Both are rows of unit length: the nearest are found by their similarities, chunk by chunk, and only their distances
    are computed.

    >>> nearest_distances(torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0], [1.0, 0.0]]), 2).tolist()
    [[0.0, 1.4142...]]
    """
    k = min(k, len(bank))
    size = max(1, PRODUCTS // max(len(bank), k * bank.shape[1]))
    distances = points.new_empty(len(points), k)
    for rows, row_distances in zip(torch.split(points, size), torch.split(distances, size), strict=True):
        nearest = (rows @ bank.T).topk(k, dim=1).indices
        row_distances.copy_((rows[:, None] - bank[nearest]).norm(dim=2))
    return distances


@dataclass
class KNN(Method):
    """Distance to the k-th nearest training embedding, on the unit sphere: ‖ĥ − ĥ_(k)‖ (Sun et al., 2022)."""

    k: int = 10
    bank_: Tensor = fitted()

    def __post_init__(self) -> None:
        require_whole("k", self.k, 1)

    def fit(self, outputs: Outputs, y: Tensor, mask: Tensor) -> KNN:
        """Keep the training nodes' embeddings."""
        super().fit(outputs, y, mask)
        self.bank_ = F.normalize(outputs.embeddings[mask])
        return self

    def score(self, outputs: Outputs) -> Tensor:
        """‖ĥ − ĥ_(k)‖."""
        return nearest_distances(F.normalize(outputs.embeddings), self.bank_, self.k)[:, -1].float()
