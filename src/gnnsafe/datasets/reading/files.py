"""Parquet and CSV files as Arrow tables: which columns they have, and some of these read."""

from __future__ import annotations

import csv
import mmap
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import csv as arrow_csv
from pyarrow import parquet

from gnnsafe.datasets.reading.refusal import DAMAGED, listed, readable, refusal
from gnnsafe.errors import GraphFileError

__all__ = ["Rows", "column_names", "find_column", "is_csv", "read_rows", "read_table"]

Table = Any  # Arrow's classes, whose package ships no types

ERRORS = (OSError, UnicodeDecodeError, pa.ArrowException)
BLOCK = 2**24  # bytes: a row of a CSV file may be as long
BUFFER = 2**16  # bytes of a Parquet column that are held before they are decoded
VALUES = 2**19  # of a batch
HEXADECIMAL = re.compile(rb"""[,"'\s]0[xX]""")  # where Arrow may take a number for another


def is_csv(file: Path) -> bool:
    """Whether the file is read as CSV, where all is text until it is understood, or as Parquet."""
    return file.suffix.lower() == ".csv"


def column_names(file: Path) -> list[str]:
    """The file's columns, each name once."""
    with readable(file, "CSV" if is_csv(file) else "Parquet", *ERRORS):
        names = _header(file) if is_csv(file) else parquet.read_schema(file).names
    for name, times in Counter(names).items():
        if times > 1:
            raise refusal(file, "stands more than once in the header", "rename or remove one", column=name)
    return list(names)


def find_column(file: Path, names: Sequence[str], *synonyms: str, required: bool = False) -> str | None:
    """The one of `names` that is among `synonyms`, capitals and spaces around it set aside.

    What is meant as a label must not pass for a feature because it is called "Label".
    """
    found = [name for name in names if name.strip().lower() in synonyms]
    if len(found) > 1:
        raise refusal(file, f"columns {' and '.join(map(repr, found))} mean the same", "rename or remove one")
    if required and not found:
        wanted = " or ".join(map(repr, synonyms))
        raise refusal(file, f"has no column {wanted} (found: {listed(names)})", "add it, or rename the one that it is")
    return found[0] if found else None


def read_table(file: Path, columns: Sequence[str]) -> Table:
    """These columns, and at least one row. Those of a CSV file are text."""
    if is_csv(file):
        table = _csv_table(file, columns, text=columns)
    else:
        with readable(file, "Parquet", *ERRORS):
            table = parquet.read_table(file, columns=list(columns), partitioning=None, page_checksum_verification=True)
            table.validate(full=True)  # text is UTF-8, lists lie within their values
    _check_rows(file, table.num_rows)
    return table


@dataclass(frozen=True)
class Rows:
    """Columns of a table that are read a batch of rows at a time: `batches(names)`, as often as is asked."""

    schema: Any
    count: int
    batches: Callable[[Sequence[str]], Iterator[Any]]


def read_rows(file: Path, columns: Sequence[str]) -> Rows:
    """These columns, in batches; those of a CSV file are numbers, dates or text as they look."""
    if is_csv(file):
        table = _csv_table(file, columns)
        _check_rows(file, table.num_rows)
        return Rows(table.schema, table.num_rows, lambda names: iter(table.select(list(names)).to_batches()))
    with readable(file, "Parquet", *ERRORS), parquet.ParquetFile(file) as opened:
        count = opened.metadata.num_rows
        whole = opened.schema_arrow  # made anew at each asking
        schema = pa.schema([whole.field(name) for name in columns])
    _check_rows(file, count)
    return Rows(schema, count, partial(_parquet_batches, file, count))


