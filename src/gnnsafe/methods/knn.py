"""Distance to the nearest training embeddings."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gnnsafe.errors import require_whole
from gnnsafe.methods.base import Method, fitted
from gnnsafe.methods.rows import unit_rows
from gnnsafe.outputs import Outputs

__all__ = ["KNN", "nearest_distances"]

SAME = 1e-12  # squared
PRODUCTS = 2**18  # numbers held at a time, which the cache holds, whatever the number of nodes


def nearest_distances(points: Tensor, bank: Tensor, k: int) -> Tensor:
    """Distances of each point to its `k` nearest in the bank (all of it, if that is fewer), nearest first.

    Chunk by chunk, by ‖a‖² + ‖b‖² − 2⟨a, b⟩ in double precision, so that rounding is not taken for nearness: what is
    nearer than 1e-6, the rounding of unit rows, is there.

    >>> nearest_distances(torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0], [1.0, 0.0]]), 2).tolist()
    [[0.0, 1.4142...]]
    """
    k, bank = min(k, len(bank)), bank.double()
    lengths, narrow = bank.square().sum(dim=1), torch.promote_types(points.dtype, torch.float32)
    nearest = points.new_empty((len(points), k), dtype=narrow)  # whole: pieces between chunks would keep their memory
    at_once = max(1, PRODUCTS // len(bank))
    for start in range(0, len(points), at_once):
        rows = points[start : start + at_once].double()
        squared = torch.addmm(lengths, rows, bank.T, alpha=-2) + rows.square().sum(dim=1, keepdim=True)
        nearest[start : start + at_once] = _smallest(squared.to(narrow), k)
    return nearest.where(nearest > SAME, 0).sqrt()


def _smallest(values: Tensor, k: int) -> Tensor:
    """The k smallest numbers of each row in their order; numpy finds them several times as fast as torch's topk."""
    if values.device.type != "cpu":
        return values.topk(k, dim=1, largest=False).values
    return torch.from_numpy(np.sort(np.partition(values.detach().numpy(), k - 1, axis=1)[:, :k], axis=1))


@dataclass
class KNN(Method):
    """Distance to the k-th nearest training embedding, on the unit sphere: ‖ĥ − ĥ_(k)‖ (Sun et al., 2022).

    Args:
        k: Which of the nearest training nodes counts: the k-th.

    Raises:
        InputError: An argument breaks its rule.

    >>> from types import SimpleNamespace
    >>> graph = SimpleNamespace(x=torch.eye(3), edge_index=torch.tensor([[0], [1]]))
    >>> embeddings = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    >>> outputs = Outputs(torch.zeros(3, 2), graph, embedded=embeddings)
    >>> knn = KNN(k=1).fit(outputs, torch.tensor([0, 0, 1]), torch.tensor([True, False, False]))
    >>> knn.score(outputs).tolist()  # the first node is the only training node
    [0.0, 0.0, 1.4142...]
    """

    k: int = 10
    bank_: Tensor = fitted()

    base_reach = 0
    says = "embedding unlike training nodes'"

    def __post_init__(self) -> None:
        require_whole("k", self.k, 1)

    def fit(self, outputs: Outputs, y: Tensor, mask: Tensor) -> KNN:
        """Keep the training nodes' embeddings."""
        super().fit(outputs, y, mask)
        self.bank_ = unit_rows(outputs.embeddings[mask])
        return self

    def base_scores(self, outputs: Outputs) -> Tensor:
        """‖ĥ − ĥ_(k)‖."""
        return nearest_distances(unit_rows(outputs.embeddings), self.bank_, self.k)[:, -1].float()
