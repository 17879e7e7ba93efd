"""`python -m benchmarks.agreement cora`: do 200 epochs of the fast path end where 200 of plain PyG do?

GNNSafe and GNNSafe++ are trained both ways from the same weights under each shift, several seeds; the AUROC of the two
ways is compared with its spread over seeds. Metrics of both are scikit-learn's.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import warnings
from typing import Any

warnings.simplefilter("ignore")  # PyG's own, while it is imported

import torch  # noqa: E402

import gnnsafe  # noqa: E402
from benchmarks import cases, plain  # noqa: E402
from gnnsafe import CrossEntropy, EnergyMargin, Outputs, train  # noqa: E402
from gnnsafe.bench import paper  # noqa: E402
from gnnsafe.methods import GNNSafe  # noqa: E402
from gnnsafe.models import GCN  # noqa: E402


def aurocs(dataset: str, shift: str, seed: int, epochs: int) -> dict[str, tuple[float, float]]:
    """AUROC in percent of both methods, plain and ours."""
    benchmark = gnnsafe.load_benchmark(dataset, shift=shift, seed=seed, root=cases.ROOT)
    graph, (outside,) = benchmark.id, benchmark.ood.values()
    margin = paper.margins(dataset, shift)[1]
    results = {}
    for name, objective, settings in (
        ("GNNSafe", CrossEntropy(), None),
        ("GNNSafe++", EnergyMargin(*margin, isolated="decay"), margin),
    ):
        torch.manual_seed(seed)
        model = GCN(graph.x.shape[1], plain.HIDDEN, benchmark.num_classes)
        model.reset_parameters()
        reference = plain.GCN(graph.x.shape[1], benchmark.num_classes)
        plain.copied(model, reference)
        train(model, graph, objective=objective, exposure=benchmark.exposure, epochs=epochs, seed=None)
        plain.trained(plain.Training(reference, graph, benchmark.exposure, settings), epochs)
        method = GNNSafe(isolated="decay")
        ours = [method.score(Outputs.of(model, g)) for g in (graph, outside)]
        theirs = [plain.scores(reference, g) for g in (graph, outside)]
        results[name] = (_auroc(theirs, graph, outside), _auroc(ours, graph, outside))
    return results


def _auroc(scores: list[torch.Tensor], graph: Any, outside: Any) -> float:
    inside, out = scores[0][graph.test_mask].numpy(), scores[1][outside.mask].numpy()
    return 100 * plain.detection(inside, out)[0]


def main() -> None:
    """Print a line per shift and method."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.agreement", description=__doc__)
    parser.add_argument("dataset", nargs="?", default="cora", choices=["cora", "amazon-photo", "coauthor-cs"])
    parser.add_argument("--shifts", nargs="+", default=["structure", "feature", "label"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    print(
        "| data set | shift | method | plain | gnnsafe | mean of differences | seeds |\n|---|---|---|--:|--:|--:|--:|"
    )
    for shift in arguments.shifts:
        runs = []
        for seed in range(arguments.seeds):
            runs.append(aurocs(arguments.dataset, shift, seed, arguments.epochs))
            print(f"{shift}, seed {seed}: {runs[-1]}", file=sys.stderr, flush=True)
        for method in runs[0]:
            pairs = [run[method] for run in runs]
            sides = [
                f"{statistics.mean(side):.2f} ± {statistics.pstdev(side):.2f}" for side in zip(*pairs, strict=True)
            ]
            gap = statistics.mean(ours - theirs for theirs, ours in pairs)
            print(
                f"| {arguments.dataset} | {shift} | {method} | {' | '.join(sides)} | {gap:+.3f} | {len(runs)} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
