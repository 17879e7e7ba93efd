"""How much memory `gnnsafe score` takes at its peak by nodes, edges and features: the constants of engines/fits.py.

`python -m benchmarks.fits` draws graphs of several sizes, scores each in memory by the default detector in a process of
its own, and fits peak = start + a nodes + b edges + c features (numbers in the table) to what the system says that the
process held, so that no measured peak is above it. It prints the constants and writes fits.md beside this file.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import nnls

ROOT = Path(__file__).parents[1]
PAGE = Path(__file__).with_name("fits.md")
NODES, DEGREES, WIDTHS = (10**5, 4 * 10**5), (2, 15), (8, 128)
NAMES = ("START", "PER_NODE", "PER_EDGE", "PER_FEATURE")


def draw(folder: Path, nodes: int, degree: int, width: int) -> None:
    """A random graph as two Parquet files, with text of ten letters as ids: numbers take less."""
    import pyarrow as pa
    from pyarrow import parquet

    rng = np.random.default_rng(0)
    ids = pa.array(np.char.mod("node-%08d", np.arange(nodes)))
    columns = {f"f{k}": rng.standard_normal(nodes, dtype=np.float32) for k in range(width)}
    parquet.write_table(pa.table({"id": ids, **columns}), folder / "nodes.parquet")
    source, target = (ids.take(pa.array(rng.integers(0, nodes, nodes * degree))) for _ in range(2))
    parquet.write_table(pa.table({"source": source, "target": target}), folder / "edges.parquet")


def detector(folder: Path, width: int) -> None:
    """The default one, fitted on a small graph."""
    import torch
    from torch_geometric.data import Data

    import gnnsafe
    from gnnsafe.models import GCN

    nodes, mask = 2000, torch.arange(2000) % 2 == 0
    graph = Data(
        x=torch.randn(nodes, width), edge_index=torch.randint(nodes, (2, 10 * nodes)), y=torch.arange(nodes) % 8
    )
    graph.train_mask, graph.val_mask = mask, ~mask
    graph.feature_names = [f"f{k}" for k in range(width)]
    gnnsafe.Detector(GCN(width, 64, 8)).fit(graph).calibrate(graph).save(folder)


# A process inherits its parent's peak: a small one stands between this one, which draws graphs, and the one measured.
BETWEEN = (
    "import resource, subprocess, sys; code = subprocess.call(sys.argv[1:], stdout=subprocess.DEVNULL); "
    "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss); sys.exit(code)"
)


def peak(command: list[str]) -> int:
    """Bytes that a process held at most."""
    done = subprocess.run(
        [sys.executable, "-c", BETWEEN, *command], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    return int(done.stdout) * 1024


def fitted(sizes: Any, peaks: Any) -> Any:
    """Constants >= 0 whose sums are nearest to the peaks in relation to them, then raised to lie above them all."""
    found, _ = nnls(sizes / peaks[:, None], np.ones(len(peaks)))
    return found * max(1.0, (peaks / (sizes @ found)).max())


def main() -> None:
    """Measure, fit, write the page."""
    sizes, peaks = [], []
    for width in WIDTHS:
        with tempfile.TemporaryDirectory() as place:
            saved = Path(place) / "detector"
            detector(saved, width)
            for nodes, degree in product(NODES, DEGREES):
                graph = Path(place) / f"{nodes}-{degree}"
                graph.mkdir()
                draw(graph, nodes, degree, width)
                base = [sys.executable, "-W", "ignore", "-m", "gnnsafe", "score", str(saved), str(graph)]
                peaks.append(peak([*base, "--out", f"{place}/{nodes}-{degree}.parquet"]))
                sizes.append([1, nodes, nodes * degree, nodes * (width + 1)])
                print(sizes[-1][1:], f"{peaks[-1] / 1e9:.2f} GB", flush=True)
    matrix, found = np.array(sizes, float), np.array(peaks, float)
    constants = fitted(matrix, found)
    lines = ["| nodes | edges | numbers in the table | peak | by the constants |", "|---|---|---|---|---|"]
    for size, measured, told in zip(sizes, found, matrix @ constants, strict=True):
        cells = [f"{number:,}" for number in size[1:]] + [f"{value / 1e9:.2f} GB" for value in (measured, told)]
        lines.append(f"| {' | '.join(cells)} |")
    told = ", ".join(f"{name} = {value:,.0f}" for name, value in zip(NAMES, constants, strict=True))
    head = "# Memory of `gnnsafe score` by the size of a graph\n\n`python -m benchmarks.fits`: the default detector "
    head += "(TwoScale, a GCN with 64 hidden units), text as ids; peak of the process as the system says.\n"
    PAGE.write_text(f"{head}\nBytes: {told}.\n\n" + "\n".join(lines) + "\n", encoding="utf-8")
    print(told)


if __name__ == "__main__":
    main()
