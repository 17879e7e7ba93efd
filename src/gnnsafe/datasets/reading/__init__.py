"""A user's own graph, from the files they have: tables, arrays, or what PyG saved."""

from __future__ import annotations

import logging
import os
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gnnsafe.datasets.reading.arrays import graph_from_arrays
from gnnsafe.datasets.reading.npz import npz_arrays
from gnnsafe.datasets.reading.refusal import readable, refusal
from gnnsafe.datasets.reading.saved import saved_arrays
from gnnsafe.errors import MissingExtraError, require_flag
from gnnsafe.files import given_path
from gnnsafe.graph import Data

__all__ = ["read_graph"]

log = logging.getLogger(__name__)

TABLES = (".parquet", ".csv")
ARRAYS = {".npz": npz_arrays, ".pt": saved_arrays}


def read_graph(
    path: str | os.PathLike[str],
    *,
    edges: str | os.PathLike[str] | None = None,
    undirected: bool = False,
    drop_unknown_edges: bool = False,
) -> Data:
    """A graph from a folder with `nodes` and `edges` tables, from a pair of tables, from `.npz`, or from `.pt`.

    Tables are Parquet or CSV (UTF-8, with a header): `read_graph("folder")`, where Parquet goes before CSV, or
    `read_graph("people.csv", edges="calls.parquet")`. Columns of the node table:

    - `id` (or `node_id`): numbers, text or dates, each once; in CSV whole numbers if all are, else text;
    - features: either one column `features` (or `x`) of lists of numbers, or all other columns of numbers, in file
      order. Columns without a single number are left out and named in `ignored_columns`; 0x1F is no number;
    - `label` (or `y`), optional: whole numbers >= 0, or names, numbered in sorted order; empty or −1 for none;
    - `split`, optional: train, val, test, or empty;
    - `timestamp`, optional: whole numbers (int64) or others (float64) as they are, or dates and times, as text too,
      which become seconds since 1970 in UTC: int64, or float64 where some have fractions, down to microseconds.

    Capitals in these names do not matter.

    The edge table has `source` and `target` (or `src` and `dst`), ids of nodes; its other columns are not read,
    of which a warning reminds where they are weights.
    Numbers meet the id of the same value. Where one side is text, both are compared as text, letter by letter: 01 and
    0x1 are not the node 1, but nodes of their own, or none.

    `.npz` files hold `x` and `edge_index`, or the gnn-benchmark's `adj_*`, `attr_*` and `labels`; `.pt` files a PyG
    `Data` or a dict of tensors, where `adj_t` may stand for `edge_index`. Both may hold `y`, `train_mask`, `val_mask`,
    `test_mask` (those left out hold no node), `timestamp`, `node_id` and `class_names`; the rest is not read, and no
    code in them is run. A file may take 512 MiB of memory, or 400 times its size where that is more.

    Args:
        path: The folder, the node table, or the file with all of the graph.
        edges: The edge table, where `path` is a node table.
        undirected: Add the reverse of every edge, and remove repeated ones.
        drop_unknown_edges: Leave out edges of unknown nodes, and count them in `dropped_edges`.

    Returns:
        A graph with `x` (float32, dense), `edge_index` (int64), `node_id` (a list in node order; 0, 1, … if the file
        has none) and what the file gave of `y` (int64, −1 for no label), `class_names`, the masks and `timestamp`;
        where features are columns of their own, `feature_names`.

    Raises:
        GraphFileError: A file breaks a rule: one line that says file, column and row (counted from 1, without the
            header).
        MissingExtraError: A table is to be read, and pyarrow is not installed.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     nodes = Path(folder, "nodes.csv").write_text("\\n".join(["id,height,label", "ann,1.7,a", "bob,1.8,b"]))
    ...     edges = Path(folder, "edges.csv").write_text("\\n".join(["source,target", "ann,bob"]))
    ...     data = read_graph(folder)
    >>> data.x.shape, data.edge_index.tolist(), data.y.tolist(), data.node_id
    (torch.Size([2, 1]), [[0], [1]], [0, 1], ['ann', 'bob'])
    """
    from torch_geometric.data import Data  # three seconds to import: only where a graph is read
    from torch_geometric.utils import to_undirected

    place, ends = given_path("path", path), None if edges is None else given_path("edges", edges)
    require_flag("undirected", undirected)
    require_flag("drop_unknown_edges", drop_unknown_edges)
    with readable(place, "a graph", OSError, RuntimeError):  # folders that may not be read, links in a circle
        parts = _parts(place, ends, drop_unknown_edges)
    data = Data(**{name: _tensor(part) for name, part in parts.items() if part is not None})
    if undirected:
        data.edge_index = to_undirected(data.edge_index, num_nodes=data.num_nodes)
    log.info("read %s: %d nodes, %d edges, %d features", path, data.num_nodes, data.num_edges, data.num_features)
    return data


def _tensor(part: Any) -> Any:
    """An array as a tensor that may be written to, which Arrow's own memory may not; all else as it is."""
    return torch.from_numpy(np.require(part, requirements=["C", "W"])) if isinstance(part, np.ndarray) else part


def _parts(path: Path, edges: Path | None, drop_unknown_edges: bool) -> dict[str, Any]:
    """The graph's parts, read by what the file's name ends in."""
    if not path.suffix and not path.exists():
        raise refusal(path, "must be a file or folder that is there (found none)", f"check the path, from {Path.cwd()}")
    nodes = _table_in(path, "nodes") if path.is_dir() else path
    ending = _ending(nodes, (*TABLES, *ARRAYS))
    if ending in ARRAYS:
        if edges is not None:
            raise refusal(nodes, f"must hold the edges too (got edges={str(edges)!r})", "leave edges= out")
        return graph_from_arrays(nodes, ARRAYS[ending](nodes), drop_unknown_edges=drop_unknown_edges)
    if edges is None and not path.is_dir():
        raise refusal(
            nodes, "is a table of nodes, and no table of edges was given", "pass edges= (--edges), or their folder"
        )
    edges = edges or _table_in(path, "edges")
    _ending(edges, TABLES)
    try:
        from gnnsafe.datasets.reading.tables import graph_from_tables
    except ImportError as error:
        raise MissingExtraError(f"reading {nodes} needs {error.name}: pip install 'gnnsafe[tables]'") from error
    return graph_from_tables(nodes, edges, drop_unknown_edges=drop_unknown_edges)


def _table_in(folder: Path, name: str) -> Path:
    looked_for = [folder / f"{name}{ending}" for ending in TABLES]
    for file in looked_for:
        if file.is_file():
            return file
    parts = (folder / name).is_dir()
    remedy = f"the parts in {name}/ are read by gnnsafe score --engine duckdb" if parts else "write the file there"
    raise refusal(folder, f"must hold {' or '.join(file.name for file in looked_for)} (found neither)", remedy)


def _ending(file: Path, known: tuple[str, ...]) -> str:
    """What the file's name ends in, checked to be there and of a kind that is read."""
    ending = file.suffix.lower()
    if ending not in known:
        near = get_close_matches(ending, known, n=1)
        hint = f"did you mean '{near[0]}'?" if near else "convert it to one of these"
        raise refusal(file, f"must end in {', '.join(known)} (got {file.suffix!r})", hint)
    if not file.is_file():
        raise refusal(file, "must be a file that is there (found none)", f"check the path, from {Path.cwd()}")
    return ending
