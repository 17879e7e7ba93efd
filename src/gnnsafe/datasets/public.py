"""The public single-graph data sets, through PyG's readers and downloads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from gnnsafe import scaling
from gnnsafe.datasets.sources import Files
from gnnsafe.graph import Data

__all__ = ["PUBLIC", "row_normalised"]

PLANETOID = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")


def row_normalised(data: Data) -> Data:
    """The graph with features whose rows sum to 1; a row without any stays zero."""
    data.x = scaling.row_normalised(data.x)
    return data


def _planetoid(name: str) -> Files:
    def read(folder: Path) -> Data:
        from torch_geometric.io import read_planetoid_data

        return row_normalised(read_planetoid_data(str(folder), name.lower()).coalesce())

    files = tuple(f"ind.{name.lower()}.{part}" for part in PLANETOID)
    remedy = "pip install 'gnnsafe[cora]'" if name == "Cora" else ""
    return Files(name.lower(), f"Planetoid/{name}/raw", files, read, _download("Planetoid", name), remedy)


def _npz(name: str, kind: str, pyg_name: str, folder: str, file: str) -> Files:
    def read(folder: Path) -> Data:
        from torch_geometric.io import read_npz

        return row_normalised(read_npz(str(folder / file)))

    return Files(name, f"{kind}/{folder}/raw", (file,), read, _download(kind, pyg_name))


def _download(kind: str, name: str) -> Callable[[Path], object]:
    def download(root: Path) -> object:
        import torch_geometric.datasets

        return getattr(torch_geometric.datasets, kind)(str(root / kind), name)

    return download


PUBLIC = {
    files.name: files
    for files in (
        _planetoid("Cora"),
        _planetoid("CiteSeer"),
        _planetoid("PubMed"),
        _npz("amazon-photo", "Amazon", "Photo", "Photo", "amazon_electronics_photo.npz"),
        _npz("amazon-computers", "Amazon", "Computers", "Computers", "amazon_electronics_computers.npz"),
        _npz("coauthor-cs", "Coauthor", "CS", "CS", "ms_academic_cs.npz"),
        _npz("coauthor-physics", "Coauthor", "Physics", "Physics", "ms_academic_phy.npz"),
        _npz("dblp", "CitationFull", "DBLP", "dblp", "dblp.npz"),
    )
}
