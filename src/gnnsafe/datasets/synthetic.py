"""A synthetic graph from a seed alone: for tests, for scaling, and where there is no network."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from gnnsafe.errors import is_number, require, require_seed, require_whole
from gnnsafe.graph import Data

__all__ = ["DOMAINS", "EXPOSURE", "ID", "OOD", "synthetic"]

FIRST, LAST = 2000, 2019
ID, EXPOSURE, OOD = 2009, (2010, 2013), {"2014-2016": (2014, 2016), "2017-2019": (2017, 2019)}
DOMAINS = {"id": 0.0, "exposure": 0.5, "near": 0.25, "far": 0.75}  # name → drift
WORDS = 20  # drawn per node; repeated ones count once
HOMOPHILY = 0.8  # share of edges that stay within a class


def synthetic(seed: int, *, nodes: int, edges: int, features: int, classes: int, drift: float = 0.0) -> Data:
    """A degree-corrected block model with planted classes and bag-of-words features, undirected.

    - Classes are equally likely. A node's pull is Pareto-distributed; an edge starts at a node drawn by pull, ends with
      probability 0.8 in the same class and else anywhere, at a node drawn by pull. Self-loops and repetitions are
      dropped, so that there are slightly fewer than `edges` directed edges. O(N + E) memory, O(E log N) time.
    - Half of a node's words are its class's own, half are common to all. With probability `drift` + 0.6 · (age of the
      node's year, from 0 for 2000 to 1 for 2019) a class word comes from another part of the vocabulary: that is what
      changes over `year` and between domains.
    """
    for name, size in (("nodes", nodes), ("edges", edges), ("features", features), ("classes", classes)):
        require_whole(name, size, 0)
    require(classes >= 2, "classes", "be >= 2", classes)
    require(nodes >= 10 * classes, "nodes", f"be >= 10 per class, {10 * classes}", nodes)
    require(features >= 4 * classes, "features", f"be >= 4 per class, {4 * classes}", features)
    require(0 <= edges <= 10**8, "edges", "lie in [0, 1e8]", edges)
    require(is_number(drift) and 0 <= drift <= 1, "drift", "lie in [0, 1]", drift)
    require_seed(seed)
    rng = np.random.default_rng(seed)
    y = rng.integers(classes, size=nodes)
    year = rng.integers(FIRST, LAST + 1, size=nodes)
    drifted = drift + 0.6 * (year - FIRST) / (LAST - FIRST)
    from torch_geometric.data import Data

    return Data(
        x=torch.from_numpy(_bag_of_words(y, drifted, features, classes, rng)),
        edge_index=torch.from_numpy(_edges(y, edges, rng)),
        y=torch.from_numpy(y),
        year=torch.from_numpy(year),
    )


def _edges(y: NDArray[np.int64], edges: int, rng: np.random.Generator) -> NDArray[np.int64]:
    nodes, pairs = len(y), edges // 2
    pull = np.minimum(1 + rng.pareto(2.5, size=nodes), 100.0)
    by_class = np.argsort(y, kind="stable")
    total = np.concatenate([[0.0], np.cumsum(pull[by_class])])  # of the nodes in order of class
    start = np.concatenate([[0], np.cumsum(np.bincount(y))])
    source = _drawn(rng.random(pairs) * total[-1], total)
    within = rng.random(pairs) < HOMOPHILY
    label = y[by_class[source]]
    low = np.where(within, total[start[label]], 0.0)
    high = np.where(within, total[start[label + 1]], total[-1])
    target = _drawn(low + rng.random(pairs) * (high - low), total)
    source, target = by_class[source], by_class[target]
    both = np.concatenate([source * nodes + target, target * nodes + source])
    both = np.unique(both[np.concatenate([source, source]) != np.concatenate([target, target])])
    return np.stack(np.divmod(both, nodes))


def _drawn(point: NDArray[np.float64], total: NDArray[np.float64]) -> NDArray[np.int64]:
    return np.minimum(np.searchsorted(total, point, side="right") - 1, len(total) - 2)


def _bag_of_words(
    y: NDArray[np.int64], drifted: NDArray[np.float64], features: int, classes: int, rng: np.random.Generator
) -> NDArray[np.float32]:
    """The first half of the vocabulary is common; the rest belongs to the classes, each with old and new words."""
    own = (features - features // 2) // (2 * classes)
    shape = (len(y), WORDS)
    common = rng.integers(features // 2, size=shape)
    age = rng.random(shape) < drifted[:, None]
    topic = features // 2 + (2 * y[:, None] + age) * own + rng.integers(own, size=shape)
    word = np.where(rng.random(shape) < 0.5, topic, common)
    x = np.zeros((len(y), features), dtype=np.float32)
    x[np.arange(len(y))[:, None], word] = 1.0
    x /= x.sum(axis=1, keepdims=True)
    return x
