"""ogbn-arxiv: papers with the year of their publication, from the raw files that OGB publishes.

And two for where its word vectors cannot be had. `arxiv-topics` is ogbn-arxiv's graph, GPT-3.5's guesses as features:
real edges, labels and years. Its features lie in label space, so they drift less than Arxiv's own. The stand-in is
generated in Arxiv's shape: it shows that things run and how long they take, and says nothing about Arxiv.
"""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from gnnsafe.datasets.sources import Files
from gnnsafe.errors import InputError
from gnnsafe.graph import Data

__all__ = ["ARXIV", "CLASSES", "EDGES", "EXPOSURE", "FEATURES", "ID", "NODES", "OOD", "TOPICS", "stand_in"]

URL = "https://snap.stanford.edu/ogb/data/nodeproppred/arxiv.zip"
NODES, EDGES, FEATURES, CLASSES = 169_343, 1_166_243, 128, 40
ID, EXPOSURE, OOD = 2015, (2016, 2017), {str(year): (year, year) for year in (2018, 2019, 2020)}


def _arxiv(folder: Path) -> Data:
    return _papers(folder, _table(folder / "node-feat.csv.gz", np.float32, 2))


def _topics(folder: Path) -> Data:
    return _papers(folder, _guesses(folder / "guesses.csv.gz"))


def _guesses(path: Path) -> NDArray[np.float32]:
    """1 / rank at each class that was guessed for a paper: a line per paper, classes best first, or an empty line."""
    try:
        with gzip.open(path, "rt", encoding="ascii") as file:
            guesses = [[int(guess) for guess in line.strip().split(",") if guess] for line in file]
    except (EOFError, ValueError, OSError) as error:
        raise InputError(f"{path} must be gzipped lines of class numbers (got: {error}); download it again") from error
    x = np.zeros((len(guesses), CLASSES), dtype=np.float32)
    for row, line in zip(x, guesses, strict=True):
        if line and not 0 <= min(line) <= max(line) < CLASSES:
            raise InputError(f"{path} must name classes from 0 to {CLASSES - 1} (got {line}); download it again")
        for rank, guess in reversed(list(enumerate(line, start=1))):  # of a class that is named twice the better counts
            row[guess] = 1 / rank
    return x


def _papers(folder: Path, x: NDArray[np.float32]) -> Data:
    from torch_geometric.data import Data

    edges = _table(folder / "edge.csv.gz", np.int64, 2)
    y = _table(folder / "node-label.csv.gz", np.int64, 1)
    year = _table(folder / "node_year.csv.gz", np.int64, 1)
    for name, rows in (("node-label.csv.gz", len(y)), ("node_year.csv.gz", len(year))):
        if rows != len(x):
            rule = f"must have a row for each of {len(x)} nodes"
            raise InputError(f"{folder / name} {rule} (got {rows}); download it again")
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
        raise InputError(f"{path} must be a gzipped table of numbers (got: {error}); download it again") from error


def _download(root: Path) -> None:
    from torch_geometric.data import download_url, extract_zip

    extract_zip(download_url(URL, str(root)), str(root))
    (root / "arxiv").rename(root / "ogbn_arxiv")


ARXIV = Files(
    "arxiv",
    "ogbn_arxiv/raw",
    ("edge.csv.gz", "node-feat.csv.gz", "node-label.csv.gz", "node_year.csv.gz"),
    _arxiv,
    _download,
    (NODES, EDGES, FEATURES, CLASSES),
    remedy="load 'arxiv-stand-in', generated in its shape",
)


def _no_download(root: Path) -> None:
    raise OSError("these files are not published together")


TOPICS = Files(
    "arxiv-topics",
    "ArxivTopics/raw",
    ("edge.csv.gz", "guesses.csv.gz", "node-label.csv.gz", "node_year.csv.gz"),
    _topics,
    _no_download,
    (NODES, EDGES, CLASSES, CLASSES),
)


def stand_in(seed: int) -> Data:
    """A generated graph of Arxiv's shape: as many papers, citations, features and classes, more papers every year.

    A paper cites older ones, half of the time of its own class. Features are its class's centre plus noise.
    """
    from torch_geometric.data import Data

    rng = np.random.default_rng(seed)
    year = np.sort(np.maximum(2020 - rng.exponential(4.0, NODES).astype(np.int64), 1991))  # nodes in order of age
    y = rng.integers(CLASSES, size=NODES)
    centres = rng.normal(size=(CLASSES, FEATURES)).astype(np.float32)
    x = 0.5 * centres[y] + rng.normal(size=(NODES, FEATURES)).astype(np.float32)
    citations = np.empty(0, dtype=np.int64)
    while len(citations) < EDGES:  # repeated ones are dropped and drawn again
        citing = rng.integers(1, NODES, size=EDGES // 4)
        citations = np.unique(np.concatenate([citations, citing * NODES + _cited(citing, y, rng)]))
    edges = np.stack(np.divmod(np.sort(rng.choice(citations, EDGES, replace=False)), NODES))
    return Data(
        x=torch.from_numpy(x), edge_index=torch.from_numpy(edges), y=torch.from_numpy(y), year=torch.from_numpy(year)
    )


def _cited(citing: NDArray[np.int64], y: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
    """For each citing paper an older one: any, or (half of the time, where there is one) one of its class."""
    by_class = np.argsort(y, kind="stable")  # and by age within each class
    start = np.searchsorted(y[by_class], y[citing])
    older = np.searchsorted(y[by_class] * NODES + by_class, y[citing] * NODES + citing) - start
    same = by_class[start + rng.integers(np.maximum(older, 1))]
    return np.where((older > 0) & (rng.random(len(citing)) < 0.5), same, rng.integers(citing))
