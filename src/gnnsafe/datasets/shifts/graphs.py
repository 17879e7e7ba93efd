"""What all shifts do alike: the dice, the nodes that count, and the new graph that shares what was left alone."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from gnnsafe.checks import check_mask
from gnnsafe.errors import require, require_known, require_seed
from gnnsafe.graph import Data, changed, node_mask
from gnnsafe.prepared import check_graph

__all__ = ["MASKS", "Data", "TestNodes", "changed", "counted", "dense_features", "dice", "narrowed", "shifted"]

TestNodes = Literal["all", "id-test"]
MASKS = ("train_mask", "val_mask", "test_mask")


def dice(seed: int) -> np.random.Generator:
    """The random numbers of a seed."""
    require_seed(seed)
    return np.random.default_rng(seed)


def counted(data: Data, test_nodes: TestNodes) -> Tensor:
    """The nodes that count as OOD: all, or (the rigorous protocol) only the ids of the ID test nodes."""
    require_known("test_nodes", test_nodes, get_args(TestNodes))
    if test_nodes == "id-test":
        return node_mask(data, "test_mask")
    return torch.ones(data.x.shape[0], dtype=torch.bool, device=data.x.device)


def dense_features(data: Data) -> Tensor:
    """The features of a graph that is fit to be shifted, checked to be dense."""
    check_graph(data)
    x: Tensor = data.x
    require(x.layout == torch.strided, "x", "be dense", x.layout, "use data.x = data.x.to_dense()")
    return x


def shifted(data: Data, mask: Tensor, **values: Tensor) -> Data:
    """A new graph with these values, whose nodes in `mask` count; the ID split means nothing in it."""
    graph = changed(data, mask=mask, **values)
    for name in MASKS:
        if hasattr(graph, name):
            delattr(graph, name)
    return graph


def narrowed(data: Data, inside: Tensor, **values: Tensor) -> Data:
    """A new graph with these values, whose split keeps only the nodes that are `inside`."""
    num_nodes = len(inside)
    masks = {name: getattr(data, name) for name in MASKS if getattr(data, name, None) is not None}
    for name, mask in masks.items():
        values[name] = check_mask(name, check_mask(name, mask, num_nodes) & inside, num_nodes)
    return changed(data, **values)
