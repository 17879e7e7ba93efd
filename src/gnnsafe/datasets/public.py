"""The public single-graph data sets, through PyG's readers and downloads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch

from gnnsafe import scaling
from gnnsafe.datasets.planetoid import PARTS, read_planetoid
from gnnsafe.datasets.reading.npz import npz_arrays
from gnnsafe.datasets.sources import Files
from gnnsafe.graph import Data

__all__ = ["PUBLIC", "row_normalised"]


def row_normalised(data: Data) -> Data:
    """The graph with features whose rows sum to 1; a row without any stays zero."""
    data.x = scaling.row_normalised(data.x)
    return data


def _planetoid(name: str, nodes: int, edges: int, sha256: str | None = None) -> Files:
    path, files = f"Planetoid/{name}/raw", tuple(f"ind.{name.lower()}.{part}" for part in PARTS)

    def read(folder: Path) -> Data:
        return row_normalised(read_planetoid(folder, name.lower()))

    def download(root: Path) -> None:
        from torch_geometric.data import download_url
        from torch_geometric.datasets import Planetoid

        for file in files:  # the files alone: PyG's own data set would go on and run these pickles
            download_url(f"{Planetoid.url}/{file}", str(root / path))

    remedy = "pip install 'gnnsafe[cora]'" if name == "Cora" else ""
    return Files(name.lower(), path, files, read, download, (nodes, edges), remedy, sha256)


def _npz(name: str, kind: str, pyg_name: str, folder: str, file: str, nodes: int, edges: int) -> Files:
    def read(folder: Path) -> Data:
        from torch_geometric.data import Data
        from torch_geometric.utils import remove_self_loops, to_undirected

        parts = {name: torch.from_numpy(array) for name, array in npz_arrays(folder / file).items()}
        x = parts["x"].float()
        edges, _ = remove_self_loops(parts["edge_index"].long())
        x[x > 0] = 1  # whether a word is there
        return row_normalised(Data(x=x, edge_index=to_undirected(edges, num_nodes=len(x)), y=parts["y"].long()))

    return Files(name, f"{kind}/{folder}/raw", (file,), read, _download(kind, pyg_name), (nodes, edges))


def _download(kind: str, name: str) -> Callable[[Path], object]:
    def download(root: Path) -> object:
        import torch_geometric.datasets

        return getattr(torch_geometric.datasets, kind)(str(root / kind), name)

    return download


PUBLIC = {
    files.name: files
    for files in (
        _planetoid("Cora", 2708, 10_556, "0ce1f9117972bdd087a19062d3decca8abfdfef042468c282c2b977642e057dd"),
        _planetoid("CiteSeer", 3327, 9104),
        _planetoid("PubMed", 19_717, 88_648, "34aaa088b00e246edbc2a4ab7c320063b5b07fc3b9839d5540a663f867238d4a"),
        _npz("amazon-photo", "Amazon", "Photo", "Photo", "amazon_electronics_photo.npz", 7650, 238_162),
        _npz(
            "amazon-computers", "Amazon", "Computers", "Computers", "amazon_electronics_computers.npz", 13_752, 491_722
        ),
        _npz("coauthor-cs", "Coauthor", "CS", "CS", "ms_academic_cs.npz", 18_333, 163_788),
        _npz("coauthor-physics", "Coauthor", "Physics", "Physics", "ms_academic_phy.npz", 34_493, 495_924),
        _npz("dblp", "CitationFull", "DBLP", "dblp", "dblp.npz", 17_716, 105_734),
    )
}
