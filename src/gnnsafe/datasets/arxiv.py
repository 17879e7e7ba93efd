"""ogbn-arxiv: papers with the year of their publication, from the raw files that OGB publishes."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from gnnsafe.datasets.sources import Files
from gnnsafe.errors import InputError
from gnnsafe.graph import Data

__all__ = ["ARXIV", "EXPOSURE", "ID", "OOD"]

URL = "http://snap.stanford.edu/ogb/data/nodeproppred/arxiv.zip"
ID, EXPOSURE, OOD = 2015, (2016, 2017), {str(year): (year, year) for year in (2018, 2019, 2020)}


def _read(folder: Path) -> Data:
    from torch_geometric.data import Data

    x = _table(folder / "node-feat.csv.gz", np.float32, 2)
    edges = _table(folder / "edge.csv.gz", np.int64, 2)
    y = _table(folder / "node-label.csv.gz", np.int64, 1)
    year = _table(folder / "node_year.csv.gz", np.int64, 1)
    for name, rows in (("node-label.csv.gz", len(y)), ("node_year.csv.gz", len(year))):
        if rows != len(x):
            raise InputError(f"{folder / name} must have a row for each of {len(x)} nodes (got {rows}); fetch it anew")
    return Data(
        x=torch.from_numpy(x),
        edge_index=torch.from_numpy(edges.T.copy()),  # directed, citing → cited, as the file has them
        y=torch.from_numpy(y),
        year=torch.from_numpy(year),
    )


def _table(path: Path, dtype: type[np.generic], dimensions: Literal[1, 2]) -> Any:
    try:
        with gzip.open(path, "rt", encoding="ascii") as file:
            return np.loadtxt(file, delimiter=",", dtype=dtype, ndmin=dimensions)
    except (EOFError, ValueError, OSError) as error:
        raise InputError(f"{path} must be a gzipped table of numbers (got: {error}); fetch it anew") from error


def _download(root: Path) -> None:
    from torch_geometric.data import download_url, extract_zip

    extract_zip(download_url(URL, str(root)), str(root))
    (root / "arxiv").rename(root / "ogbn_arxiv")


ARXIV = Files(
    "arxiv",
    "ogbn_arxiv/raw",
    ("edge.csv.gz", "node-feat.csv.gz", "node-label.csv.gz", "node_year.csv.gz"),
    _read,
    _download,
)
