"""Features of a node table as one matrix, filled batch by batch: no second copy of it is ever held."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from gnnsafe.datasets.reading.columns import NUMBER, first_row, is_list, is_number, is_text, plain
from gnnsafe.datasets.reading.files import Rows, is_csv, read_rows
from gnnsafe.datasets.reading.limits import check_memory
from gnnsafe.datasets.reading.refusal import DAMAGED, refusal, shown, warn_of_coarse
from gnnsafe.errors import GraphFileError

__all__ = ["Features", "read_features"]

Column = Any  # Arrow's classes, whose package ships no types
Matrix = NDArray[np.float32]

SEPARATOR = r"\s*[,;]\s*|\s+"  # of a list's numbers: one of these between two, so that a gap is seen
BRACKETS = " \t\r\n[]()"


class Features(NamedTuple):
    """A matrix [nodes, features], the names of its columns if they are columns of the table, and the table's others."""

    x: Matrix
    names: list[str] | None
    ignored: list[str]


def read_features(file: Path, columns: Sequence[str]) -> Features:
    """Features from the list column, or else from all columns of numbers.

    Args:
        file: The node table.
        columns: Its columns except for those with a meaning of their own.

    Returns:
        The features, every number of them finite.

    Raises:
        GraphFileError: A value is no finite number, lists differ in length, or there is no feature.
    """
    if not columns:
        raise _no_features(file)
    rows = read_rows(file, columns)
    for field in rows.schema:
        kind = _plain_type(field.type)
        listed = is_list(kind) or (is_text(kind) and is_csv(file))
        if listed and field.name.strip().lower() in ("features", "x"):
            others = [name for name in rows.schema.names if name != field.name]
            return Features(_from_lists(file, rows, field.name), None, others)
    return _from_columns(file, rows)


