"""Cora as the package graphdatascience carries it: real, without any download, without a public split."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import torch

from gnnsafe.datasets.cache import cached_graph
from gnnsafe.datasets.public import row_normalised
from gnnsafe.datasets.splits import per_class_split
from gnnsafe.graph import Data

__all__ = ["packaged_cora"]

# Planetoid's class k is the LINQS subject with this number, so that a label shift means the same classes.
SUBJECTS = [4, 2, 5, 0, 3, 6, 1]


def packaged_cora(seed: int) -> tuple[Data, str]:
    """Cora from the package's data files, read without importing it, with a split drawn from the seed."""
    spec = importlib.util.find_spec("graphdatascience")
    if spec is None or spec.origin is None:
        raise FileNotFoundError("the package graphdatascience (not installed)")
    folder = Path(spec.origin).parent / "resources" / "cora"
    nodes, edges = folder / "cora_nodes.parquet.gzip", folder / "cora_rels.parquet.gzip"
    data = cached_graph("cora-linqs", [nodes, edges], lambda: _linqs(nodes, edges))
    return per_class_split(data, seed), "the package graphdatascience"


def _linqs(nodes: Path, edges: Path) -> Data:
    """LINQS node order, one row per citation."""
    from pyarrow import parquet
    from torch_geometric.data import Data
    from torch_geometric.utils import to_undirected

    papers, citations = parquet.read_table(nodes), parquet.read_table(edges)
    ids = papers["nodeId"].to_numpy()
    order = np.argsort(ids)
    ends = [citations[name].to_numpy() for name in ("sourceNodeId", "targetNodeId")]
    pairs = np.stack([order[np.searchsorted(ids, end, sorter=order)] for end in ends])
    data = Data(
        x=torch.tensor(papers["features"].to_pylist(), dtype=torch.float32),
        edge_index=to_undirected(torch.from_numpy(pairs), num_nodes=len(ids)),
        y=torch.from_numpy(np.argsort(SUBJECTS)[papers["subject"].to_numpy()]),
    )
    return row_normalised(data)
