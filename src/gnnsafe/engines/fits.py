"""Whether a graph in tables fits into memory, by what the files say of themselves."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from gnnsafe.engines.sources import available
from gnnsafe.errors import require

__all__ = ["check_fits", "needed"]

# Bytes at the peak, as `python -m benchmarks.fits` has measured them: no measured peak lies above their sum.
START = 705 * 10**6  # Python, torch and what they read
PER_NODE = 1780  # the id as a Python object, hidden layers and logits
PER_EDGE = 144  # ids as read and as numbers, and the matrices that are made of them
PER_FEATURE = 14  # as read, scaled, and in the products
SAMPLE = 2**20  # bytes of a CSV file by which its lines are counted


class Size(NamedTuple):
    """How many rows a table has, and how many values."""

    rows: int
    values: int


def needed(nodes: Path, edges: Path) -> int:
    """About how many bytes scoring the graph in memory takes at its peak, by the default detector."""
    size, links = _size(nodes), _size(edges)
    return START + links.rows * PER_EDGE + size.rows * PER_NODE + size.values * PER_FEATURE


def _size(file: Path) -> Size:
    if file.suffix.lower() == ".csv":
        return _csv_size(file)
    from pyarrow import parquet

    found = parquet.read_metadata(file)
    groups = (found.row_group(group) for group in range(found.num_row_groups))
    return Size(found.num_rows, sum(group.column(k).num_values for group in groups for k in range(found.num_columns)))


def _csv_size(file: Path) -> Size:
    """By the length of its first lines."""
    with file.open("rb") as stream:
        sample = stream.read(SAMPLE)
    rows = file.stat().st_size * max(1, sample.count(b"\n")) // max(1, len(sample))
    return Size(rows, rows * (1 + sample.partition(b"\n")[0].count(b",")))


def check_fits(graph: str, edges: str | None) -> None:
    """Raise an `InputError` where a graph in Parquet or CSV files would not fit; other files are read as they are."""
    pair = (Path(graph), Path(edges)) if edges else tuple(_table(Path(graph), name) for name in ("nodes", "edges"))
    if not all(file.suffix.lower() in (".parquet", ".csv") and file.is_file() for file in pair):
        return
    try:
        bytes_needed, free = needed(*pair), available()
    except (OSError, ValueError, ImportError):
        return  # the reader says what is wrong with it
    sizes = f"about {bytes_needed / 2**30:.1f} GB, of which {free / 2**30:.1f} GB are free"
    engine = "take --engine duckdb, which any graph in Parquet fits"
    require(bytes_needed <= free, "GRAPH", "fit into memory", sizes, engine)


def _table(folder: Path, name: str) -> Path:
    """Parquet goes before CSV, as in `read_graph`."""
    file = folder / f"{name}.parquet"
    return file if file.is_file() else file.with_suffix(".csv")
