"""What the columns of a node table mean: numbers, labels, splits, times. Each is checked here, row by row, in bulk."""

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
from gnnsafe.errors import GraphFileError

__all__ = [
    "first_row",
    "is_list",
    "is_text",
    "labels",
    "list_features",
    "numbers",
    "plain",
    "splits",
    "times",
    "trimmed",
]

Column = Any  # Arrow's classes, whose package ships no types

NUMBER = r"^[+-]?((\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[nN]a[nN]|[iI]nf(inity)?)$"
DATE = r"^\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])([ T]\d\d:\d\d(:\d\d)?)?$"
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


def numbers(file: Path, column: Column, name: str, *, width: int = 1) -> NDArray[np.float32] | None:
    """The column as finite float32, `width` values to a row; None if it holds no number at all."""
    if is_text(column.type):
        number = pc.match_substring_regex(column, NUMBER)
        if not pc.any(number).as_py():
            return None
        if place := first_row(pc.invert(number)):
            raise _not_number(file, column, name, place, width)
    elif not is_number(column.type):
        return None
    if place := first_row(pc.is_null(column)):
        raise _not_number(file, column, name, place, width)
    values: NDArray[np.float32] = column.cast(pa.float32(), safe=False).to_numpy()
    finite = np.isfinite(values)
    if not finite.all():
        raise _not_number(file, column, name, int(finite.argmin()) + 1, width)
    return values


def list_features(file: Path, column: Column, name: str) -> NDArray[np.float32]:
    """A column of lists, all of one length, as [nodes, features]; in CSV a list is written [0.5, 1] or 0.5 1."""
    if place := first_row(pc.is_null(column)):
        raise refusal(file, "must hold a list of numbers (got nothing)", "fill it in", column=name, row=place)
    if is_text(column.type):
        column = pc.split_pattern_regex(pc.utf8_trim(column, characters=" \n[]()"), r"[\s,;]+")
    lengths = pc.list_value_length(column)
    width = int(lengths[0].as_py())
    if place := first_row(pc.not_equal(lengths, width)):
        got = lengths[place - 1].as_py()
        raise refusal(
            file,
            f"must hold {width} numbers, as row 1 does (got {got})",
            "make all lists of one length",
            column=name,
            row=place,
        )
    if not width:
        raise refusal(
            file, "must hold at least one number per row (got empty lists)", "write the features", column=name
        )
    flat = plain(pc.list_flatten(column))
    values = numbers(file, flat, name, width=width)
    if values is None:
        got = shown(flat[0].as_py())
        raise refusal(file, f"must hold lists of numbers (got {got})", "write numbers", column=name, row=1)
    return values.reshape(-1, width)


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


def times(file: Path, column: Column, name: str) -> NDArray[np.int64] | NDArray[np.float64]:
    """Numbers as they are; dates and times as whole seconds since 1970 (UTC where no zone is given)."""
    types, kind = pa.types, column.type
    if place := first_row(pc.is_null(column, nan_is_null=True)):
        raise refusal(file, "must be given (got nothing)", "fill it in, or remove the column", column=name, row=place)
    if types.is_date(kind) or types.is_timestamp(kind):
        column = column.cast(pa.timestamp("s"), safe=False).cast(pa.int64())
    elif not (types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)):
        raise _not_time(file, column, name)
    values: NDArray[np.int64] | NDArray[np.float64] = column.cast(
        pa.int64() if types.is_integer(column.type) else pa.float64(), safe=False
    ).to_numpy()
    return values


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


def _not_time(file: Path, column: Column, name: str) -> GraphFileError:
    remedy = "write all as numbers, or all as dates such as 2024-12-31 or 2024-12-31 23:59:59"
    if not is_text(column.type):
        return refusal(file, f"must hold numbers or dates (got {column.type})", remedy, column=name)
    for kind, pattern in {"a date": DATE, "a number": NUMBER}.items():
        fits = pc.match_substring_regex(column, pattern)
        if fits[0].as_py() and (place := first_row(pc.invert(fits))):
            problem = f"must be {kind}, as row 1 is (got {shown(column[place - 1].as_py())})"
            return refusal(file, problem, remedy, column=name, row=place)
    return refusal(
        file, f"must be a number or a date (got text, {shown(column[0].as_py())})", remedy, column=name, row=1
    )


def _not_number(file: Path, column: Column, name: str, place: int, width: int) -> GraphFileError:
    problem = f"must be a finite number (got {shown(column[place - 1].as_py())})"
    row = (place - 1) // width + 1
    return refusal(file, problem, "correct the value, or remove the column", column=name, row=row)
