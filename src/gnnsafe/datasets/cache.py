"""Processed copies of graphs in the user's cache folder: written whole or not at all, checked when read."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

import numpy as np
import scipy.sparse as sp
import torch
import xxhash
from platformdirs import user_cache_path
from torch import Tensor

from gnnsafe.files import replacing
from gnnsafe.graph import Data

__all__ = ["cache_folder", "cached_graph"]

SPARSE_BELOW = 0.3  # density
FORMAT = 3  # to be raised when what is written changes


def cache_folder() -> Path | None:
    """Where processed copies go: `$XDG_CACHE_HOME/gnnsafe`, or the system's own place, `~/.cache/gnnsafe` on Linux.

    None for a user without a home.
    """
    try:
        return user_cache_path("gnnsafe", appauthor=False)
    except RuntimeError:  # neither HOME nor a name for this user
        return None


def cached_graph(name: str, sources: Iterable[Path], build: Callable[[], Data]) -> Data:
    """The graph made by `build` from the files `sources`, kept under `name` until one of them changes.

    A copy that is damaged (a flipped bit, too), half-written or of another version is rebuilt, and a cache folder that
    cannot be written to, or none, costs only time.
    """
    folder = cache_folder()
    if folder is None:
        return build()
    path = folder / f"{name}-{_fingerprint(sources)}.npz"
    with suppress(Exception):  # whatever numpy and zip make of a damaged copy
        return _load(path)
    data = build()
    with suppress(OSError), replacing(path) as part:
        _write(data, part)
    return data


def _fingerprint(sources: Iterable[Path]) -> str:
    digest = xxhash.xxh3_64(str(FORMAT).encode())
    for source in sources:
        status = source.stat()
        digest.update(f"{source.resolve()}|{status.st_size}|{status.st_mtime_ns}".encode())
    return digest.hexdigest()


def _write(data: Data, path: Path) -> None:
    """Tensors as arrays, a bag of words as CSR, which is a fraction of the size; last a checksum of all before it."""
    arrays = {key: value.numpy() for key, value in data.to_dict().items() if isinstance(value, Tensor)}
    if np.count_nonzero(arrays["x"]) < SPARSE_BELOW * arrays["x"].size:
        x = sp.csr_array(arrays.pop("x"))
        arrays |= {"x_data": x.data, "x_indices": x.indices, "x_indptr": x.indptr, "x_shape": np.array(x.shape)}
    with path.open("wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]  # its stub takes a name for an option
    checksum = xxhash.xxh3_128_digest(path.read_bytes())
    with path.open("ab") as file:
        file.write(checksum)


def _load(path: Path) -> Data:
    from torch_geometric.data import Data  # three seconds to import: only where a data set is read

    raw = memoryview(path.read_bytes())
    if xxhash.xxh3_128_digest(raw[:-16]) != raw[-16:]:  # the zip's own checksums leave its headers out
        raise ValueError("another checksum")
    with np.load(io.BytesIO(raw[:-16]), allow_pickle=False) as zipped:
        arrays = {key: zipped[key] for key in zipped.files}
    if "x" not in arrays:
        parts = [arrays.pop(f"x_{part}") for part in ("data", "indices", "indptr", "shape")]
        arrays = {"x": sp.csr_array(tuple(parts[:3]), shape=tuple(parts[3])).toarray(), **arrays}
    return Data(**{key: torch.from_numpy(value) for key, value in arrays.items()})