def _from_columns(file: Path, rows: Rows) -> Features:
    kinds = {field.name: _plain_type(field.type) for field in rows.schema}
    texts = {name: _written(file, rows, name) for name, kind in kinds.items() if is_text(kind)}
    used = [name for name, kind in kinds.items() if is_number(kind) or texts.get(name) is not None]
    if not used:
        raise _no_features(file)
    x = _empty(file, rows, len(used))
    place = {name: column for column, name in enumerate(used)}
    for name in texts.keys() & place:
        x[:, place[name]] = texts[name]
    numbers = [name for name in used if name not in texts]
    step = max(16, -(-len(numbers) // 16))  # columns at once: each that is open has buffers of its own
    for first in range(0, len(numbers), step):
        names = numbers[first : first + step]
        _fill_columns(file, rows, x, {name: place[name] for name in names})
    return Features(x, used, [name for name in kinds if name not in place])


def _fill_columns(file: Path, rows: Rows, x: Matrix, place: dict[str, int]) -> None:
    """Fill in columns of numbers at their places."""
    names, start = list(place), 0
    low, high = np.full(len(names), np.inf), np.full(len(names), -np.inf)
    for batch in rows.batches(names):
        exact = [plain(column).cast(pa.float64(), safe=False) for column in batch.columns]
        ranges = [pc.min_max(column) for column in exact]
        low = np.fmin(low, [_number(each["min"]) for each in ranges])
        high = np.fmax(high, [_number(each["max"]) for each in ranges])
        values = [column.cast(pa.float32(), safe=False) for column in exact]
        part = pa.RecordBatch.from_arrays(values, names).to_tensor(null_to_nan=True, row_major=True).to_numpy()
        if bad := _first_bad(part):
            row, column = bad
            raise _not_number(file, batch.column(column)[row], names[column], start + row + 1)
        _fill(file, x, start, part, list(place.values()))
        start += len(part)
    _whole(file, x, start)
    warn_of_coarse(file, names, low, high)


def _number(value: Any) -> float:
    """Arrow's scalar as a number, NaN where it is null."""
    return np.nan if (number := value.as_py()) is None else float(number)


def _written(file: Path, rows: Rows, name: str) -> Matrix | None:
    """A column of text as numbers; None if it holds none at all."""
    column = plain(pa.chunked_array([batch.column(0) for batch in rows.batches([name])]))
    number = pc.match_substring_regex(column, NUMBER)
    count = pc.sum(number).as_py()
    if not count:
        return None
    if place := first_row(pc.or_(pc.invert(number), pc.is_null(column))) or first_row(pc.is_null(column)):
        first = first_row(number)
        also = f", as {count:,} of its {len(column):,} values are, the first in row {first}"
        raise _not_number(file, column[place - 1], name, place, also)
    exact = column.cast(pa.float64()).to_numpy()
    with np.errstate(over="ignore"):  # an overflow is infinite, and found so
        values: Matrix = exact.astype(np.float32)
    if not np.isfinite(values).all():
        place = int(np.isfinite(values).argmin()) + 1
        raise _not_number(file, column[place - 1], name, place)
    warn_of_coarse(file, [name], exact.min(), exact.max())
    return values


def _from_lists(file: Path, rows: Rows, name: str) -> Matrix:
    """A column of lists, all of one length; in CSV a list is written [0.5, 1] or 0.5 1."""
    x, start, width = np.empty((0, 0), dtype=np.float32), 0, 0
    for batch in rows.batches([name]):
        column = _lists(file, plain(batch.column(0)), name, start)
        if not start:
            width = int(pc.list_value_length(column)[0].as_py())
            if not width:
                problem = "must hold at least one number per row (got empty lists)"
                raise refusal(file, problem, "write the features", column=name)
            x = _empty(file, rows, width)
        part = _equally_long(file, column, name, start, width)
        _fill(file, x, start, part)
        start += len(part)
    return _whole(file, x, start)


def _lists(file: Path, column: Column, name: str, start: int) -> Column:
    if place := first_row(pc.is_null(column)):
        raise refusal(file, "must hold a list of numbers (got nothing)", "fill it in", column=name, row=start + place)
    if is_text(column.type):
        return pc.split_pattern_regex(pc.utf8_trim(column, characters=BRACKETS), SEPARATOR)
    return column


def _equally_long(file: Path, column: Column, name: str, start: int, width: int) -> Matrix:
    """Lists that are known to be there as [rows, width], once they are as long as the first of all."""
    lengths = pc.list_value_length(column)
    if place := first_row(pc.not_equal(lengths, width)):
        raise refusal(
            file,
            f"must hold {width} numbers, as row 1 does (got {lengths[place - 1].as_py()})",
            "make all lists of one length",
            column=name,
            row=start + place,
        )
    flat = plain(pc.list_flatten(column))
    wrong = pc.is_null(flat)
    if is_text(flat.type):
        wrong = pc.or_(wrong, pc.invert(pc.fill_null(pc.match_substring_regex(flat, NUMBER), fill_value=True)))
    elif not is_number(flat.type):
        wrong = pa.repeat(True, len(flat))
    if place := first_row(wrong):
        raise _not_number(file, flat[place - 1], name, start + (place - 1) // width + 1)
    part: Matrix = flat.cast(pa.float32(), safe=False).to_numpy(zero_copy_only=False).reshape(-1, width)
    if bad := _first_bad(part):
        row, number = bad
        raise _not_number(file, flat[row * width + number], name, start + row + 1)
    return part


def _plain_type(kind: Any) -> Any:
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return pa.large_string() if pa.types.is_string_view(kind) else kind


def _empty(file: Path, rows: Rows, width: int) -> Matrix:
    if not is_csv(file):  # a row of CSV is there in full; one of Parquet may be a repetition
        check_memory(file, 4 * rows.count * width)
    return np.empty((rows.count, width), dtype=np.float32)


def _fill(file: Path, x: Matrix, start: int, part: Matrix, columns: Any = slice(None)) -> None:
    _whole(file, x[start : start + len(part)], len(part))
    x[start : start + len(part), columns] = part


def _whole(file: Path, x: Matrix, rows: int) -> Matrix:
    if len(x) != rows:
        raise refusal(file, "must hold as many rows as it says", DAMAGED)
    return x


def _first_bad(part: Matrix) -> tuple[int, int] | None:
    finite = np.isfinite(part)
    return None if finite.all() else divmod(int(finite.argmin()), part.shape[1])


def _no_features(file: Path) -> GraphFileError:
    return refusal(
        file, "has no feature column", "add columns of numbers, or one column 'features' of lists of numbers"
    )


def _not_number(file: Path, value: Any, name: str, row: int, also: str = "") -> GraphFileError:
    problem = f"must be a finite number (got {shown(value.as_py())}){also}"
    remedy = "correct the value, or remove the column" + (" if it is text" if also else "")
    return refusal(file, problem, remedy, column=name, row=row)
