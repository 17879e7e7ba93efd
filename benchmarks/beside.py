"""False alarms of ID nodes beside planted OOD nodes: python -m benchmarks.beside --data FOLDER.

For every split, drawn as in `benchmarks.calibration`, a GCN is trained and each method calibrated with the validation
nodes of the graph as it was. Then a share of the test nodes is planted, with other features or edges, scattered or in
clusters, and the ID test nodes of that graph are decided about: how many are flagged, in % (mean over splits), at 1, 5
and 10 % asked; at 5 % also how many of those with fewer than half of their in-neighbours planted, of the others, and of
the planted nodes; and the AUROC in % of the planted against the ID test nodes.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
import warnings
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

warnings.simplefilter("ignore")  # PyG's own, while it is imported

import torch  # noqa: E402
from torch import Tensor  # noqa: E402

from benchmarks import cases  # noqa: E402
from benchmarks.calibration import GRAPHS, LEVELS, split  # noqa: E402
from gnnsafe import CrossEntropy, Outputs, load_benchmark, methods, models, prepare, shifts, train  # noqa: E402
from gnnsafe.calibration import Calibration  # noqa: E402
from gnnsafe.files import replacing  # noqa: E402
from gnnsafe.graph import Data  # noqa: E402
from gnnsafe.metrics import detection  # noqa: E402

MEASURED = ("gnnsafe", "two-scale")
SHARES = (0.01, 0.05, 0.1, 0.2)

Row = tuple[str, str, float, str]  # graph, kind of trouble, share, method
Found = dict[Row, list[list[float]]]


def main() -> None:
    """Run it, print the table and write it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.beside", description=__doc__)
    parser.add_argument("--data", metavar="FOLDER", default=cases.ROOT, help="the data root")
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--only", metavar="NAME", choices=GRAPHS, nargs="*", default=list(GRAPHS))
    parser.add_argument("--out", type=Path, default=Path("benchmarks/beside.md"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    found: Found = defaultdict(list)
    for name in arguments.only:
        start = time.perf_counter()
        graph = load_benchmark(name, shift="feature", root=arguments.data).id
        for seed in range(arguments.splits):
            for row, figures in one_split(name, split(name, graph, seed), seed, arguments.epochs):
                found[row].append(figures)
        print(f"{GRAPHS[name]}: {arguments.splits} splits in {time.perf_counter() - start:.0f} s", file=sys.stderr)
        with replacing(arguments.out) as part:  # after each data set: what is done is kept
            part.write_text(page(found, arguments.splits), encoding="utf-8")
    print(page(found, arguments.splits))


def one_split(name: str, data: Data, seed: int, epochs: int) -> Iterator[tuple[Row, list[float]]]:
    """Train once, then plant in every way."""
    torch.manual_seed(seed)
    model = models.GCN(data.x.shape[1], 64, int(data.y.max()) + 1)
    train(model, data, objective=CrossEntropy(), epochs=epochs)
    clean = Outputs.of(model, prepare(data))
    fitted = {name: methods.METHODS[name]().fit(clean, data.y, data.train_mask) for name in MEASURED}
    known = {name: method.known_scores() for name, method in fitted.items()}
    held_out = {name: method.scored(clean).compared[data.val_mask] for name, method in fitted.items()}
    for kind in ("feature", "structure"):
        for clustered in (False, True):
            for share in SHARES:
                graph = shifts.planted(data, seed, kind=kind, clustered=clustered, share=share)
                outputs = Outputs.of(model, prepare(graph))
                trouble = f"{kind}, {'clustered' if clustered else 'scattered'}"
                beset = graph.test_mask & (planted_neighbours(graph) >= 0.5)
                asked = [graph.test_mask & ~beset, beset, graph.mask]
                for method, one in fitted.items():
                    own = known[method]
                    scored = one.scored(outputs)
                    p = Calibration(held_out[method] if own is None else own).p_values(scored.compared)
                    rates = [100 * float((p[graph.test_mask] <= level).double().mean()) for level in LEVELS]
                    apart = [100 * float((p[nodes] <= 0.05).double().mean()) for nodes in asked]
                    auroc = 100 * detection(scored.scores[graph.test_mask], scored.scores[graph.mask]).auroc
                    yield (GRAPHS[name], trouble, share, method), [*rates, *apart, auroc]


def planted_neighbours(graph: Data) -> Tensor:
    """The share of each node's in-neighbours that are planted; 0 where it has none."""
    source, target = graph.edge_index
    counts = torch.zeros(2, graph.num_nodes)
    counts[0].index_add_(0, target, graph.mask[source].float())
    counts[1].index_add_(0, target, torch.ones(len(target)))
    return counts[0] / counts[1].clamp(min=1)


def page(found: Found, splits: int) -> str:
    """Markdown: a line for each graph, kind of trouble and share, both methods beside each other."""
    figures = [f"{level:.0%}" for level in LEVELS] + ["few planted around", "half or more", "planted, 5%", "AUROC"]
    head = [f"{method} {figure}" for method in MEASURED for figure in figures]
    lines = [
        f"Made by `python -m benchmarks.beside --splits {splits}`: of ID test nodes, in %, flagged at 1, 5 and 10 %",
        "asked; at 5 % of those with fewer than half of their in-neighbours planted, and with half or more; of planted",
        "nodes, flagged at 5 %; and the AUROC between them (nan: no such node in some split).",
        "",
        f"| graph | planted | share | {' | '.join(head)} |",
        f"|---|---|--:|{'--:|' * len(head)}",
    ]
    for graph, trouble, share in dict.fromkeys(row[:3] for row in found):
        cells = [_means(found[graph, trouble, share, method]) for method in MEASURED]
        lines.append(f"| {graph} | {trouble} | {share:.0%} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _means(runs: list[list[float]]) -> str:
    return " | ".join(f"{statistics.mean(figures):.1f}" for figures in zip(*runs, strict=True))


if __name__ == "__main__":
    main()
