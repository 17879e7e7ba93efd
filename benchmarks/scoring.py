"""Time and memory of `gnnsafe score` from Parquet to Parquet: python -m benchmarks.scoring --nodes 1000000.

A graph with planted classes and dense features is generated and written; a detector with a GCN of two layers is trained
briefly on a small one of the same kind; then the command line scores the large one in a process of its own, whose wall
time, processor time and peak memory are measured: all of it, from the start of Python to the table in its place.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from benchmarks.fits import peak
from gnnsafe import read_graph
from gnnsafe.fitting import fit_detector

SMALL = 5000  # nodes of the graph that is trained on
HOMOPHILY = 0.8
COMMAND = [sys.executable, "-c", "from gnnsafe.cli import main; raise SystemExit(main())", "score"]


def main() -> None:
    """Generate, train, score, and print what it took."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=1_000_000)
    parser.add_argument("--degree", type=int, default=15, help="edges per node")
    parser.add_argument("--features", type=int, default=128)
    parser.add_argument("--classes", type=int, default=10)
    arguments = parser.parse_args()
    shape = {"degree": arguments.degree, "features": arguments.features, "classes": arguments.classes}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_graph(folder / "small", SMALL, seed=0, labelled=True, **shape)
        write_graph(folder / "large", arguments.nodes, seed=1, labelled=False, **shape)
        fit_detector(read_graph(folder / "small"), method="gnnsafe", epochs=20).detector.save(folder / "detector")
        start = time.perf_counter()
        out = folder / "scores.parquet"
        most = peak([*COMMAND, str(folder / "detector"), str(folder / "large"), "--out", str(out)])
        seconds = time.perf_counter() - start
        assert parquet.read_metadata(out).num_rows == arguments.nodes
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(
        f"{arguments.nodes:,} nodes, {arguments.nodes * arguments.degree:,} edges, {arguments.features} features: "
        f"{seconds:.1f} s ({used.ru_utime + used.ru_stime:.1f} s of processor time), peak "
        f"{most / 1e9:.2f} GB; {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
    )


def write_graph(
    folder: Path, nodes: int, *, seed: int, degree: int, features: int, classes: int, labelled: bool
) -> None:
    """Class means that all graphs share, noise around them, and edges most of which stay within a class."""
    folder.mkdir()
    means = np.random.default_rng(99).normal(size=(classes, features)).astype(np.float32)
    rng = np.random.default_rng(seed)
    y = np.sort(rng.integers(classes, size=nodes))
    x = rng.standard_normal((nodes, features), dtype=np.float32) * 2 + means[y]
    columns = {"id": np.arange(nodes), "features": pa.FixedSizeListArray.from_arrays(x.reshape(-1), features)}
    parquet.write_table(pa.table(columns | ({"label": y} if labelled else {})), folder / "nodes.parquet")
    starts = np.searchsorted(y, np.arange(classes + 1))
    source = rng.integers(nodes, size=nodes * degree)
    within = rng.random(len(source)) < HOMOPHILY
    low, high = np.where(within, starts[y[source]], 0), np.where(within, starts[y[source] + 1], nodes)
    target = low + (rng.random(len(source)) * (high - low)).astype(np.int64)
    parquet.write_table(pa.table({"source": source, "target": target}), folder / "edges.parquet")


if __name__ == "__main__":
    main()
