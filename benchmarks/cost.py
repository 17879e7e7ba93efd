"""What TwoScale costs beyond one forward pass: `python -m benchmarks.cost`, on a machine that does nothing else.

Milliseconds, the median of several runs, two threads, GCN. *Forward*: the model on a prepared graph. *GNNSafe*,
*TwoScale*: outputs and scores, less that forward; the graph is warm, so what is kept with it (degrees, cosines of
features) is not counted. *First*: the same on a graph that nobody has seen, prepared again.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import time
import warnings
from collections.abc import Callable

warnings.simplefilter("ignore")  # PyG's own, while it is imported

import torch  # noqa: E402

import gnnsafe  # noqa: E402
from benchmarks import cases  # noqa: E402
from gnnsafe import CrossEntropy, Outputs  # noqa: E402
from gnnsafe.methods import GNNSafe, TwoScale  # noqa: E402
from gnnsafe.models import GCN  # noqa: E402

GRAPHS = {"cora": "structure", "amazon-photo": "structure", "coauthor-cs": "structure", "arxiv-topics": "time"}
GOALS = {"cora": 15, "amazon-photo": 120, "coauthor-cs": 250, "arxiv-topics": 3000}  # ms


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cost", description=__doc__)
    parser.add_argument("datasets", nargs="*", metavar="DATASET", help=f"of {', '.join(GRAPHS)} (default: all)")
    parser.add_argument("--runs", type=int, default=7)
    arguments = parser.parse_args()
    torch.set_num_threads(2)
    print("| | forward | GNNSafe | TwoScale | goal | TwoScale, first |\n|---|--:|--:|--:|--:|--:|")
    for name in arguments.datasets or GRAPHS:
        forward, plain, ours, first = measured(name, arguments.runs)
        cells = [forward, plain - forward, ours - forward, GOALS[name], first - forward]
        print(
            f"| {name} | {' | '.join(f'{cell:.0f}' if cell >= 10 else f'{cell:.1f}' for cell in cells)} |", flush=True
        )


def measured(name: str, runs: int) -> list[float]:
    """A forward, that and GNNSafe, that and TwoScale, and the last on a graph that is prepared again: milliseconds."""
    benchmark = gnnsafe.load_benchmark(name, shift=GRAPHS[name], root=cases.ROOT)
    data = cases.compact(benchmark.id)
    torch.manual_seed(0)
    model = GCN(data.x.shape[1], 64, benchmark.num_classes)
    gnnsafe.train(model, data, objective=CrossEntropy(), epochs=20)
    graph = gnnsafe.prepare(data)
    outputs = Outputs.of(model, graph)
    methods = [copy.deepcopy(method).fit(outputs, data.y, data.train_mask) for method in (GNNSafe(), TwoScale())]
    return [
        median_ms(lambda: Outputs.of(model, graph), runs),
        *(median_ms(lambda method=method: method.scored(Outputs.of(model, graph)), runs) for method in methods),
        median_ms(lambda: methods[-1].scored(Outputs.of(model, gnnsafe.prepare(copy.copy(data)))), runs),
    ]


def median_ms(call: Callable[[], object], runs: int) -> float:
    """Of several calls, after one that warms up."""
    call()
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        call()
        times.append(1000 * (time.perf_counter() - start))
    return statistics.median(times)


if __name__ == "__main__":
    main()
