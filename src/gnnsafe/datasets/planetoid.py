"""Planetoid's raw files: pickles of Python 2, read without running what is in them."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from gnnsafe.datasets.pickled import Array, Csr, unpickled
from gnnsafe.datasets.reading.limits import check_memory
from gnnsafe.errors import InputError
from gnnsafe.graph import Data

__all__ = ["PICKLES", "read_planetoid"]

PICKLES = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")
VALIDATION = 500  # nodes after the training nodes
PER_NODE = 32  # bytes for its number, class and masks


def read_planetoid(folder: Path, name: str) -> Data:
    """The graph as PyG reads it: no self-loops, no repeated edges, the public split.

    Args:
        folder: Where the files `ind.{name}.x`, … lie.
        name: cora, citeseer or pubmed.

    Returns:
        The graph; test nodes that the files leave out (CiteSeer has such) have neither features nor class, so class 0.

    Raises:
        InputError: A file holds anything but arrays, a sparse matrix or lists of neighbours, or they do not fit.
    """
    from torch_geometric.data import Data

    files = {part: folder / f"ind.{name}.{part}" for part in PICKLES}
    known, train = (_matrix(files[part]) for part in ("allx", "y"))
    test = _test_nodes(files["test.index"], len(known))
    x = _completed(files, known, "tx", test)
    y = _completed(files, _matrix(files["ally"]), "ty", test)
    place = np.arange(len(x))
    masks = {"train": place < len(train), "val": (place >= len(train)) & (place < len(train) + VALIDATION),
             "test": np.isin(place, test)}  # fmt: skip
    return Data(
        x=torch.from_numpy(x),
        edge_index=torch.from_numpy(_edges(files["graph"], len(x))),
        y=torch.from_numpy(y.argmax(axis=1)),
        **{f"{part}_mask": torch.from_numpy(mask) for part, mask in masks.items()},
    )


def _test_nodes(file: Path, first: int) -> NDArray[np.int64]:
    try:
        test = np.array([int(line) for line in file.read_text(encoding="ascii").split()], dtype=np.int64)
    except (ValueError, OverflowError) as error:
        raise InputError(f"{file} must hold whole numbers alone ({error}); download it again") from error
    if len(np.unique(test)) != len(test) or not len(test) or test.min() != first:
        raise InputError(f"{file} must name each test node once, from {first} on; download it again")
    return test


def _completed(
    files: dict[str, Path], known: NDArray[np.float32], part: str, test: NDArray[np.int64]
) -> NDArray[np.float32]:
    """The rows of the known nodes, then those of the test nodes, each where its index says."""
    rows = _matrix(files[part])
    if rows.shape != (len(test), known.shape[1]):
        raise InputError(
            f"{files[part]} must have shape {[len(test), known.shape[1]]} (got {list(rows.shape)}); download it again"
        )
    check_memory(files[part], (int(test.max()) + 1) * (4 * known.shape[1] + PER_NODE))
    whole = np.zeros((int(test.max()) + 1, known.shape[1]), dtype=np.float32)
    whole[: len(known)] = known
    whole[np.sort(test)] = rows  # the file has them in order of their index, …
    whole[test] = whole[np.sort(test)]  # … and its i-th row is that of the i-th index
    return whole


def _edges(file: Path, nodes: int) -> NDArray[np.int64]:
    """Each edge once, by source and target, without self-loops."""
    graph = unpickled(file)
    if not isinstance(graph, dict) or not all(isinstance(ends, list) for ends in graph.values()):
        raise InputError(f"{file} must hold lists of neighbours (got {type(graph).__name__}); download it again")
    check_memory(file, 40 * sum(len(ends) for ends in graph.values()))  # a file may name one long list many times
    targets = [end for ends in graph.values() for end in ends]
    if not all(type(node) is int and 0 <= node < nodes for node in (*graph, *targets)):
        raise InputError(f"{file} must hold nodes 0 to {nodes - 1} alone; download it again")
    source = np.repeat(np.array([*graph], dtype=np.int64), [len(ends) for ends in graph.values()])
    target = np.array(targets, dtype=np.int64)
    keys = np.unique((source * nodes + target)[source != target])
    return np.stack(np.divmod(keys, nodes))


def _matrix(file: Path) -> NDArray[np.float32]:
    """An array [rows, columns], or a sparse matrix made dense, of finite numbers."""
    with np.errstate(over="ignore"):  # to be refused as infinite
        matrix = _dense(file)
    if not np.isfinite(matrix).all():
        raise InputError(f"{file} must hold finite numbers alone (got NaN or infinite ones); download it again")
    if not matrix.shape[1]:
        raise InputError(f"{file} must have a column (got none); download it again")
    return matrix


def _dense(file: Path) -> NDArray[np.float32]:
    content = unpickled(file)
    try:
        if isinstance(content, Csr):
            content = content.matrix()
            check_memory(file, 4 * math.prod(content.shape))
            return np.asarray(content.astype(np.float32).toarray())
        if isinstance(content, Array) and content.values().ndim == 2:
            return content.values().astype(np.float32)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"{file} must hold the parts of one matrix ({error}); download it again") from error
    raise InputError(f"{file} must hold a matrix (got {type(content).__name__.strip('_')}); download it again")
