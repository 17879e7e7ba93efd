"""Splits of the in-distribution nodes, drawn from a seed."""

from __future__ import annotations

import torch
from torch import Tensor

from gnnsafe.errors import require_seed
from gnnsafe.graph import Data

__all__ = ["large_split", "per_class_split", "random_split", "time_split"]


def random_split(data: Data, nodes: Tensor, seed: int) -> Data:
    """One tenth of the nodes in the mask `nodes` for training, one for validation, eight for testing."""
    ids = _shuffled(nodes, seed)
    tenth = len(ids) // 10
    return _with_masks(data, ids[:tenth], ids[tenth : 2 * tenth], ids[2 * tenth :])


def large_split(data: Data, nodes: Tensor, seed: int) -> Data:
    """Six tenths of the nodes in the mask `nodes` for training, two for validation, two for testing."""
    ids = _shuffled(nodes, seed)
    fifth = len(ids) // 5
    return _with_masks(data, ids[2 * fifth :], ids[:fifth], ids[fifth : 2 * fifth])


def per_class_split(data: Data, seed: int) -> Data:
    """20 training nodes per class, then 500 for validation and 1,000 for testing: the public split's shape."""
    order = _order(data.num_nodes, seed)
    train = torch.cat([order[data.y[order] == label][:20] for label in data.y.unique()])
    rest = order[~torch.isin(order, train)]
    return _with_masks(data, train, rest[:500], rest[500:1500])


def time_split(data: Data, nodes: Tensor, times: Tensor, seed: int) -> Data:
    """Of the nodes in the mask `nodes` the oldest six tenths train, the next two validate, the latest two test.

    Nodes of one time that lie on a border are divided at random.
    """
    ids = _shuffled(nodes, seed)
    ids = ids[torch.argsort(times[ids], stable=True)]
    fifth, count = len(ids) // 5, len(ids)
    return _with_masks(data, ids[: count - 2 * fifth], ids[count - 2 * fifth : count - fifth], ids[count - fifth :])


def _shuffled(nodes: Tensor, seed: int) -> Tensor:
    ids = nodes.nonzero().squeeze(1)
    return ids[_order(len(ids), seed)]


def _order(count: int, seed: int) -> Tensor:
    require_seed(seed)
    return torch.randperm(count, generator=torch.Generator().manual_seed(seed))


def _with_masks(data: Data, *ids: Tensor) -> Data:
    for name, chosen in zip(("train_mask", "val_mask", "test_mask"), ids, strict=True):
        data[name] = torch.zeros(data.num_nodes, dtype=torch.bool)
        data[name][chosen] = True
    return data
