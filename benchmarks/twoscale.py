"""`python -m benchmarks.twoscale cora amazon-photo`: TwoScale and others beside it, wherever OOD nodes may stand.

AUROC in percent, mean ± standard deviation over seeds, a line per method (with `--parts` also its evidence one by one):
the paper's settings (ID test nodes of the ID graph against the OOD graph's nodes), rewired edges, nodes planted among
ID nodes, scattered and clustered, and for years also ID test nodes and new nodes in the same later graph. `nothing` is
a control: the ID graph with 1 % of its edges dropped must give 50. With `--new` new classes instead: a model is trained
on the graph without some classes, as in `benchmarks.diagnosis`, and meets the whole graph.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import sys
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

warnings.simplefilter("ignore")  # PyG's own, while it is imported

import numpy as np  # noqa: E402
import torch  # noqa: E402
from torch import Tensor  # noqa: E402

import gnnsafe  # noqa: E402
from benchmarks import cases  # noqa: E402
from benchmarks.diagnosis import LEFT_OUT, without_classes  # noqa: E402
from gnnsafe import CrossEntropy, Outputs, shifts  # noqa: E402
from gnnsafe.datasets import DATASETS  # noqa: E402
from gnnsafe.methods import DegreeBalance, DiffusedKNN, EdgeDisagreement, Energy, GNNSafe, MeanCosine, Method, TwoScale  # noqa: E402
from gnnsafe.metrics import detection  # noqa: E402
from gnnsafe.models import MODELS  # noqa: E402

BESIDE = (TwoScale(), Energy(), GNNSafe(), DiffusedKNN(bank=1000), EdgeDisagreement(), MeanCosine(), DegreeBalance())


class Setting(NamedTuple):
    """Two graphs, and which of their nodes are told apart: ID nodes of the first, OOD nodes of the second."""

    name: str
    inside: Any
    id_nodes: Tensor
    outside: Any
    ood_nodes: Tensor


def settings(dataset: str, seed: int) -> Iterator[tuple[Any, int, list[Setting]]]:
    """Each graph to train on, its number of classes, and the settings that its model is asked about."""
    own = DATASETS[dataset].own
    names = list(own) if DATASETS[dataset].graph is None else ["structure", "feature", "rewire", "label"]
    trained: dict[str, tuple[Any, int, list[Setting]]] = {}
    for shift in names:
        benchmark = gnnsafe.load_benchmark(dataset, shift=shift, seed=seed, root=cases.ROOT)
        graph = benchmark.id
        found = [Setting(name, graph, graph.test_mask, ood, ood.mask) for name, ood in benchmark.ood.items()]
        if shift == "time":
            found += [
                Setting(f"{name}, same graph", ood, graph.test_mask, ood, ood.mask)
                for name, ood in benchmark.ood.items()
            ]
        key = "label" if shift == "label" else "whole"  # the ID graph is the same under all others
        trained.setdefault(key, (graph, benchmark.num_classes, []))[2].extend(found)
    graph, _, found = trained.get("whole", next(iter(trained.values())))
    found += [*_planted(graph, seed), _nothing(graph, seed)] if DATASETS[dataset].graph is not None else []
    yield from trained.values()


def new_classes(dataset: str, seed: int) -> Iterator[tuple[Any, int, list[Setting]]]:
    """The same for each choice of classes to leave out."""
    choices = next(choices for _, name, backbone, choices in LEFT_OUT if (name, backbone) == (dataset, "gcn"))
    for left_out in choices:
        taught, whole, new = without_classes(cases.ROOT, dataset, left_out, seed)
        name = f"new {' '.join(map(str, sorted(left_out)))}"
        yield taught, int(taught.y.max()) + 1, [Setting(name, whole, whole.test_mask, whole, new)]


def _planted(graph: Any, seed: int) -> Iterator[Setting]:
    first = int(np.random.SeedSequence(seed).generate_state(1)[0])
    for kind in ("feature", "structure"):
        for clustered in (False, True):
            one = shifts.planted(graph, first, kind=kind, clustered=clustered)
            name = f"planted {kind}, {'clustered' if clustered else 'scattered'}"
            yield Setting(name, one, one.test_mask, one, one.mask)


def _nothing(graph: Any, seed: int) -> Setting:
    pair = graph.edge_index.sort(dim=0).values  # both directions of an edge stay, or go
    edge = (pair[0] * graph.num_nodes + pair[1]).unique(return_inverse=True)[1]
    kept = (torch.rand(int(edge.max()) + 1, generator=torch.Generator().manual_seed(seed)) > 0.01)[edge]
    dropped = copy.copy(graph)
    dropped.edge_index = graph.edge_index[:, kept]
    return Setting("nothing", graph, graph.test_mask, dropped, graph.test_mask)


def aurocs(
    dataset: str, seed: int, backbone: str, epochs: int, *, new: bool, parts: bool
) -> dict[str, dict[str, float]]:
    """AUROC in percent by method and setting."""
    table: dict[str, dict[str, float]] = {}
    for graph, classes, found in (new_classes if new else settings)(dataset, seed):
        torch.manual_seed(seed)
        model = MODELS[backbone](graph.x.shape[1], 64, classes)
        gnnsafe.train(model, graph, objective=CrossEntropy(), epochs=epochs, seed=seed)
        outputs = Outputs.of(model, gnnsafe.prepare(graph))
        methods = [copy.deepcopy(method).fit(outputs, graph.y, graph.train_mask) for method in BESIDE]
        for setting in found:
            for name, scores in _scores(methods, model, setting, parts):
                table.setdefault(name, {})[setting.name] = 100 * detection(*scores).auroc
            print(f"{dataset}, seed {seed}: {setting.name}", file=sys.stderr, flush=True)
    return {name: row | ({"mean": statistics.mean(row.values())} if new else {}) for name, row in table.items()}


def _scores(
    methods: list[Method], model: Any, setting: Setting, parts: bool
) -> Iterator[tuple[str, tuple[Tensor, Tensor]]]:
    inside = Outputs.of(model, gnnsafe.prepare(setting.inside))
    outside = inside if setting.outside is setting.inside else Outputs.of(model, gnnsafe.prepare(setting.outside))
    evidence = [part for method in methods for part in method.parts() if parts]
    for method in [*methods, *evidence]:
        scores = [method.score(outputs) for outputs in {id(inside): inside, id(outside): outside}.values()]
        yield repr(method), (scores[0][setting.id_nodes], scores[-1][setting.ood_nodes])


def main() -> None:
    """Print a table per data set."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.twoscale", description=__doc__)
    known = ["cora", "amazon-photo", "coauthor-cs", "pubmed", "twitch", "pubmed-years", "arxiv-topics"]
    parser.add_argument("datasets", nargs="+", choices=known)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--backbone", default="gcn")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--new", action="store_true", help="new classes instead, of those that have classes to leave out"
    )
    parser.add_argument("--parts", action="store_true", help="TwoScale's evidence too, one by one")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    for dataset in arguments.datasets:
        runs = [
            aurocs(dataset, seed, arguments.backbone, arguments.epochs, new=arguments.new, parts=arguments.parts)
            for seed in range(arguments.seeds)
        ]
        columns = list(runs[0][repr(BESIDE[0])])
        print(f"\n{dataset}, {arguments.backbone}, {len(runs)} seeds\n\n| | {' | '.join(columns)} |")
        print("|---|" + "--:|" * len(columns))
        for name in runs[0]:
            cells = [[run[name][column] for run in runs] for column in columns]
            row = " | ".join(f"{statistics.mean(cell):.1f} ± {statistics.pstdev(cell):.1f}" for cell in cells)
            print(f"| {_short(name)} | {row} |", flush=True)


def _short(name: str) -> str:
    return "TwoScale" if name.startswith("TwoScale") else name


if __name__ == "__main__":
    main()
