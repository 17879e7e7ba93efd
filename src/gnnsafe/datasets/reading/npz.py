"""Arrays of a `.npz` file: plain ones, or the gnn-benchmark's sparse matrices."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from gnnsafe.datasets.reading.arrays import ARRAY_NAMES
from gnnsafe.datasets.reading.limits import check_memory
from gnnsafe.datasets.reading.refusal import DAMAGED, listed, readable, refusal, warn_of_weights

__all__ = ["csr_matrix", "npz_arrays", "zipped_arrays"]

Arrays = Mapping[str, NDArray[Any]]

CSR_ARRAYS = ("data", "indices", "indptr", "shape")
BENCHMARK = (*(f"{name}_{part}" for name in ("adj", "attr") for part in CSR_ARRAYS), "attr_matrix", "labels")
HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def npz_arrays(file: Path) -> Arrays:
    """The file's arrays by their plain names. Arrays of Python objects are refused: they could run code."""
    there = _names(file)
    if "adj_indptr" in there:
        return _plain(file, zipped_arrays(file, BENCHMARK))
    if missing := [name for name in ("x", "edge_index") if name not in there]:
        raise refusal(
            file,
            f"has no '{missing[0]}' (found: {listed(there)})",
            f"name the arrays x and edge_index, and if there are such {listed(ARRAY_NAMES[2:])}; or as the "
            "gnn-benchmark: adj_data, adj_indices, adj_indptr, adj_shape, attr_matrix or attr_data, …, labels",
        )
    warn_of_weights(file, there)
    return zipped_arrays(file, ARRAY_NAMES)


def _names(file: Path) -> list[str]:
    with readable(file, ".npz", Exception), file.open("rb") as stream:  # a damaged zip fails in a dozen ways
        if stream.read(6) == b"\x93NUMPY":
            raise refusal(file, "must be a zip of arrays (got one array)", "write it with np.savez")
        with zipfile.ZipFile(stream) as zipped:
            return [name.removesuffix(".npy") for name in zipped.namelist()]


def zipped_arrays(file: Path, names: Iterable[str]) -> dict[str, NDArray[Any]]:
    """Those of the arrays that a `.npz` file has; none is read that is not of the size that it says.

    Raises:
        GraphFileError: The file is damaged, holds Python objects, or would take too much memory.
    """
    with readable(file, ".npz", Exception), zipfile.ZipFile(file) as zipped:
        there = {name.removesuffix(".npy"): name for name in zipped.namelist()}
        members = {name: zipped.getinfo(there[name]) for name in names if name in there}
        check_memory(file, sum(member.file_size for member in members.values()))
        return {name: _array(file, zipped, member, name) for name, member in members.items()}


def _array(file: Path, zipped: zipfile.ZipFile, member: zipfile.ZipInfo, name: str) -> NDArray[Any]:
    """One array, once its header is known to tell the size of what follows: then its checksum is compared, too."""
    with zipped.open(member) as stream:
        shape, _, dtype = HEADERS[np.lib.format.read_magic(stream)](stream)
        if not dtype.hasobject and stream.tell() + math.prod(shape) * dtype.itemsize != member.file_size:
            raise refusal(file, f"must hold the {list(shape)} {dtype} that it says", DAMAGED, key=name)
    check_memory(file, math.prod(shape) * max(4, dtype.itemsize), key=name)  # as it will be, float32 at least
    with zipped.open(member) as stream:
        array: NDArray[Any] = np.lib.format.read_array(stream, allow_pickle=False)
        return array


def _plain(file: Path, arrays: Arrays) -> Arrays:
    """The gnn-benchmark's matrices as features, edges and labels."""
    adjacency = _csr(file, arrays, "adj").tocoo()
    plain = {"edge_index": np.stack(adjacency.coords)[:, adjacency.data != 0]}
    if "attr_matrix" in arrays:
        plain["x"] = arrays["attr_matrix"]
    elif "attr_indptr" in arrays:
        matrix = _csr(file, arrays, "attr")
        check_memory(file, 4 * math.prod(matrix.shape), key="attr_*")
        with np.errstate(over="ignore"):  # an overflow is infinite, and found so
            plain["x"] = matrix.astype(np.float32).toarray()
    if "labels" in arrays:
        plain["y"] = arrays["labels"]
    return plain


def _csr(file: Path, arrays: Arrays, name: str) -> Any:
    missing = [f"{name}_{part}" for part in CSR_ARRAYS if f"{name}_{part}" not in arrays]
    if missing:
        raise refusal(
            file, f"has no array {listed(missing)} (found: {listed(arrays)})", "write all four parts of the matrix"
        )
    try:
        return csr_matrix(*(arrays[f"{name}_{part}"] for part in CSR_ARRAYS))
    except ValueError as error:
        problem = f"must be the parts of one CSR matrix ({error})"
        raise refusal(file, problem, "write them from one matrix", key=f"{name}_*") from error


def csr_matrix(data: NDArray[Any], indices: NDArray[Any], indptr: NDArray[Any], shape: NDArray[Any]) -> Any:
    """A CSR matrix of these parts, its indices within its shape; a `ValueError` where they are not of one."""
    if data.dtype.kind not in "fiub":
        raise ValueError(f"data of type {data.dtype}")
    for name, part in {"indices": indices, "indptr": indptr, "shape": shape}.items():
        if part.dtype.kind not in "iu" or part.ndim != 1:
            raise ValueError(f"{name} of type {part.dtype} and shape {list(part.shape)}")
    if len(shape) != 2 or not all(0 <= size < 2**31 for size in shape.tolist()):
        raise ValueError(f"shape {shape.tolist()}")
    matrix = sp.csr_array((data, indices.astype(np.int64), indptr.astype(np.int64)), shape=tuple(shape.tolist()))
    matrix.check_format(full_check=True)
    return matrix
