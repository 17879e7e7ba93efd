"""Planted shifts: OOD nodes among the ID nodes of one graph, the case that users have."""

from __future__ import annotations

import math
from typing import Literal, get_args

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from gnnsafe.checks import check_mask
from gnnsafe.datasets.shifts.edge_list import EdgeList
from gnnsafe.datasets.shifts.features import blends
from gnnsafe.datasets.shifts.graphs import Data, changed, dice
from gnnsafe.errors import is_number, require, require_flag, require_known
from gnnsafe.prepared import check_graph
from gnnsafe.sparse import scipy_csr, torch_csr

__all__ = ["planted"]

Kind = Literal["feature", "structure"]
Booleans = NDArray[np.bool_]


def planted(data: Data, seed: int, *, kind: Kind = "feature", share: float = 0.1, clustered: bool = False) -> Data:
    """One graph in which round(share N) nodes are OOD: their features blended as by `feature`, or their edges redrawn.

    They are drawn from the nodes that are neither training nor validation nodes, scattered, or clustered: in about √n
    breadth-first balls that together hold n nodes. Structure: each edge of an OOD node (self-loops apart) keeps that
    node and its direction and gets a new other end, drawn from all nodes; of two OOD ends either stays.

    `mask` holds the OOD nodes; `test_mask` loses them (without one, all that are neither OOD nor in the training or
    validation mask are test nodes). Training and validation masks, and all else, are shared with the graph given.

    Args:
        data: The graph, with `train_mask` and `val_mask`.
        seed: The same seed gives the same graph.
        kind: "feature" or "structure".
        share: Of all nodes, how many become OOD, between 0 and 1.
        clustered: Whether they stand together or are scattered.

    Returns:
        A new graph: `mask` holds its OOD nodes, `test_mask` the ID nodes to tell them from.

    Raises:
        InputError: The graph or an argument breaks a rule, or too few nodes are left to plant OOD nodes among.

    >>> from types import SimpleNamespace
    >>> data = SimpleNamespace(x=torch.eye(20), edge_index=torch.tensor([[0, 1], [1, 2]]))
    >>> graph = planted(data, 0, share=0.1)
    >>> int(graph.mask.sum()), int(graph.test_mask.sum())
    (2, 18)
    """
    check_graph(data)
    require_known("kind", kind, get_args(Kind))
    require(is_number(share) and 0 < share < 1, "share", "lie in (0, 1)", share)
    require_flag("clustered", clustered)
    rng = dice(seed)
    free = ~(_mask(data, "train_mask") | _mask(data, "val_mask"))
    count = max(1, round(share * len(free)))
    require(count < free.sum(), "share", f"leave some of the {free.sum()} nodes to choose from", f"{count} nodes")
    chosen = _clustered(EdgeList.of(data), free, count, rng) if clustered else _scattered(free, count, rng)
    test = (free if getattr(data, "test_mask", None) is None else _mask(data, "test_mask")) & ~chosen
    require(bool(test.any()), "share", "leave at least one ID test node", share, "plant fewer nodes")
    change = {"feature": _blended, "structure": _redrawn}[kind]
    masks = {"mask": chosen, "test_mask": test}
    placed = {name: torch.from_numpy(mask).to(data.x.device) for name, mask in masks.items()}
    return changed(data, **placed, **change(data, chosen, rng))


def _mask(data: Data, name: str) -> Booleans:
    num_nodes = data.x.shape[0]
    mask = getattr(data, name, None)
    if mask is None:
        return np.zeros(num_nodes, dtype=bool)
    return check_mask(name, mask, num_nodes).cpu().numpy()


def _scattered(free: Booleans, count: int, rng: np.random.Generator) -> Booleans:
    chosen = np.zeros_like(free)
    chosen[rng.choice(np.flatnonzero(free), size=count, replace=False)] = True
    return chosen


def _clustered(edges: EdgeList, free: Booleans, count: int, rng: np.random.Generator) -> Booleans:
    """`count` free nodes in balls that grow by one hop at a time, along edges of either direction, from √count seeds.

    Balls grow through nodes that are not free. When they can grow no more, twice as many seeds are added.
    """
    source, target = np.concatenate([edges.ends, edges.ends[::-1]], axis=1)
    reached = np.zeros_like(free)
    layer = np.zeros_like(free)
    seeds = math.isqrt(count)
    while True:
        if not layer.any():
            rest = np.flatnonzero(free & ~reached)
            layer[rng.choice(rest, size=min(seeds, len(rest)), replace=False)] = True
            seeds *= 2
        missing = count - (free & reached).sum()
        if (free & layer).sum() >= missing:
            return free & reached | _scattered(free & layer, missing, rng)
        reached |= layer
        layer = np.zeros_like(free)
        layer[target[reached[source] & ~reached[target]]] = True


def _blended(data: Data, chosen: Booleans, rng: np.random.Generator) -> dict[str, Tensor]:
    blended = blends(data.x, int(chosen.sum()), rng)
    if data.x.layout == torch.sparse_csr:
        row = np.arange(len(chosen))
        row[chosen] = len(chosen) + np.arange(len(blended))
        both = sp.vstack([scipy_csr(data.x.cpu()), scipy_csr(blended.cpu())], format="csr")
        return {"x": torch_csr(both[row]).to(data.x.device)}
    x = data.x.clone()
    x[torch.from_numpy(chosen)] = blended
    return {"x": x}


def _redrawn(data: Data, chosen: Booleans, rng: np.random.Generator) -> dict[str, Tensor]:
    edges = EdgeList.of(data)
    ood = chosen[edges.ends]  # [2, edges]
    incident = np.flatnonzero(ood.any(axis=0))
    first, second = ood[:, incident]
    kept = np.where(first & second, rng.integers(2, size=len(incident)), second)
    edges = edges.redrawn(incident, kept, rng)
    return {"edge_index": edges.edge_index(like=data.edge_index)}
