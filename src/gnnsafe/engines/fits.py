"""Whether a graph in Parquet files fits into memory, by what the files say of themselves."""

from __future__ import annotations

from pathlib import Path

from gnnsafe.engines.sources import available
from gnnsafe.errors import require

__all__ = ["check_fits", "needed"]

PER_EDGE = 100  # bytes at the peak: ids as read and as numbers, and the matrices that are made of them
PER_NODE = 1000  # the id as a Python object, hidden layers and logits
PER_FEATURE = 12  # as read, scaled, and in the product


def needed(nodes: Path, edges: Path) -> int:
    """About how many bytes scoring the graph in memory takes at its peak; benchmarks/scale.md has measured ones."""
    from pyarrow import parquet

    node_file, edge_file = parquet.read_metadata(nodes), parquet.read_metadata(edges)
    features = sum(
        node_file.row_group(group).column(column).num_values
        for group in range(node_file.num_row_groups)
        for column in range(node_file.num_columns)
    )
    total: int = edge_file.num_rows * PER_EDGE + node_file.num_rows * PER_NODE + features * PER_FEATURE
    return total


def check_fits(graph: str, edges: str | None) -> None:
    """Raise an `InputError` where a graph in Parquet files would not fit; other files are read as they are."""
    pair = (Path(graph), Path(edges)) if edges else (Path(graph) / "nodes.parquet", Path(graph) / "edges.parquet")
    if not all(file.suffix == ".parquet" and file.is_file() for file in pair):
        return
    try:
        bytes_needed, free = needed(*pair), available()
    except (OSError, ValueError, ImportError):
        return  # whoever reads the file says what is wrong with it
    sizes = f"about {bytes_needed / 2**30:.1f} GB, of which {free / 2**30:.1f} GB are free"
    require(bytes_needed <= free, "GRAPH", "fit into memory", sizes, "take --engine duckdb, which any graph fits")
