"""Tensors of a `.pt` file, read without running what is in it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gnnsafe.datasets.reading.arrays import NAMES
from gnnsafe.datasets.reading.refusal import readable, refusal

__all__ = ["saved_arrays"]

REMEDY = "write it with torch.save(data.to_dict(), file)"


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
    return {name: _array(file, name, content[name]) for name in NAMES if content.get(name) is not None}


def _content(file: Path) -> Any:
    """What torch's restricted unpickler builds: containers, tensors, and the three classes inside a PyG `Data`."""
    from torch_geometric.data.data import Data, DataEdgeAttr, DataTensorAttr
    from torch_geometric.data.storage import GlobalStorage

    with readable(file, ".pt", OSError), file.open("rb") as stream:
        try:
            with torch.serialization.safe_globals([Data, DataEdgeAttr, DataTensorAttr, GlobalStorage]):
                return torch.load(stream, map_location="cpu", weights_only=True)
        except Exception as error:  # a damaged or hostile file fails in any way it likes
            found = re.search(r"GLOBAL (\S+)", str(error))
            got = f"{found[1]}, which was not run" if found else "another kind of file, or a damaged one"
            # Torch's own message is left out: it advises to load the file without protection.
            raise refusal(file, f"must hold tensors and PyG's Data alone (got {got})", REMEDY) from None


def _array(file: Path, name: str, value: object) -> NDArray[Any]:
    if isinstance(value, Tensor):
        with readable(file, ".pt", Exception):
            dense = value.detach() if value.layout == torch.strided else value.detach().to_dense()
            return np.asarray(dense.float() if dense.dtype == torch.bfloat16 else dense)
    if name in ("node_id", "class_names") and isinstance(value, list):
        with readable(file, ".pt", ValueError):  # lists within the list, of different lengths
            return np.array(value)
    raise refusal(file, f"must be a tensor (got {type(value).__name__})", REMEDY, key=name)
