"""The times of nodes as numbers, none of them changed by being read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from gnnsafe.datasets.reading.columns import NUMBER, first_row, is_text
from gnnsafe.datasets.reading.refusal import refusal, shown
from gnnsafe.errors import GraphFileError

__all__ = ["times"]

Column = Any  # Arrow's classes, whose package ships no types
Times = NDArray[np.int64] | NDArray[np.float64]

WHOLE = r"^[+-]?\d+$"
DATE = r"^\d{4}-\d\d-\d\d([ T]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d(:?\d\d)?)?)?$"
ZONE = r":\d\d(\.\d+)?(Z|[+-]\d\d(:?\d\d)?)$"
REMEDY = (
    "write all as numbers, or all as dates such as 2024-12-31 or 2024-12-31 23:59:59.000001, with a time zone "
    "(…59Z, …59+02:00) in all or none"
)


def times(file: Path, column: Column, name: str) -> Times:
    """Numbers as they are; dates and times as seconds since 1970 (UTC where no zone is given).

    Args:
        file: The table, for messages.
        column: Whole numbers, other numbers, dates, times, or text that writes one of these in every row.
        name: The column's name.

    Returns:
        int64 of whole numbers and whole seconds; float64 where there are fractions, exact to the microsecond.

    Raises:
        GraphFileError: A time is missing, not finite, or cannot be held exactly.
    """
    if place := first_row(pc.is_null(column, nan_is_null=True)):
        raise refusal(file, "must be given (got nothing)", "fill it in, or remove the column", column=name, row=place)
    types = pa.types
    if is_text(column.type):
        column = _understood(file, column, name)
    if types.is_date(column.type) or types.is_timestamp(column.type):
        return _seconds(file, column, name)
    if types.is_integer(column.type):
        whole: NDArray[np.int64] = _cast(file, column, name, pa.int64(), "be a whole number below 2**63").to_numpy()
        return whole
    if not (types.is_floating(column.type) or types.is_decimal(column.type)):
        raise refusal(file, f"must hold numbers or dates (got {column.type})", REMEDY, column=name)
    numbers: NDArray[np.float64] = column.cast(pa.float64(), safe=False).to_numpy()
    if not np.isfinite(numbers).all():
        raise _wrong(file, column, name, int(np.isfinite(numbers).argmin()), "be a finite number")
    return numbers


def _understood(file: Path, column: Column, name: str) -> Column:
    """Text as numbers or dates: as what all rows are."""
    if pc.all(pc.match_substring_regex(column, WHOLE)).as_py():
        unsigned = pc.utf8_ltrim(column, characters="+")
        return _cast(file, unsigned, name, pa.int64(), "be a whole number below 2**63")
    for kind, pattern in {"a date": DATE, "a number": NUMBER}.items():
        fits = pc.match_substring_regex(column, pattern)
        if fits[0].as_py():
            if place := first_row(pc.invert(fits)):
                raise _wrong(file, column, name, place - 1, f"be {kind}, as row 1 is")
            if kind == "a number":
                return column.cast(pa.float64())
            zone = "UTC" if pc.match_substring_regex(column, ZONE)[0].as_py() else None
            return _cast(file, column, name, pa.timestamp("us", zone), "be a date, as row 1 is")
    raise _wrong(file, column, name, 0, "be a number or a date", "text, ")


def _seconds(file: Path, column: Column, name: str) -> Times:
    zone = getattr(column.type, "tz", None)
    exact = _cast(file, column, name, pa.timestamp("us", zone), "be a time in whole microseconds")
    microseconds: NDArray[np.int64] = exact.cast(pa.int64()).to_numpy()
    if not (microseconds % 10**6).any():
        return microseconds // 10**6
    seconds = microseconds / 1e6
    if (lost := np.rint(seconds * 1e6) != microseconds).any():
        raise _wrong(file, column, name, int(lost.argmax()), "be a time that seconds in float64 can hold")
    return seconds


def _cast(file: Path, column: Column, name: str, kind: Any, rule: str) -> Column:
    """The column in another type that holds each of its values exactly."""
    try:
        return column.cast(kind)
    except pa.ArrowInvalid:
        place = next(row for row, value in enumerate(column) if not _holds(kind, value))
        raise _wrong(file, column, name, place, rule) from None


def _holds(kind: Any, value: Any) -> bool:
    try:
        value.cast(kind)
    except pa.ArrowInvalid:
        return False
    return True


def _wrong(file: Path, column: Column, name: str, place: int, rule: str, got: str = "") -> GraphFileError:
    value = column[place]
    text = shown(value.as_py()) if is_text(column.type) else str(value.cast(pa.string()))
    return refusal(file, f"must {rule} (got {got}{text})", REMEDY, column=name, row=place + 1)
