from __future__ import annotations

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

import gnnsafe
from gnnsafe.models import GCN


def chain(num_nodes: int = 400, seed: int = 0) -> Data:
    """A directed chain with short cuts nearby, so that a change touches few; some nodes are alone, some edges twice."""
    rng = np.random.default_rng(seed)
    step = np.stack([np.arange(num_nodes - 1), np.arange(1, num_nodes)])
    start = rng.integers(0, num_nodes - 4, num_nodes // 2)
    cuts = np.stack([start + rng.integers(0, 4, len(start)), start])
    edges = np.concatenate([step, cuts, step[:, :5], np.array([[7, 7], [7, 7]])], axis=1)
    edges = edges[:, (edges % 50 != 49).all(axis=0)]  # every fiftieth is alone
    y = torch.arange(num_nodes) // 7 % 3
    x = torch.from_numpy(rng.random((num_nodes, 6), np.float32))
    x[torch.arange(num_nodes), y] += 1
    masks = {name: torch.from_numpy(rng.random(num_nodes) < 0.3) for name in ("train_mask", "val_mask")}
    masks["val_mask"] &= ~masks["train_mask"]
    return Data(x=x, edge_index=torch.from_numpy(edges), y=y, **masks)


@pytest.fixture(scope="session")
def trained() -> tuple[Data, GCN]:
    torch.manual_seed(0)
    data = chain()
    model = GCN(6, 8, 3)
    gnnsafe.train(model, data, objective=gnnsafe.CrossEntropy(), epochs=20)
    return data, model
