"""Matrix columns as files: a row per node in the order of their numbers, read and written a block of rows at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pyarrow import parquet
from torch import Tensor

from gnnsafe.engines.engine import Column

__all__ = ["ColumnFile", "Writer", "arrow_rows", "spans"]


@dataclass(frozen=True)
class ColumnFile:
    """A matrix [nodes, width] in a file, without a header."""

    path: Path
    column: Column

    @property
    def row_bytes(self) -> int:
        """The size of a row."""
        return self.column.width * np.dtype(self.column.dtype).itemsize

    def rows(self, start: int, stop: int) -> Tensor:
        """Some rows, read: none of the file stays mapped, so that memory is what is asked for."""
        count = (stop - start) * self.column.width
        values = np.fromfile(self.path, self.column.dtype, count, offset=start * self.row_bytes)
        return torch.from_numpy(values.reshape(-1, self.column.width))


class Writer:
    """Columns that are written in order; on leaving, `files` has them."""

    def __init__(self, folder: Path, stem: str, columns: Mapping[str, Column]) -> None:
        self.files = {name: ColumnFile(folder / f"{stem}-{name}", column) for name, column in columns.items()}
        self._open: dict[str, Any] = {}

    def __enter__(self) -> Writer:
        self._open = {name: file.path.open("wb") for name, file in self.files.items()}
        return self

    def __exit__(self, *error: object) -> None:
        for stream in self._open.values():
            stream.close()

    def add(self, block: Mapping[str, Tensor]) -> None:
        """The next rows of every column."""
        for name, file in self.files.items():
            rows = block[name].detach().to(getattr(torch, file.column.dtype)).contiguous()
            assert rows.shape[1] == file.column.width
            self._open[name].write(rows.numpy().data)


@contextmanager
def arrow_rows(path: Path) -> Iterator[Callable[[Any], None]]:
    """What takes batches of Arrow and writes them to a Parquet file; with no batch there is no file.

    It is closed whatever happens: on a full disk pyarrow would try again when Python ends, and complain once more.
    """
    writers: list[Any] = []

    def add(batch: Any) -> None:
        if not writers:
            writers.append(parquet.ParquetWriter(path, batch.schema))
        writers[0].write_batch(batch)

    try:
        yield add
    finally:
        for writer in writers:
            try:
                writer.close()
            finally:
                writer.is_open = False


def spans(count: int, size: int) -> Iterator[tuple[int, int]]:
    """0..count in parts of that size: where each starts and stops.

    >>> list(spans(5, 2))
    [(0, 2), (2, 4), (4, 5)]
    """
    return ((start, min(start + size, count)) for start in range(0, count, size))
