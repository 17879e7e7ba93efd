"""How alike neighbours are: their classes, their scores."""

from __future__ import annotations

import math
from statistics import fmean

import torch
from torch import Tensor

from gnnsafe.edges import Edges

__all__ = ["HETEROPHILIC", "homophily", "label_homophily", "mean_homophily", "roughness", "score_homophily"]

HETEROPHILIC = 0.25  # adjusted homophily below it; real graphs lie well to either side (Platonov et al., 2023)
EVIDENCE = 30  # edges between labelled nodes, below which labels are ignored


def homophily(classes: Tensor, edge_index: Tensor) -> tuple[float, float]:
    """Share h of edges within a class, and (h − Σ_c q_c²) / (1 − Σ_c q_c²), q the classes' shares of edge ends.

    Self-loops do not count. The second is adjusted homophily (Platonov et al., 2023): 0 by chance, 1 at most; NaN where
    there is one class or no edge.

    >>> homophily(torch.tensor([0, 0, 1, 1]), torch.tensor([[0, 1, 2, 3, 1, 2], [1, 0, 3, 2, 2, 1]]))
    (0.666..., 0.333...)
    """
    ends = classes[edge_index[:, edge_index[0] != edge_index[1]]]
    if ends.numel() == 0:
        return math.nan, math.nan
    share = float((ends[0] == ends[1]).double().mean())
    chance = float((torch.bincount(ends.flatten()).double() / ends.numel()).square().sum())
    return share, (share - chance) / (1 - chance) if chance < 1 else math.nan


def label_homophily(y: Tensor, known: Tensor, edge_index: Tensor) -> tuple[float, float] | None:
    """`mean_homophily` of the labels of nodes in the mask `known`; None where too few edges join two such nodes.

    A node whose label is negative has none.
    """
    labels, (source, target) = y.view(len(y), -1).long().to(edge_index.device), edge_index
    known = known.to(edge_index.device) & (labels >= 0).all(dim=1)
    edges = edge_index[:, known[source] & known[target] & (source != target)]
    return mean_homophily(labels, edges) if edges.shape[1] >= EVIDENCE else None


def mean_homophily(columns: Tensor, edge_index: Tensor) -> tuple[float, float]:
    """Over the columns [nodes, labels]; a label that all nodes have, or none, does not count in the second."""
    pairs = [homophily(column, edge_index) for column in columns.T]
    beyond = [adjusted for _, adjusted in pairs if not math.isnan(adjusted)]
    return fmean(share for share, _ in pairs), fmean(beyond) if beyond else math.nan


def score_homophily(scores: Tensor, edge_index: Tensor) -> float:
    """Pearson's correlation of the scores of an edge's two ends, self-loops apart; NaN where there is none.

    >>> score_homophily(torch.tensor([1.0, 1.0, 5.0, 5.0]), torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]]))
    1.0
    """
    ends = scores.double()[edge_index[:, edge_index[0] != edge_index[1]]]
    centred = ends - ends.mean(dim=1, keepdim=True)
    squares, rounding = centred.square().sum(dim=1), 1e-24 * ends.square().sum(dim=1)
    return float(centred.prod(dim=0).sum() / squares.prod().sqrt()) if (squares > rounding).all() else math.nan


def roughness(values: Tensor, edges: Edges) -> Tensor:
    """Dirichlet energy of each node, mean_j ‖f_i/√(1+d_i) − f_j/√(1+d_j)‖² over in-neighbours j, d in-degrees.

    By ‖a_i‖² − 2⟨a_i, mean_j a_j⟩ + mean_j ‖a_j‖², a = f/√(1+d): 0, except for rounding, where a node has no
    in-neighbours.

    >>> roughness(torch.tensor([[2.0], [0.0]]), Edges(torch.tensor([[0], [1]]), 2)).tolist()  # 0 → 1
    [0.0, 4.0]
    """
    mean = edges.mean(values.dtype)
    a = values / (1 + edges.in_degrees).sqrt().to(values.dtype)[:, None]
    square = a.square().sum(dim=1)
    return square + mean @ square - 2 * (a * (mean @ a)).sum(dim=1)
