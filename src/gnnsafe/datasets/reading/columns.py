"""What the columns of a table are: their types, and labels and splits, checked row by row, in bulk."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from gnnsafe.datasets.reading.files import is_csv
from gnnsafe.datasets.reading.refusal import refusal, shown

__all__ = ["NUMBER", "first_row", "is_list", "is_number", "is_text", "labels", "plain", "splits", "trimmed"]

Column = Any  # Arrow's classes, whose package ships no types

NUMBER = r"^[+-]?((\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[nN]a[nN]|[iI]nf(inity)?)$"
SPLITS = ("train", "val", "test")


def plain(column: Column) -> Column:
    """The column without dictionary encoding or string views; empty text is null."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_string_view(column.type):
        column = column.cast(pa.large_string())
    if is_text(column.type) and pc.any(pc.equal(column, "")).as_py():
        column = pc.if_else(pc.equal(column, ""), pa.scalar(None, column.type), column)
    return column


def trimmed(column: Column) -> Column:
    """The plain column without spaces around text: in CSV they follow commas, and no name is meant to have them."""
    column = plain(column)
    return plain(pc.utf8_trim_whitespace(column)) if is_text(column.type) else column


def is_text(kind: Any) -> bool:
    """Whether a column of this type holds text."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def is_list(kind: Any) -> bool:
    """Whether a column of this type holds one list per row."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def is_number(kind: Any) -> bool:
    """Whether a column of this type holds numbers (true and false are 1 and 0), or nothing."""
    types = pa.types
    checks = (types.is_integer, types.is_floating, types.is_decimal, types.is_boolean, types.is_null)
    return any(check(kind) for check in checks)


def first_row(condition: Column) -> int:
    """The row, counted from 1, where the condition first holds, or 0.

    >>> first_row(pa.array([False, None, True]))
    3
    """
    return int(pc.index(condition, True).as_py()) + 1


def labels(file: Path, column: Column, name: str) -> tuple[NDArray[np.int64], list[str] | None]:
    """Class numbers, −1 where there is none, and the classes' names, sorted, if the labels are text."""
    given = column
    if is_text(column.type) and is_csv(file):
        column = _understood(file, column, name)
    if is_text(column.type):
        names = pc.unique(column).drop_null().sort()
        return pc.index_in(column, value_set=names).fill_null(-1).to_numpy().astype(np.int64), names.to_pylist()
    if not is_number(column.type):
        raise refusal(file, f"must hold whole numbers or names (got {column.type})", "convert it", column=name)
    values = column.cast(pa.float64(), safe=False).fill_null(-1).to_numpy()
    values = np.where(np.isnan(values), -1, values)
    wrong = (values < -1) | (values != np.floor(values)) | (values >= 2**53)
    if wrong.any():
        place = int(wrong.argmax())
        raise refusal(
            file,
            f"must be a whole number >= 0, or a name (got {shown(given[place].as_py())})",
            "number the classes from 0, and leave the field empty where there is no label",
            column=name,
            row=place + 1,
        )
    return values.astype(np.int64), None


def splits(file: Path, column: Column, name: str) -> dict[str, NDArray[np.bool_]]:
    """The masks of train, val and test; a node whose split is empty is in none of them."""
    if not (is_text(column.type) or pa.types.is_null(column.type)):
        raise refusal(file, f"must hold {', '.join(SPLITS)} (got {column.type})", "write the names", column=name)
    values = column.cast(pa.string())
    split = pc.index_in(values, value_set=pa.array(SPLITS))
    if place := first_row(pc.and_(pc.is_null(split), pc.is_valid(values))):
        got = values[place - 1].as_py()
        near = get_close_matches(got.lower(), SPLITS, n=1, cutoff=0.4)
        remedy = f"did you mean '{near[0]}'?" if near else "leave it empty for a node in none"
        raise refusal(file, f"must be one of {', '.join(SPLITS)} (got {shown(got)})", remedy, column=name, row=place)
    number = split.fill_null(-1).to_numpy()
    return {f"{part}_mask": number == index for index, part in enumerate(SPLITS)}


def _understood(file: Path, column: Column, name: str) -> Column:
    """Labels of a CSV file as numbers if all are, as text if none is."""
    number = pc.match_substring_regex(column, NUMBER)
    kinds = pc.unique(number).drop_null()
    if len(kinds) > 1:
        first = number.drop_null()[0].as_py()
        place = first_row(pc.not_equal(number, first))
        rule = "a number" if first else "a name"
        raise refusal(
            file,
            f"must be {rule}, as the labels before it are (got {shown(column[place - 1].as_py())})",
            "use numbers for all labels, or names for all",
            column=name,
            row=place,
        )
    return column.cast(pa.float64()) if kinds.to_pylist() != [False] else column
