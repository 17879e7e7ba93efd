"""Columns about nodes as tables of others' packages, and which of their rows stay."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from gnnsafe.checks import check_mask
from gnnsafe.errors import InputError, MissingExtraError

__all__ = ["arrow_array", "arrow_table", "data_frame", "selection"]


def selection(mask: Tensor, rows: int) -> Tensor:
    """A mask of so many rows, checked as any other, but that it may be empty."""
    empty = isinstance(mask, Tensor) and mask.dtype == torch.bool and mask.shape == (rows,) and not mask.any()
    return mask if empty else check_mask("mask", mask, rows)


def arrow_table(columns: Mapping[str, Any]) -> Any:
    """A `pyarrow.Table`."""
    try:
        import pyarrow as pa
    except ImportError as error:
        raise MissingExtraError(f"an Arrow table needs {error.name}: pip install 'gnnsafe[tables]'") from error
    return pa.table({name: arrow_array(name, values) for name, values in columns.items()})


def data_frame(columns: Mapping[str, Any]) -> Any:
    """A `pandas.DataFrame`."""
    try:
        import pandas as pd
    except ImportError as error:
        raise MissingExtraError(f"a data frame needs {error.name}: pip install pandas") from error
    return pd.DataFrame(columns)


def arrow_array(name: str, values: Any) -> Any:
    """A column as Arrow takes it; whole numbers that only uint64 holds, as such."""
    import pyarrow as pa

    try:
        try:
            return pa.array(values)
        except OverflowError:
            return pa.array(values, pa.uint64())
    except (OverflowError, pa.ArrowInvalid, pa.ArrowTypeError) as error:
        held = "node_id" if name == "id" else "class_names"
        raise InputError(f"'{name}' must be of one type to be a column (got {error}); correct data.{held}") from error
