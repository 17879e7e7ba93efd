"""Tensors of a `.pt` file, read without running what is in it."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gnnsafe.datasets.reading.arrays import ARRAY_NAMES
from gnnsafe.datasets.reading.limits import check_memory
from gnnsafe.datasets.reading.refusal import readable, refusal, warn_of_weights
from gnnsafe.errors import GraphFileError, InputError
from gnnsafe.graph import edges_of

__all__ = ["saved_arrays"]

REMEDY = "write it with torch.save(data.to_dict(), file)"
ROWS_FIRST = (torch.sparse_csr, torch.sparse_bsr)
COLUMNS_FIRST = (torch.sparse_csc, torch.sparse_bsc)


def saved_arrays(file: Path) -> Mapping[str, NDArray[Any]]:
    """The tensors of a PyG `Data`, of a dict of tensors, or of a PyG data set of one graph."""
    from torch_geometric.data import Data

    content = _content(file)
    if isinstance(content, tuple) and len(content) == 3 and content[1] is None:
        content = content[0]  # (dict, slices, class), as PyG's InMemoryDataset writes its file
    if isinstance(content, Data):
        with readable(file, ".pt", Exception):  # a forged Data may lack anything
            content = content.to_dict()
    if not isinstance(content, dict):
        raise refusal(file, f"must hold a PyG Data or a dict of tensors (got {type(content).__name__})", REMEDY)
    if content.get("edge_index") is None and content.get("adj_t") is not None:
        with readable(file, ".pt", InputError):
            content = {**content, **edges_of(content["adj_t"])}
    held = {name: value for name, value in content.items() if isinstance(name, str) and value is not None}
    warn_of_weights(file, held)
    return {name: _array(file, name, held[name]) for name in ARRAY_NAMES if name in held}


def _content(file: Path) -> Any:
    """What torch's restricted unpickler builds: containers, tensors, and the three classes inside a PyG `Data`."""
    from torch_geometric.data.data import Data, DataEdgeAttr, DataTensorAttr
    from torch_geometric.data.storage import GlobalStorage

    with readable(file, ".pt", OSError), file.open("rb") as stream:
        try:
            with zipfile.ZipFile(stream) as zipped:  # what torch wrote before 1.6 was none, and is not read
                size = sum(member.file_size for member in zipped.infolist())
        except Exception:  # a damaged zip fails in a dozen ways
            raise _not_tensors(file) from None
        check_memory(file, size)
        stream.seek(0)
        try:
            with torch.serialization.safe_globals([Data, DataEdgeAttr, DataTensorAttr, GlobalStorage]):
                return torch.load(stream, map_location="cpu", weights_only=True)
        except Exception as error:  # a damaged or hostile file fails in any way it likes
            # Torch's own message is left out: it advises to load the file without protection.
            raise _not_tensors(file, re.search(r"GLOBAL (\S+)", str(error))) from None


def _not_tensors(file: Path, found: re.Match[str] | None = None) -> GraphFileError:
    got = f"{found[1]}, which was not run" if found else "another kind of file, or a damaged one"
    return refusal(file, f"must hold tensors and PyG's Data alone (got {got})", REMEDY)


def _array(file: Path, name: str, value: object) -> NDArray[Any]:
    if isinstance(value, Tensor):
        _check_tensor(file, name, value)
        with readable(file, ".pt", Exception):
            dense = value.detach() if value.layout == torch.strided else _checked(value.detach()).to_dense()
            return np.asarray(dense.float() if dense.dtype == torch.bfloat16 else dense)
    if name in ("node_id", "class_names") and isinstance(value, list):
        kinds = {type(entry) for entry in value}
        if kinds in ({int}, {float}, {str}):
            with readable(file, ".pt", OverflowError):
                return np.array(value, dtype=_whole_type(value) if kinds == {int} else None)
        got = f"a list of {', '.join(sorted(kind.__name__ for kind in kinds)) or 'nothing'}"
        raise refusal(file, f"must be numbers of one kind, or text (got {got})", "write one of either", key=name)
    raise refusal(file, f"must be a tensor (got {type(value).__name__})", REMEDY, key=name)


def _whole_type(values: list[int]) -> Any:
    """The type that holds them all as they are; numpy's own choice may be floats."""
    return np.uint64 if max(values) >= 2**63 and min(values) >= 0 else np.int64


def _check_tensor(file: Path, name: str, value: Tensor) -> None:
    """The tensor has numbers, and no more of them than the file can hold: a view may repeat one without end."""
    kind = "nested" if value.is_nested else "quantised" if value.is_quantized else value.device.type
    if kind != "cpu":
        raise refusal(file, f"must be a plain tensor (got one that is {kind})", REMEDY, key=name)
    check_memory(file, value.numel() * max(4, value.element_size()), key=name)  # as it will be, float32 at least


def _checked(value: Tensor) -> Tensor:
    """A copy of the sparse tensor, its indices known to lie within its shape; torch loads others without an error."""
    shape = value.shape
    if value.layout == torch.sparse_coo:
        return torch.sparse_coo_tensor(value._indices(), value._values(), shape, check_invariants=True)
    if value.layout in ROWS_FIRST:
        pointers, indices = value.crow_indices(), value.col_indices()
    elif value.layout in COLUMNS_FIRST:
        pointers, indices = value.ccol_indices(), value.row_indices()
    else:
        raise ValueError(f"layout {value.layout}")
    return torch.sparse_compressed_tensor(
        pointers, indices, value.values(), shape, layout=value.layout, check_invariants=True
    )
