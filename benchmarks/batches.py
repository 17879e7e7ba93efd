"""Scores in batches of a graph of 1e6 nodes: memory, time, and that they are the same; `python -m benchmarks.batches`.

Two-layer models of PyG; each measurement in a process of its own. Writes batches.md beside this file.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from time import perf_counter
from typing import Any

warnings.simplefilter("ignore")  # PyG's own, while it is imported

import torch  # noqa: E402
from torch_geometric.data import Data  # noqa: E402
from torch_geometric.nn.models import GCN, GraphSAGE  # noqa: E402

import gnnsafe  # noqa: E402
from benchmarks.memory import used  # noqa: E402
from gnnsafe.edges import Edges  # noqa: E402
from gnnsafe.regions import receptive_field  # noqa: E402

OUT = Path(__file__).with_name("batches.md")
MODELS = {"GCN": GCN, "GraphSAGE": GraphSAGE}
EMBEDDINGS = {"gnnsafe": None, "two-scale": "convs.0"}  # which each method reads
NODES, DEGREE, FEATURES, HIDDEN, CLASSES, FITTED, APART = 10**6, 15, 64, 64, 10, 10**4, 500
SIZES = (None, 50_000, 10_000)
THREADS = 2

INTRODUCTION = (
    f"A graph of {NODES:,} nodes with {DEGREE} edges each and {FEATURES} features, models of PyG with two layers of",
    f"{HIDDEN}, {THREADS} threads. Edges join nodes whose numbers are at most {APART} apart, as in graphs that are",
    "numbered by community or time. Memory is the peak beyond the graph itself; *largest part* is the share of the",
    "nodes that the model saw at once. The method reads logits, and TwoScale embeddings, of all nodes.",
    "",
    "Exact scores need the whole receptive field of a batch. Where edges lead anywhere at random it is nearly all of",
    "the graph, and batches save nothing: of a random graph with as many nodes and edges the model would see",
)
HEAD = "| model | method | batch size | largest part | peak memory | time | largest difference |"


def graph(nodes: int, *, local: bool = True) -> Data:
    """Edges to nodes nearby, or to any; features that tell the classes apart a little."""
    draw = torch.Generator().manual_seed(0)
    target = torch.arange(nodes).repeat_interleave(DEGREE)
    offset = torch.randint(-APART, APART + 1, (len(target),), generator=draw)
    source = (target + offset) % nodes if local else torch.randint(nodes, (len(target),), generator=draw)
    y = torch.randint(CLASSES, (nodes,), generator=draw)
    x = torch.randn(nodes, FEATURES, generator=draw)
    x[torch.arange(nodes), y] += 2
    train = torch.arange(nodes) % 2 == 0
    return Data(x=x, edge_index=torch.stack([source, target]), y=y, train_mask=train, val_mask=~train)


def random_share(batch_size: int, nodes: int) -> float:
    """The share of the nodes that a model with two layers sees for one batch, where edges lead anywhere."""
    edges = Edges(graph(nodes, local=False).edge_index, nodes, reused=False)
    seen = receptive_field(edges, torch.arange(nodes) < batch_size, 3)  # the third hop counts in degrees
    return float(seen.double().mean())


def measured(name: str, method: str, batch_size: int | None, path: Path, *, nodes: int) -> dict[str, float]:
    """Peak memory beyond the graph and seconds of one call; the scores go to a file."""
    torch.set_num_threads(THREADS)
    torch.manual_seed(0)
    model = MODELS[name](FEATURES, HIDDEN, num_layers=2, out_channels=CLASSES)
    detector = gnnsafe.Detector(model, method, embedding=EMBEDDINGS[method]).fit(graph(FITTED))
    data, seen = graph(nodes), []
    del data.y, data.train_mask, data.val_mask
    model.register_forward_pre_hook(lambda _, inputs: seen.append(len(inputs[0])))
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak so far is forgotten
    before, start = used(), perf_counter()
    options: dict[str, Any] = {} if batch_size is None else {"batch_size": batch_size, "hops": 2}
    scores = detector.score(data, **options)
    seconds = perf_counter() - start
    torch.save(scores, path)
    return {"gigabytes": (used("VmHWM") - before) / 1e9, "seconds": seconds, "share": max(seen) / nodes}


def child(name: str, method: str, batch_size: int | None, path: Path, *, nodes: int) -> dict[str, float]:
    """The same in a process of its own."""
    given = ["--child", name, method, str(batch_size or 0), str(path), "--nodes", str(nodes)]
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.batches", *given]
    output = subprocess.run(command, check=True, capture_output=True, text=True, cwd=Path(__file__).parents[1])
    result: dict[str, float] = json.loads(output.stdout.splitlines()[-1])
    return result


def lines(name: str, method: str, *, nodes: int) -> list[str]:
    """The rows of the table for one model and method, each compared with the scores of one forward pass."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for size in SIZES:
            path = Path(folder) / f"{size}.pt"
            found = child(name, method, size, path, nodes=nodes)
            scores, whole = torch.load(path), torch.load(Path(folder) / "None.pt")
            torch.testing.assert_close(scores, whole, rtol=1e-4, atol=1e-4)
            gap = float((scores - whole).abs().max())
            batch = "whole graph" if size is None else f"{size:,}"
            sizes_found = f"{found['share']:.1%} | {found['gigabytes']:.2f} GB | {found['seconds']:.1f} s"
            rows.append(f"| {name} | {method} | {batch} | {sizes_found} | {gap:.1e} |")
            print(rows[-1], flush=True)
    return rows


def main() -> None:
    """Run all, or one measurement in this process."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--child", nargs=4)
    parser.add_argument("--nodes", type=int, default=NODES)
    arguments = parser.parse_args()
    if arguments.child is not None:
        name, method, size, path = arguments.child
        found = measured(name, method, int(size) or None, Path(path), nodes=arguments.nodes)
        print(json.dumps(found))
        return
    table = [row for method in EMBEDDINGS for name in MODELS for row in lines(name, method, nodes=arguments.nodes)]
    seen = " and ".join(f"{random_share(size, arguments.nodes):.1%} ({size:,})" for size in SIZES if size is not None)
    text = ["# Scores in batches", "", *INTRODUCTION, f"{seen} at once.", "", HEAD, "|---" * 7 + "|", *table, ""]
    OUT.write_text("\n".join(text), encoding="utf-8")


if __name__ == "__main__":
    main()