def _parquet_batches(file: Path, count: int, names: Sequence[str]) -> Iterator[Any]:
    """Batches of half a million values, or of a hundredth of the rows where that is more."""
    rows = max(VALUES // max(len(names), 128), -(-count // 100))
    with readable(file, "Parquet", *ERRORS):
        options = {"buffer_size": BUFFER, "pre_buffer": False, "page_checksum_verification": True}
        with parquet.ParquetFile(file, **options) as opened:
            for batch in opened.iter_batches(batch_size=rows, columns=list(names)):
                batch.validate(full=True)
                yield batch


def _check_rows(file: Path, count: int) -> None:
    if count == 0:
        raise refusal(file, "must have at least one row (got none)", "write the rows, or check what wrote the file")


def _header(file: Path) -> list[str]:
    try:
        with file.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as lines:
            names = next(csv.reader(lines), [])
    except csv.Error as error:
        raise refusal(file, f"cannot be read as CSV ({error})", DAMAGED) from error
    if not names:
        raise refusal(file, "must start with a line of column names (got an empty line or file)", "write the header")
    if any("\udc80" <= letter <= "\udcff" for letter in "".join(names)):  # bytes that could not be decoded
        raise _not_utf8(file)
    return names


def _csv_table(file: Path, columns: Sequence[str], text: Collection[str] = ()) -> Table:
    """These columns; what is not in `text` is taken for what it looks like, but 0x1F for text."""
    convert = arrow_csv.ConvertOptions(
        include_columns=list(columns),
        column_types=dict.fromkeys(text, pa.string()),
        null_values=[""],
        strings_can_be_null=True,
    )
    parse = arrow_csv.ParseOptions(newlines_in_values=True)
    try:
        read = arrow_csv.ReadOptions(block_size=BLOCK)
        table = arrow_csv.read_csv(file, read_options=read, parse_options=parse, convert_options=convert)
    except (OSError, pa.ArrowException) as error:
        raise _not_csv(file, parse, convert) from error
    if any(pa.types.is_binary(kind) for kind in table.schema.types):  # what Arrow takes text for that is not UTF-8
        raise _not_utf8(file)
    whole = [field.name for field in table.schema if pa.types.is_integer(field.type)]
    return _csv_table(file, columns, whole) if whole and not text and _has_hexadecimal(file) else table


def _has_hexadecimal(file: Path) -> bool:
    with file.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return HEXADECIMAL.search(content) is not None


def _not_csv(file: Path, parse: Any, convert: Any) -> GraphFileError:
    """Read again what could not be read, row after row: only so does Arrow count them."""
    reason = ""
    try:
        read = arrow_csv.ReadOptions(block_size=BLOCK, use_threads=False)
        arrow_csv.read_csv(file, read_options=read, parse_options=parse, convert_options=convert)
    except (OSError, pa.ArrowException) as error:
        reason = str(error)
    if "UTF8" in reason:
        return _not_utf8(file)
    if found := re.search(r"Row #(\d+): Expected (\d+) columns, got (\d+)", reason):
        row, expected, got = map(int, found.groups())
        remedy = "complete the row (the file may be cut short), or quote fields that hold a comma"
        return refusal(file, f"must have {expected} fields, as the header has (got {got})", remedy, row=row - 1)
    return refusal(file, f"cannot be read as CSV ({reason.partition(chr(10))[0]})", DAMAGED)


def _not_utf8(file: Path) -> GraphFileError:
    """Find the first byte that is not UTF-8."""
    raw = file.read_bytes()
    try:
        raw.decode()
    except UnicodeDecodeError as error:
        lines = re.split(r"\r\n|\r|\n", raw[: error.start].decode())
        before = next(csv.reader(lines[-1:]), [])
        row = len(lines) - 1
        names = _header(file) if row else []
        place = max(len(before) - 1, 0)
        return refusal(
            file,
            f"must be UTF-8 (got byte 0x{raw[error.start]:02x})",
            "save the file with the encoding UTF-8",
            column=names[place] if place < len(names) else None,
            row=row or None,
        )
    return refusal(file, "must hold text and numbers (got binary data)", DAMAGED)
