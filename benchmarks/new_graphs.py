"""False alarms on graphs that a detector meets for the first time: python -m benchmarks.new_graphs --data FOLDER.

A detector is fitted and calibrated on one graph, and decides about another in which nothing has happened, or hardly
anything: how many of its ID nodes are flagged at 5 % asked, in % (mean over seeds, and the worst of them).

- *drawn*: graphs of 2,000 nodes, five classes, Gaussian features around class means and edges most of which stay within
  a class; the other graph is another draw. With `absurd` some rows of its features are a million times too large.
- *one way*: the same, but edges lead to half of the nodes alone, and one way; asked about the nodes with or without
  in-neighbours.
- *small*: graphs of few nodes, most of one class, along a ring and across it; fitted on 2,000 nodes in many of them,
  and met with further ones, each scored by itself.
- *half*: a public data set cut in two at random, each half with the edges within it; fitted on one, met with the other.
"""

from __future__ import annotations

import argparse
import statistics
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

warnings.simplefilter("ignore")  # PyG's own, while it is imported

import torch  # noqa: E402
from torch import Tensor  # noqa: E402
from torch_geometric.data import Batch, Data  # noqa: E402
from torch_geometric.utils import subgraph  # noqa: E402

from benchmarks import cases  # noqa: E402
from gnnsafe import CrossEntropy, Detector, load_benchmark, train  # noqa: E402
from gnnsafe.files import replacing  # noqa: E402
from gnnsafe.models import MODELS  # noqa: E402

MEASURED = ("two-scale", "gnnsafe", "energy", "knn")
NODES, CLASSES, FEATURES = 2000, 5, 32
ASKED = 0.05
Flagged = dict[str, float]


