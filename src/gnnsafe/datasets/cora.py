"""Cora, from wherever it is to be had: a data root, the package graphdatascience, or PyG's download."""

from __future__ import annotations

import importlib.util
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gnnsafe.datasets.cache import cache_folder, cached_graph
from gnnsafe.errors import DataNotFoundError, InputError

__all__ = ["cora"]

Data = Any  # PyG's class, whose package ships no types

PUBLIC = "the public split, 140/500/1000"
RANDOM = "a random split drawn from the seed, 20 per class/500/1000"
FILES = [f"ind.cora.{part}" for part in ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")]


def cora(root: str | os.PathLike[str] | None = None, *, seed: int = 0) -> tuple[Data, str]:
    """Cora with row-normalised features and split masks, and a line on where it came from.

    Looked for in `root` or `$GNNSAFE_DATA` (laid out as PyG does), in the package `graphdatascience`, and at last by
    PyG's download. Only the copy in `graphdatascience` has no public split: there `seed` draws one.
    """
    tried = []
    sources = {"a data root": _from_root, "graphdatascience": _from_package, "PyG's download": _from_download}
    for name, source in sources.items():
        try:
            data, origin = source(root, seed)
        except (OSError, ImportError) as reason:
            tried.append(f"{name} ({reason})")
        else:
            data.x = data.x / data.x.sum(dim=1, keepdim=True).clamp(min=1)  # bag of words: a row holds 0 or ≥ 1 word
            return data, origin
    raise DataNotFoundError(
        f"Cora is nowhere to be had. Tried: {'; '.join(tried)}. Either pass root= (--data, GNNSAFE_DATA) a folder "
        "with Planetoid/Cora/raw, or pip install 'gnnsafe[cora]', or allow the download."
    )


def _from_root(root: str | os.PathLike[str] | None, seed: int) -> tuple[Data, str]:
    given = root or os.environ.get("GNNSAFE_DATA")
    if not given:
        raise FileNotFoundError("none given")
    if not Path(given).is_dir():
        raise InputError(f"'root' must be a folder (got {str(given)!r}); see --data and GNNSAFE_DATA")
    folder = Path(given) / "Planetoid" / "Cora" / "raw"
    return _planetoid(folder), f"{folder}, {PUBLIC}"


def _from_package(_: object, seed: int) -> tuple[Data, str]:
    spec = importlib.util.find_spec("graphdatascience")
    if spec is None or spec.origin is None:
        raise FileNotFoundError("not installed")
    folder = Path(spec.origin).parent / "resources" / "cora"
    nodes, edges = folder / "cora_nodes.parquet.gzip", folder / "cora_rels.parquet.gzip"
    data = cached_graph("cora-linqs", [nodes, edges], lambda: _linqs(nodes, edges))
    return _split(data, seed), f"the package graphdatascience, {RANDOM}"


def _from_download(_: object, seed: int) -> tuple[Data, str]:
    folder = cache_folder() / "Planetoid" / "Cora" / "raw"
    if not folder.is_dir():
        from torch_geometric.datasets import Planetoid

        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as part:  # a broken download leaves nothing behind
            Planetoid(part, "Cora")
            shutil.move(Path(part) / "Cora" / "raw", folder)
    return _planetoid(folder), f"PyG's download, {PUBLIC}"


def _planetoid(folder: Path) -> Data:
    def build() -> Data:
        from torch_geometric.io import read_planetoid_data

        return read_planetoid_data(str(folder), "cora").coalesce()

    return cached_graph("cora", [folder / name for name in FILES], build)


# Planetoid's class k is the LINQS subject with this number, so that a label shift means the same classes.
SUBJECTS = [4, 2, 5, 0, 3, 6, 1]


def _linqs(nodes: Path, edges: Path) -> Data:
    """Cora as graphdatascience carries it: LINQS node order, one row per citation, no split."""
    from pyarrow import parquet
    from torch_geometric.data import Data
    from torch_geometric.utils import to_undirected

    papers, citations = parquet.read_table(nodes), parquet.read_table(edges)
    ids = papers["nodeId"].to_numpy()
    order = np.argsort(ids)
    ends = [citations[name].to_numpy() for name in ("sourceNodeId", "targetNodeId")]
    pairs = np.stack([order[np.searchsorted(ids, end, sorter=order)] for end in ends])
    return Data(
        x=torch.tensor(papers["features"].to_pylist(), dtype=torch.float32),
        edge_index=to_undirected(torch.from_numpy(pairs), num_nodes=len(ids)),
        y=torch.from_numpy(np.argsort(SUBJECTS)[papers["subject"].to_numpy()]),
    )


def _split(data: Data, seed: int) -> Data:
    """20 training nodes per class, then 500 for validation and 1,000 for testing, at random."""
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(data.num_nodes, generator=generator)
    train = torch.cat([order[data.y[order] == label][:20] for label in data.y.unique()])
    rest = order[~torch.isin(order, train)]
    for name, ids in {"train_mask": train, "val_mask": rest[:500], "test_mask": rest[500:1500]}.items():
        data[name] = torch.zeros(data.num_nodes, dtype=torch.bool)
        data[name][ids] = True
    return data
