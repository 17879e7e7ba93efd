"""The graphs of the measurements: the real files where they are available, else generated ones of the same shape."""

from __future__ import annotations

import copy
import os
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

import gnnsafe
from gnnsafe.datasets.splits import random_split
from gnnsafe.errors import DataNotFoundError
from gnnsafe.sparse import sparse_enough

ROOT = Path(os.environ.get("GNNSAFE_DATA", Path(__file__).parents[2] / "shared" / "data"))

NAMES = {
    "Cora": ("cora", "structure"),
    "Photo": ("amazon-photo", "structure"),
    "CS": ("coauthor-cs", "structure"),
    "Twitch": ("twitch", "domain"),
}
SHAPES = {  # nodes, edges, features, share of entries that are not 0, classes
    "Cora": (2708, 10_556, 1433, 0.0127, 7),
    "Photo": (7650, 238_162, 745, 0.347, 8),
    "CS": (18_333, 163_788, 6805, 0.0088, 15),
    "Twitch": (9498, 315_774, 3170, 0.0064, 2),
    "Arxiv shape": (169_343, 1_166_243, 128, 1.0, 40),
}


class Case(NamedTuple):
    """A graph to train on and one of exposure nodes, as our code reads them and as the plain code does: dense."""

    name: str
    source: str
    classes: int
    data: Any
    exposure: Any
    plain_data: Any
    plain_exposure: Any


def case(name: str) -> Case:
    """The graphs of that name. Features that are mostly 0 are CSR in ours, as `gnnsafe` takes them."""
    try:
        dataset, shift = NAMES[name]
        benchmark = gnnsafe.load_benchmark(dataset, shift=shift, root=ROOT)
        data, exposure, classes = benchmark.id, benchmark.exposure, benchmark.num_classes
        source = "real files"
    except (KeyError, DataNotFoundError, OSError):
        data, exposure, classes = *(generated(*SHAPES[name], seed=seed) for seed in (0, 1)), SHAPES[name][-1]
        source = "generated"
    return Case(name, source, classes, compact(data), compact(exposure), data, exposure)


def compact(graph: Any) -> Any:
    """The graph with CSR features where few are not 0."""
    if not sparse_enough(graph.x):
        return graph
    graph = copy.copy(graph)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # CSR tensors are in beta
        graph.x = graph.x.to_sparse_csr()
    return graph


def generated(nodes: int, edges: int, features: int, density: float, classes: int, *, seed: int) -> Any:
    """Random edges both ways, random features with that share of entries, a tenth of the nodes for training."""
    from torch_geometric.data import Data

    generator = torch.Generator().manual_seed(seed)
    ends = torch.randint(nodes, (2, edges // 2), generator=generator)
    x = torch.rand(nodes, features, generator=generator) * (torch.rand(nodes, features, generator=generator) < density)
    y = torch.randint(classes, (nodes,), generator=generator)
    everyone = torch.ones(nodes, dtype=torch.bool)
    graph = Data(x=x, edge_index=torch.cat([ends, ends.flip(0)], dim=1), y=y, mask=everyone)
    return random_split(graph, everyone, seed)


def random_edges(nodes: int, edges: int, seed: int = 0) -> Tensor:
    """Directed edges between nodes drawn at random, in 32 bits."""
    rng = np.random.default_rng(seed)
    return torch.from_numpy(rng.integers(nodes, size=(2, edges), dtype=np.int32))
