"""Batches of Arrow as tensors and back: where a column is a matrix, it is columns of numbers or one of lists."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor

from gnnsafe.datasets.reading.refusal import refusal, shown
from gnnsafe.engines.inputs import FeatureColumns
from gnnsafe.errors import InputError

__all__ = ["arrow_table", "feature_rows"]


def arrow_table(name: str, source: Any) -> Any:
    """A user's table in memory: Arrow's, pandas', polars', or columns by name."""
    try:
        return pa.table(source)
    except (TypeError, ValueError) as error:
        rule = f"'{name}' must be a path, or a table of Arrow, pandas or polars"
        raise InputError(f"{rule} (got {type(source).__name__}: {error})") from error


def feature_rows(batch: Any, rows: FeatureColumns) -> Tensor:
    """Features of a batch with the columns id, c0, c1, …: float32 [rows, features], once all are finite numbers."""
    matrix = _lists(batch, rows) if rows.listed else _columns(batch, rows)
    finite = np.isfinite(matrix)
    if not finite.all():
        row, column = divmod(int(finite.argmin()), matrix.shape[1])
        place = 0 if rows.listed else column
        value = batch.column(f"c{place}")[row].as_py()
        raise _wrong(batch, rows, row, place, value[column] if rows.listed else value)
    return torch.from_numpy(matrix)


def _columns(batch: Any, rows: FeatureColumns) -> Any:
    matrix = np.empty((batch.num_rows, len(rows.columns)), dtype=np.float32)
    for place in range(len(rows.columns)):
        column = batch.column(f"c{place}").cast(pa.float64(), safe=False)
        with np.errstate(over="ignore"):  # what float32 has not is infinite, and found so
            matrix[:, place] = pc.fill_null(column, np.nan).to_numpy(zero_copy_only=False)
    return matrix


def _lists(batch: Any, rows: FeatureColumns) -> Any:
    column, width = batch.column("c0"), rows.width
    lengths = pc.fill_null(pc.list_value_length(column), -1).to_numpy(zero_copy_only=False)
    if (wrong := lengths != width).any():
        row = int(wrong.argmax())
        got = "nothing" if lengths[row] < 0 else f"{lengths[row]} numbers"
        raise refusal(
            Path(rows.name), f"must hold a list of {width} numbers (got {got} for node {_id(batch, row)})",
            "write the features that the detector knows", column=rows.columns[0],
        )  # fmt: skip
    flat = pc.list_flatten(column).cast(pa.float32(), safe=False)
    return np.array(pc.fill_null(flat, np.nan).to_numpy(zero_copy_only=False)).reshape(-1, width)


def _wrong(batch: Any, rows: FeatureColumns, row: int, place: int, value: object) -> Exception:
    return refusal(
        Path(rows.name), f"must be a finite number (got {shown(value)} for node {_id(batch, row)})",
        "correct the value", column=rows.columns[place],
    )  # fmt: skip


def _id(batch: Any, row: int) -> str:
    return shown(batch.column("id")[row].as_py())
