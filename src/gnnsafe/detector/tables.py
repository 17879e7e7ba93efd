"""Columns about nodes as tables of others' packages, and which of their rows stay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gnnsafe.checks import check_mask
from gnnsafe.errors import InputError, MissingExtraError

__all__ = ["arrow_column", "arrow_table", "data_frame", "name_array", "selection"]


def selection(mask: Tensor, rows: int) -> Tensor:
    """A mask of so many rows, checked as any other, but that it may be empty."""
    empty = isinstance(mask, Tensor) and mask.dtype == torch.bool and mask.shape == (rows,) and not mask.any()
    return mask if empty else check_mask("mask", mask, rows)


def name_array(names: Sequence[Any]) -> Any:
    """Names of classes as an array; whole numbers that would become floats in one of numpy's stay as they are.

    >>> name_array([2**63 + 1, 3]).tolist()
    [9223372036854775809, 3]
    """
    found = np.array(names)
    exact = found.dtype.kind != "f" or all(isinstance(name, float) for name in names)
    return found if exact else np.array(names, dtype=object)


def arrow_table(columns: Mapping[str, Any]) -> Any:
    """A `pyarrow.Table`."""
    try:
        import pyarrow as pa
    except ImportError as error:
        raise MissingExtraError(f"an Arrow table needs {error.name}: pip install 'gnnsafe[tables]'") from error
    return pa.table({name: arrow_column(name, values) for name, values in columns.items()})


def data_frame(columns: Mapping[str, Any]) -> Any:
    """A `pandas.DataFrame`."""
    try:
        import pandas as pd
    except ImportError as error:
        raise MissingExtraError(f"a data frame needs {error.name}: pip install pandas") from error
    try:
        return pd.DataFrame(columns)
    except UnicodeError as error:
        remedy = "correct data.node_id or data.class_names"
        raise InputError(f"a table must have ids and names that UTF-8 can hold (got {error}); {remedy}") from error


def arrow_column(name: str, values: Any) -> Any:
    """A column as Arrow takes it; whole numbers that only uint64 holds, as such."""
    import pyarrow as pa

    remedy = f"correct data.{'node_id' if name == 'id' else 'class_names'}"
    try:
        try:
            return pa.array(values)
        except OverflowError:
            return pa.array(values, pa.uint64())
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise InputError(f"'{name}' must be of one type to be a column (got {error}); {remedy}") from error
    except (OverflowError, UnicodeError) as error:
        raise InputError(f"'{name}' must be what a column can hold (got {error}); {remedy}") from error
