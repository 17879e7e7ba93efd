"""What one scored graph looks like, in a few numbers: classes, degrees, features, and where its flagged nodes sit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gnnsafe.detector import Decisions

__all__ = [
    "BINS",
    "FeatureMoments",
    "FlaggedRegion",
    "by_class",
    "class_counts",
    "degree_summary",
    "feature_summary",
    "pooled",
    "regions",
]

BINS = 20  # of p-values
ALL = "all"  # the class of nodes where the model has none
QUANTILES = (0.0, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0)
REGIONS = 24
ROWS = 4096  # of dense features that are summed at a time


@dataclass(frozen=True, eq=False)
class FeatureMoments:
    """Mean and standard deviation of each feature over the nodes of a graph, float32."""

    mean: NDArray[np.float32]
    deviation: NDArray[np.float32]


@dataclass(frozen=True)
class FlaggedRegion:
    """A part of a graph: the nodes nearer to its centre than to another."""

    centre: str
    """The id of the node in its middle."""
    nodes: int
    flagged: int


def class_names(decided: Decisions) -> list[str]:
    """What each node's predicted class is called."""
    if decided.predicted is None:
        return [ALL] * len(decided)
    names = decided.class_names
    return [str(number if names is None else names[number]) for number in decided.predicted.tolist()]


def class_counts(decided: Decisions) -> dict[str, int]:
    """How many nodes are predicted to be of each class, in the order of their names."""
    found, counts = np.unique(class_names(decided), return_counts=True)
    return dict(zip(found.tolist(), counts.tolist(), strict=True))


def by_class(decided: Decisions) -> dict[str, list[int]]:
    """How many p-values lie in each twentieth of (0, 1], for each predicted class."""
    p, names = decided.p_values.cpu().numpy(), np.array(class_names(decided))
    bins = np.ceil(p * BINS - 1e-9).clip(1, BINS).astype(int) - 1  # p = 0.05 is in the first
    return {str(name): np.bincount(bins[names == name], minlength=BINS).tolist() for name in np.unique(names)}


def degree_summary(edge_index: Tensor, nodes: int) -> dict[str, Any]:
    """Mean and quantiles of in-degrees, and how many nodes have no in-neighbours."""
    degrees = torch.bincount(edge_index[1].cpu(), minlength=nodes).numpy()
    quantiles = np.quantile(degrees, QUANTILES).tolist() if nodes else [0.0] * len(QUANTILES)
    return {
        "mean": float(degrees.mean()) if nodes else 0.0,
        "quantiles": quantiles,
        "isolated": int((degrees == 0).sum()),
    }


def feature_summary(x: Tensor) -> FeatureMoments:
    """Of each column, whether features are dense or sparse."""
    rows, columns = x.shape
    if x.layout == torch.strided:
        total, squares = np.zeros(columns), np.zeros(columns)
        for part in torch.split(x.detach(), ROWS):
            numbers = part.double()
            total += numbers.sum(dim=0).cpu().numpy()
            squares += numbers.square().sum(dim=0).cpu().numpy()
    else:
        csr = x.to_sparse_csr()
        places, values = csr.col_indices().cpu().numpy(), csr.values().detach().double().cpu().numpy()
        total = np.bincount(places, weights=values, minlength=columns).astype(np.float64)
        squares = np.bincount(places, weights=values**2, minlength=columns).astype(np.float64)
    mean = total / max(rows, 1)
    deviation = np.sqrt(np.maximum(squares / max(rows, 1) - mean**2, 0))
    return FeatureMoments(mean.astype(np.float32), deviation.astype(np.float32))


def pooled(parts: Sequence[FeatureMoments], sizes: Sequence[int]) -> FeatureMoments:
    """Those of several graphs with so many nodes together: means by size, deviations from means of squares.

    >>> one, other = FeatureMoments(np.array([1.0]), np.array([1.0])), FeatureMoments(np.array([4.0]), np.array([0.0]))
    >>> both = pooled([one, other], [2, 1])  # such as 0, 2 and 4
    >>> both.mean.tolist(), both.deviation.round(4).tolist()
    ([2.0], [1.6330000162124634])
    """
    means = np.stack([part.mean for part in parts]).astype(np.float64)
    squares = np.stack([part.deviation for part in parts]).astype(np.float64) ** 2 + means**2
    mean = np.average(means, axis=0, weights=sizes)
    deviation = np.sqrt(np.maximum(np.average(squares, axis=0, weights=sizes) - mean**2, 0))
    return FeatureMoments(mean.astype(np.float32), deviation.astype(np.float32))


def regions(decided: Decisions, edge_index: Tensor, *, seed: int = 0) -> list[FlaggedRegion]:
    """Where flagged nodes sit: the graph in up to 24 parts, each node with the centre that is fewest edges away.

    Centres are drawn at random among nodes with edges; edges are followed both ways. Nodes that no centre reaches are
    left out.
    """
    nodes, ends = len(decided), edge_index.cpu().numpy()
    linked = np.unique(ends)
    if not len(linked):
        return []
    centres = np.random.default_rng(seed).permutation(linked)[:REGIONS]
    owner = np.full(nodes, -1)
    owner[centres] = np.arange(len(centres))
    source, target = np.concatenate([ends, ends[::-1]], axis=1)
    while (reached := (owner[source] >= 0) & (owner[target] < 0)).any():
        owner[target[reached]] = owner[source[reached]]  # of two that arrive at once, the last
    flags = decided.flags.cpu().numpy()
    sizes = np.bincount(owner[owner >= 0], minlength=len(centres))
    flagged = np.bincount(owner[(owner >= 0) & flags], minlength=len(centres))
    return [
        FlaggedRegion(str(decided.ids[centre]), int(size), int(many))
        for centre, size, many in zip(centres, sizes, flagged, strict=True)
    ]
