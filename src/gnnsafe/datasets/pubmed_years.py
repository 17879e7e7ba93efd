"""PubMed with the year of each paper: a real temporal shift."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import torch

from gnnsafe.datasets.public import PUBLIC
from gnnsafe.datasets.reading.npz import zipped_arrays
from gnnsafe.datasets.sources import data_root
from gnnsafe.errors import DataNotFoundError, InputError, require
from gnnsafe.graph import Data

__all__ = ["EXPOSURE", "ID", "OOD", "pubmed_with_years", "years_file"]

ID, EXPOSURE, OOD = 1995, (1996, 2000), {"2001-2005": (2001, 2005), "2006-2010": (2006, 2010)}
FILE = "PubMedTemporal/pubmed_year.npz"


def years_file(root: str | os.PathLike[str] | None) -> Path | None:
    """The file with a `year` per Planetoid PubMed node, where the data root has one."""
    base = data_root(root)
    return base / FILE if base is not None and (base / FILE).is_file() else None


def pubmed_with_years(root: str | os.PathLike[str] | None) -> tuple[Data, str]:
    """PubMed, each node with its `year`."""
    file = years_file(root)
    if file is None:
        raise DataNotFoundError(
            f"pubmed-years was not found. Tried: {data_root(root) or 'no data root'}. "
            f"Pass root= (--data, GNNSAFE_DATA) a folder with {FILE}: 'year', one per Planetoid PubMed node."
        )
    data, source = PUBLIC["pubmed"].load(root)
    arrays = zipped_arrays(file, ["year"])
    require("year" in arrays, str(file), "hold an array 'year'", "none", "write it with np.savez")
    data.year = torch.from_numpy(arrays["year"].astype(np.int64))
    if len(data.year) != data.num_nodes:
        raise InputError(f"{file} must have a year for each of {data.num_nodes} nodes (got {len(data.year)})")
    return data, f"{source} with {file}"
