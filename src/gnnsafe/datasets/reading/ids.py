"""Ids of nodes: each once, and found again at the ends of edges."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from gnnsafe.datasets.reading.columns import first_row, is_text, plain
from gnnsafe.datasets.reading.files import is_csv
from gnnsafe.datasets.reading.refusal import refusal, shown

__all__ = ["node_ids", "positions"]

Column = Any  # Arrow's classes, whose package ships no types

WHOLE = r"^(0|-?[1-9]\d{0,17})$"


def node_ids(file: Path, column: Column, name: str) -> Column:
    """Each node's id, given and given once; those of a CSV file are whole numbers if all are, else text."""
    if not _comparable(column.type):
        raise refusal(
            file, f"must be numbers or text (got {column.type})", "use one number or text per node", column=name
        )
    if place := first_row(pc.is_null(column, nan_is_null=True)):
        raise refusal(file, "must be given (got nothing)", "give every node an id", column=name, row=place)
    if is_csv(file) and pc.all(pc.match_substring_regex(column, WHOLE)).as_py():
        column = column.cast(pa.int64())
    ids = column.combine_chunks()
    first = pc.index_in(ids, value_set=ids).to_numpy()
    repeated = first != np.arange(len(first))
    if repeated.any():
        place = int(repeated.argmax())
        raise refusal(
            file,
            f"must be unique (got {shown(ids[place].as_py())}, as in row {first[place] + 1})",
            "remove or rename one of the two",
            column=name,
            row=place + 1,
        )
    return ids


def positions(file: Path, column: Column, name: str, ids: Column) -> NDArray[np.int64]:
    """Each value's place among the ids, −1 where it has none.

    Numbers meet numbers of the same value. Where one side is text, or types differ otherwise, both are compared as
    text, letter by letter: "01" is not 1. Spaces around text do not count where ids are numbers. A float of 2**53
    or more (in 32 bits 2**24) stands for several whole numbers, and so for no id.
    """
    if not _comparable(column.type):
        raise refusal(file, f"must be ids of nodes (got {column.type})", "use one number or text per edge", column=name)
    if is_text(column.type) and not is_text(ids.type):
        column = pc.utf8_trim_whitespace(column)
    exact = 2.0**24 if pa.types.is_float32(column.type) else 2.0**53
    column, ids = _widened(column), _widened(ids)
    if pa.types.is_float64(column.type) and pa.types.is_integer(ids.type):
        column = pc.if_else(pc.less(pc.abs(column), exact), column, None)
    if column.type != ids.type:
        try:
            column = column.cast(ids.type if _exactly(column.type, ids.type) else pa.large_string())
        except pa.ArrowInvalid:
            column = column.cast(pa.large_string())
    if column.type != ids.type:
        ids = ids.cast(pa.large_string())
    found: NDArray[np.int64] = pc.index_in(column, value_set=ids).fill_null(-1).to_numpy().astype(np.int64)
    return found


def _widened(column: Column) -> Column:
    """Text and floats of one width each."""
    if is_text(column.type):
        return plain(column).cast(pa.large_string())
    return column.cast(pa.float64()) if pa.types.is_float32(column.type) else column


def _exactly(kind: Any, other: Any) -> bool:
    """Whether Arrow's cast from `kind` to `other` keeps every value or fails: it rounds some."""
    types = pa.types
    if types.is_timestamp(kind) and types.is_timestamp(other):
        return (kind.tz is None) == (other.tz is None)
    whole, number = types.is_integer(kind), types.is_integer(kind) or types.is_float64(kind)
    return bool(
        (number and (types.is_integer(other) or types.is_float64(other)))
        or ((whole or types.is_decimal(kind)) and types.is_decimal(other))
    )


def _comparable(kind: Any) -> bool:
    """Whether values of this type can be looked up, compared as text with others, and held exactly by Python."""
    types = pa.types
    if types.is_timestamp(kind):
        return bool(kind.unit != "ns")
    checks = (types.is_integer, types.is_float32, types.is_float64, types.is_decimal, types.is_date32, types.is_null)
    return is_text(kind) or any(check(kind) for check in checks)
