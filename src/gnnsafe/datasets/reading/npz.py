"""Arrays of a `.npz` file: plain ones, or the gnn-benchmark's sparse matrices."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from gnnsafe.datasets.reading.arrays import NAMES
from gnnsafe.datasets.reading.refusal import listed, readable, refusal

__all__ = ["npz_arrays"]

Arrays = Mapping[str, NDArray[Any]]

PARTS = ("data", "indices", "indptr", "shape")
BENCHMARK = (*(f"{name}_{part}" for name in ("adj", "attr") for part in PARTS), "attr_matrix", "labels")


def npz_arrays(file: Path) -> Arrays:
    """The file's arrays by their plain names. Arrays of Python objects are refused: they could run code."""
    with readable(file, ".npz", Exception), file.open("rb") as stream:  # a damaged zip fails in a dozen ways
        zipped = np.load(stream, allow_pickle=False)
        if not isinstance(zipped, np.lib.npyio.NpzFile):
            raise refusal(file, "must be a zip of arrays (got one array)", "write it with np.savez")
        benchmark = "adj_indptr" in zipped
        arrays = {key: zipped[key] for key in (BENCHMARK if benchmark else NAMES) if key in zipped}
    return _plain(file, arrays) if benchmark else arrays


def _plain(file: Path, arrays: Arrays) -> Arrays:
    """The gnn-benchmark's matrices as features, edges and labels."""
    adjacency = _csr(file, arrays, "adj").tocoo()
    plain = {"edge_index": np.stack(adjacency.coords)[:, adjacency.data != 0]}
    if "attr_matrix" in arrays:
        plain["x"] = arrays["attr_matrix"]
    elif "attr_indptr" in arrays:
        plain["x"] = _csr(file, arrays, "attr").astype(np.float32).toarray()
    if "labels" in arrays:
        plain["y"] = arrays["labels"]
    return plain


def _csr(file: Path, arrays: Arrays, name: str) -> Any:
    missing = [f"{name}_{part}" for part in PARTS if f"{name}_{part}" not in arrays]
    if missing:
        raise refusal(
            file, f"has no array {listed(missing)} (found: {listed(arrays)})", "write all four parts of the matrix"
        )
    data, indices, indptr, shape = (arrays[f"{name}_{part}"] for part in PARTS)
    try:
        matrix = sp.csr_array((data, indices, indptr), shape=tuple(shape.tolist()))
        matrix.check_format(full_check=True)
    except (TypeError, ValueError) as error:
        problem = f"must be the parts of one CSR matrix ({error})"
        raise refusal(file, problem, "write them from one matrix", key=f"{name}_*") from error
    return matrix
