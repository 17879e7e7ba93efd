"""The public single-graph data sets, from where PyG downloads them."""

from __future__ import annotations

from pathlib import Path

import torch

from gnnsafe import scaling
from gnnsafe.datasets.planetoid import PICKLES, read_planetoid
from gnnsafe.datasets.reading.npz import npz_arrays
from gnnsafe.datasets.sources import Files, raw_download
from gnnsafe.graph import Data

__all__ = ["PUBLIC", "row_normalised"]


def row_normalised(data: Data) -> Data:
    """The graph with features whose rows sum to 1; a row without any stays zero."""
    data.x = scaling.row_normalised(data.x)
    return data


def _planetoid(name: str, nodes: int, edges: int, sha256: str | None = None) -> Files:
    path, files = f"Planetoid/{name}/raw", tuple(f"ind.{name.lower()}.{part}" for part in PICKLES)

    def read(folder: Path) -> Data:
        return row_normalised(read_planetoid(folder, name.lower()))

    remedy = "pip install 'gnnsafe[cora]'" if name == "Cora" else ""
    return Files(
        name.lower(), path, files, read, raw_download("Planetoid", path, files), (nodes, edges), remedy, sha256
    )


def _npz(name: str, kind: str, folder: str, file: str, nodes: int, edges: int) -> Files:
    path = f"{kind}/{folder}/raw"

    def read(folder: Path) -> Data:
        from torch_geometric.data import Data
        from torch_geometric.utils import remove_self_loops, to_undirected

        parts = {name: torch.from_numpy(array) for name, array in npz_arrays(folder / file).items()}
        x = parts["x"].float()
        edges, _ = remove_self_loops(parts["edge_index"].long())
        x[x > 0] = 1  # whether a word is there
        return row_normalised(Data(x=x, edge_index=to_undirected(edges, num_nodes=len(x)), y=parts["y"].long()))

    return Files(name, path, (file,), read, raw_download(kind, path, (file,)), (nodes, edges))


PUBLIC = {
    files.name: files
    for files in (
        _planetoid("Cora", 2708, 10_556, "0c183620d48cfe70c51c162cfa4d2d0288a5d6c0cdeac5b857fc92e212546749"),
        _planetoid("CiteSeer", 3327, 9104, "83ff60944e8dfba3343ea36b5e26e4c2ac3c9100ce059b3a61bbd6e20e63da91"),
        _planetoid("PubMed", 19_717, 88_648, "75ff3d5c07e011150e9fc6656849fe0d49c9bdc9e51d71fed3e047234d6f3bd8"),
        _npz("amazon-photo", "Amazon", "Photo", "amazon_electronics_photo.npz", 7650, 238_162),
        _npz("amazon-computers", "Amazon", "Computers", "amazon_electronics_computers.npz", 13_752, 491_722),
        _npz("coauthor-cs", "Coauthor", "CS", "ms_academic_cs.npz", 18_333, 163_788),
        _npz("coauthor-physics", "Coauthor", "Physics", "ms_academic_phy.npz", 34_493, 495_924),
        _npz("dblp", "CitationFull", "dblp", "dblp.npz", 17_716, 105_734),
    )
}