def main() -> None:
    """Run it, print the table and write it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.new_graphs", description=__doc__)
    parser.add_argument("--data", metavar="FOLDER", default=cases.ROOT, help="the data root")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/new_graphs.md"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    lines = [
        f"Made by `python -m benchmarks.new_graphs --seeds {arguments.seeds}`: of ID nodes of a graph that is met for",
        "the first time, in %, flagged at 5 % asked, mean over seeds and, after `<`, the worst; what the lines are, ",
        "the script says.",
        "",
        f"| graph | {' | '.join(MEASURED)} |",
        f"|---|{'--:|' * len(MEASURED)}",
    ]
    for name, measure in measurements(arguments.data):
        found = [measure(seed) for seed in range(arguments.seeds)]
        cells = [[one[method] for one in found] for method in MEASURED]
        lines.append(f"| {name} | " + " | ".join(f"{statistics.mean(c):.1f} <{max(c):.1f}" for c in cells) + " |")
        print(lines[-1], flush=True)
        with replacing(arguments.out) as part:
            part.write_text("\n".join(lines) + "\n", encoding="utf-8")


def measurements(root: str | None) -> Iterator[tuple[str, Callable[[int], Flagged]]]:
    """What is measured, by seed."""
    for degree in (6, 40, 100, 200):
        yield f"drawn, {degree} edges a node, gcn", lambda seed, degree=degree: again(seed, degree)
    yield "drawn, 100 edges a node, graphsage", lambda seed: again(seed, 100, backbone="graphsage")
    for absurd in (1, 20):
        for backbone in ("gcn", "graphsage"):
            name = f"drawn, 6 edges a node, {absurd} absurd, {backbone}"
            yield name, lambda seed, absurd=absurd, backbone=backbone: again(seed, 6, absurd=absurd, backbone=backbone)
    for linked in (True, False):
        name = f"one way, 6 edges a node, {'with' if linked else 'without'} in-neighbours, graphsage"
        yield name, lambda seed, linked=linked: directed(seed, linked=linked)
    for size in (5, 20, 100):
        yield f"small, {size} nodes, gcn", lambda seed, size=size: one_by_one(seed, size)
    for dataset in ("cora", "pubmed", "amazon-photo", "coauthor-cs"):
        for backbone in ("gcn", "gin"):
            name = f"half, {dataset}, {backbone}"
            yield name, lambda seed, dataset=dataset, backbone=backbone: halves(dataset, root, seed, backbone)


MEANS = torch.randn(CLASSES, FEATURES, generator=torch.Generator().manual_seed(99))


def drawn(seed: int, degree: int) -> Data:
    """A graph of that seed, with the class means of all."""
    draw = torch.Generator().manual_seed(seed)
    y = torch.randint(CLASSES, (NODES,), generator=draw).sort().values
    source = torch.randint(NODES, (degree * NODES // 2,), generator=draw)
    starts = torch.searchsorted(y, torch.arange(CLASSES + 1))
    within = torch.rand(len(source), generator=draw) < 0.8
    low, high = (torch.where(within, starts[y[source] + end], end * NODES) for end in (0, 1))
    target = low + (torch.rand(len(source), generator=draw) * (high - low)).long()
    return split(graph_of(y, torch.stack([source, target]), draw), seed)


def graph_of(y: Tensor, edges: Tensor, draw: torch.Generator) -> Data:
    """Features around the class means, and the edges both ways."""
    x = MEANS[y] + torch.randn(len(y), FEATURES, generator=draw)
    return Data(x=x, y=y, edge_index=torch.cat([edges, edges.flip(0)], dim=1))


def ring(size: int, draw: torch.Generator) -> Data:
    """A small graph."""
    most, others = torch.randint(CLASSES, (2, size), generator=draw)
    y = torch.where(torch.rand(size, generator=draw) < 0.85, most[0], others)
    around = torch.stack([torch.arange(size), torch.arange(size).roll(1)])
    across = torch.randint(size, (2, size), generator=draw)
    return graph_of(y, torch.cat([around, across[:, across[0] != across[1]]], dim=1), draw)


def split(data: Data, seed: int) -> Data:
    """A tenth of the nodes to train on, 300 others to validate, a third of all at the most."""
    order = torch.randperm(data.num_nodes, generator=torch.Generator().manual_seed(seed))
    sizes = max(1, data.num_nodes // 10), min(300, data.num_nodes // 3)
    for name, nodes in (("train_mask", order[: sizes[0]]), ("val_mask", order[sizes[0] : sum(sizes)])):
        data[name] = torch.zeros(data.num_nodes, dtype=torch.bool)
        data[name][nodes] = True
    return data


def again(seed: int, degree: int, *, absurd: int = 0, backbone: str = "gcn") -> Flagged:
    """Fitted on one draw, met with another."""
    other, usual = drawn(1000 + seed, degree), torch.arange(NODES) >= absurd
    other.x[~usual] *= 1e6
    return flagged(drawn(seed, degree), [(other, usual)], backbone, seed)


def directed(seed: int, *, linked: bool) -> Flagged:
    """Fitted on one draw whose edges lead to half of the nodes, met with another."""
    known, other = (one_way(drawn(number, 12), number) for number in (seed, 1000 + seed))
    hears = torch.zeros(NODES, dtype=torch.bool).index_fill(0, other.edge_index[1], True)
    return flagged(known, [(other, hears == linked)], "graphsage", seed)


def one_way(data: Data, seed: int) -> Data:
    """Of each pair of edges the one that is drawn first, where it leads to half of the nodes."""
    some = torch.rand(NODES, generator=torch.Generator().manual_seed(seed)) < 0.5
    edges = data.edge_index[:, : data.edge_index.shape[1] // 2]
    data.edge_index = edges[:, some[edges[1]]]
    return data


def one_by_one(seed: int, size: int) -> Flagged:
    """Fitted on many small graphs, met with others of 1,000 nodes in all."""
    draw = torch.Generator().manual_seed(seed)
    known = Batch.from_data_list([ring(size, draw) for _ in range(NODES // size)])
    others = [ring(size, draw) for _ in range(1000 // size)]
    one = split(Data(x=known.x, y=known.y, edge_index=known.edge_index), seed)
    return flagged(one, [(other, torch.ones(size, dtype=torch.bool)) for other in others], "gcn", seed)


def halves(dataset: str, root: str | None, seed: int, backbone: str) -> Flagged:
    """Fitted on one half of a data set, met with the other."""
    graph = load_benchmark(dataset, shift="feature", root=root).id
    first = torch.rand(graph.num_nodes, generator=torch.Generator().manual_seed(seed)) < 0.5
    one, other = (half(graph, nodes) for nodes in (first, ~first))
    everyone = torch.ones(other.num_nodes, dtype=torch.bool)
    return flagged(split(one, seed), [(other, everyone)], backbone, seed)


def half(graph: Data, nodes: Tensor) -> Data:
    """These nodes, and the edges among them."""
    x = graph.x.to_dense() if graph.x.layout != torch.strided else graph.x
    edges = subgraph(nodes, graph.edge_index, relabel_nodes=True, num_nodes=graph.num_nodes)[0]
    return Data(x=x[nodes], y=graph.y[nodes], edge_index=edges)


def flagged(known: Data, others: list[tuple[Data, Tensor]], backbone: str, seed: int) -> Flagged:
    """By each method the share of the nodes asked about that is flagged, in %."""
    torch.manual_seed(seed)
    model = MODELS[backbone](known.num_features, 64, int(known.y.max()) + 1)
    train(model, known, objective=CrossEntropy(), epochs=100)
    found = {}
    for method in MEASURED:
        detector = Detector(model, method).fit(known).calibrate(known)
        flags = [detector.predict(other, false_alarm=ASKED)[asked] for other, asked in others]
        found[method] = 100 * float(torch.cat(flags).double().mean())
    return found


if __name__ == "__main__":
    main()
