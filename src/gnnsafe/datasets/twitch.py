"""Twitch: one graph of users per country, the same features and labels."""

from __future__ import annotations

from pathlib import Path

import torch

from gnnsafe.datasets.public import row_normalised
from gnnsafe.datasets.reading.npz import zipped_arrays
from gnnsafe.datasets.sources import Files, raw_download
from gnnsafe.graph import Data

__all__ = ["EXPOSURE", "ID", "OOD", "country"]

ID, EXPOSURE, OOD = "DE", "EN", ("ES", "FR", "RU")
PUBLISHED = {
    "DE": (9498, 315_774), "EN": (7126, 77_774), "ES": (4648, 123_412), "FR": (6551, 231_883), "RU": (4385, 78_993),
}  # fmt: skip


def country(name: str) -> Files:
    """One country's graph: 3,170 multi-hot features, or the 128 dense ones that PyG's download has."""

    def read(folder: Path) -> Data:
        from torch_geometric.data import Data

        keys = ("features", "target", "edges")
        arrays = zipped_arrays(folder / f"{name}.npz", keys)
        x, y, edges = (torch.from_numpy(arrays[key]) for key in keys)
        data = Data(x=x.float(), y=y.long(), edge_index=edges.long().T.contiguous())
        # A multi-hot row sums to its number of words; PyG's 128 numbers have signs, and no sum to divide by.
        return row_normalised(data) if (data.x >= 0).all() else data

    path, files = f"Twitch/{name}/raw", (f"{name}.npz",)
    return Files(f"twitch-{name.lower()}", path, files, read, raw_download("Twitch", path, files), PUBLISHED[name])
