"""Observed false-alarm rates on real graphs, over splits drawn again: python benchmarks/calibration.py --data FOLDER.

For every split a GCN is trained, a detector is fitted and calibrated on held-out ID nodes, and other ID nodes (the test
nodes) are decided about. Validation and test nodes are drawn at random from one pool, as the guarantee asks; Cora's and
PubMed's public splits are not, so splits of that shape are drawn, with all other nodes for testing. The rates stand

- `validation`: calibrated with the validation nodes, which have also chosen the epoch (the default);
- `fresh`: calibrated with as many nodes that have chosen nothing;
- `planted`: as `fresh`, for ID test nodes of a graph in which a tenth of the nodes has shifted features: they have
  shifted neighbours, and no promise holds;
- `new classes`: as `fresh`, for ID test nodes of the whole graph, by a model that was trained and calibrated on the
  graph without the classes that the label shift leaves out: these now stand beside ID nodes, and no promise holds.

A rate is the mean over splits ± two standard errors. `within` counts splits whose rate lies where 95 of 100
exchangeable draws lie (beta-binomial, both sets' chance).

A second table is of sets of classes, calibrated as `fresh`, in % of nodes: ID test nodes whose set lacks their class,
in the graph as it was (which the error bounds) and beside planted nodes (where no promise holds); ID test nodes with an
empty set; how many classes are in a set that is not empty; and the OOD nodes that get an empty set: of the graph with
shifted features, of planted ones, of new classes.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import time
from collections import defaultdict
from pathlib import Path

import torch
from torch import Tensor

from gnnsafe import CrossEntropy, Outputs, load_benchmark, methods, models, shifts, train
from gnnsafe.calibration import Calibration, CalibrationCheck, KnownClasses, LevelCheck
from gnnsafe.datasets.benchmark import label_classes
from gnnsafe.datasets.catalogue import DATASETS
from gnnsafe.datasets.splits import per_class_split, random_split
from gnnsafe.files import replacing
from gnnsafe.graph import Data

GRAPHS = {"cora": "Cora", "amazon-photo": "Photo", "coauthor-cs": "CS", "pubmed": "PubMed"}
PUBLIC_SHAPE = ("cora", "pubmed")  # 20 training nodes per class, 500 to validate; the others 1 : 1 : 8
MEASURED = ("energy", "gnnsafe", "two-scale")
LEVELS = (0.01, 0.05, 0.10)

SET_METHODS = ("gnnsafe", "two-scale")
ERRORS = (0.05, 0.10)
MEASURES = {
    "lacking": "lacks its class", "beside": "beside planted", "empty": "empty, ID", "classes": "classes in a set",
    "shifted": "empty, shifted graph", "planted": "empty, planted", "new": "empty, new classes",
}  # fmt: skip

Checks = dict[tuple[str, str, str, float], list[LevelCheck]]  # by graph, method, way to calibrate and level
Asked = dict[tuple[str, ...], tuple[Outputs, Tensor]]  # what to measure, on which outputs and nodes
Shares = dict[tuple[str, str, float, str], list[float]]  # by graph, method, error and measure


def main() -> None:
    """Run it, print the tables and write them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", metavar="FOLDER", help="the data root (default: $GNNSAFE_DATA)")
    parser.add_argument("--splits", type=int, default=20)
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--only", metavar="NAME", choices=GRAPHS, help="one data set")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/calibration.md"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    checks: Checks = defaultdict(list)
    shares: Shares = defaultdict(list)
    for name in [arguments.only] if arguments.only else GRAPHS:
        start = time.perf_counter()
        graph = load_benchmark(name, shift="feature", root=arguments.data).id
        for seed in range(arguments.splits):
            data = split(name, graph, seed)
            one_split(name, data, seed, arguments.epochs, checks, shares)
            new_classes(name, data, seed, arguments.epochs, checks, shares)
        print(f"{GRAPHS[name]}: {arguments.splits} splits in {time.perf_counter() - start:.0f} s", flush=True)
        with replacing(arguments.out) as part:  # after each data set: what is done is kept
            part.write_text(tables(checks, shares, arguments.splits), encoding="utf-8")
    print(tables(checks, shares, arguments.splits))


def split(name: str, graph: Data, seed: int) -> Data:
    """Masks drawn from the seed; `fresh_mask` has as many of the test nodes as there are validation nodes."""
    data = copy.copy(graph)  # which shares the tensors
    everyone = torch.ones(data.num_nodes, dtype=torch.bool)
    data = per_class_split(data, seed) if name in PUBLIC_SHAPE else random_split(data, everyone, seed)
    test = (~data.train_mask & ~data.val_mask).nonzero().flatten()
    order = test[torch.randperm(len(test), generator=torch.Generator().manual_seed(seed + 1000))]
    count = min(int(data.val_mask.sum()), len(test) // 2)
    data.fresh_mask, data.test_mask = torch.zeros_like(everyone), torch.zeros_like(everyone)
    data.fresh_mask[order[:count]], data.test_mask[order[count:]] = True, True
    return data


def one_split(name: str, data: Data, seed: int, epochs: int, checks: Checks, shares: Shares) -> None:
    """Train once, run the model once on each graph, score by each method, check each way to calibrate."""
    torch.manual_seed(seed)
    model = models.GCN(data.x.shape[1], 64, int(data.y.max()) + 1)
    train(model, data, objective=CrossEntropy(), epochs=epochs)
    held_out = copy.copy(data)
    held_out.val_mask = data.val_mask | data.fresh_mask  # so that OOD nodes are planted among test nodes
    planted = shifts.planted(held_out, seed, kind="feature", share=0.1)
    clean, shifted = Outputs.of(model, data), Outputs.of(model, planted)
    moved = shifts.feature(data, seed)
    asked = {
        ("lacking", "empty", "classes"): (clean, data.test_mask),
        ("beside",): (shifted, planted.test_mask),
        ("planted",): (shifted, planted.mask),
        ("shifted",): (Outputs.of(model, moved), data.test_mask),
    }
    set_shares(GRAPHS[name], clean, asked, shares)
    for method in MEASURED:
        fitted = methods.METHODS[method]().fit(clean, data.y, data.train_mask)
        scores, scores_planted = (fitted.scored(outputs).compared for outputs in (clean, shifted))
        own = fitted.known_scores()  # of a method that has learnt from the validation nodes
        ways = {
            "validation": (scores[data.val_mask] if own is None else own, scores[data.test_mask]),
            "fresh": (scores[data.fresh_mask], scores[data.test_mask]),
            "planted": (scores[data.fresh_mask], scores_planted[planted.test_mask]),
        }
        for way, (known, asked) in ways.items():
            calibration = Calibration(known)
            for check in CalibrationCheck.of(calibration.p_values(asked), calibration, LEVELS).levels:
                checks[GRAPHS[name], method, way, check.level].append(check)


def new_classes(name: str, data: Data, seed: int, epochs: int, checks: Checks, shares: Shares) -> None:
    """Train and calibrate without some classes, then meet them beside ID nodes."""
    num_classes = int(data.y.max()) + 1
    left_out = set().union(*label_classes(num_classes, DATASETS[name].middle))
    known = torch.tensor([label not in left_out for label in range(num_classes)])
    inside = known[data.y]
    whole = copy.copy(data)
    whole.y = (known.cumsum(0) - 1)[data.y]
    before = whole.subgraph(inside)
    torch.manual_seed(seed)
    model = models.GCN(data.x.shape[1], 64, int(known.sum()))
    train(model, before, objective=CrossEntropy(), epochs=epochs)
    outputs, met = Outputs.of(model, before), Outputs.of(model, whole)
    set_shares(GRAPHS[name], outputs, {("new",): (met, data.test_mask & ~inside)}, shares)
    for method in MEASURED:
        fitted = methods.METHODS[method]().fit(outputs, before.y, before.train_mask)
        scores, scores_met = (fitted.scored(each).compared for each in (outputs, met))
        calibration = Calibration(scores[before.fresh_mask])
        p = calibration.p_values(scores_met[data.test_mask & inside])
        for check in CalibrationCheck.of(p, calibration, LEVELS).levels:
            checks[GRAPHS[name], method, "new classes", check.level].append(check)


def set_shares(graph: str, known: Outputs, asked: Asked, shares: Shares) -> None:
    """Measure sets of the given nodes, in % except for `classes`, calibrated with fresh nodes of the known graph."""
    data = known.graph.data
    labels = KnownClasses.of(known.logits[data.fresh_mask], data.y[data.fresh_mask])
    for method in SET_METHODS:
        fitted = methods.METHODS[method]().fit(known, data.y, data.train_mask)
        calibration = Calibration(fitted.scored(known).compared[data.fresh_mask], known=labels)
        for measures, (outputs, mask) in asked.items():
            p, y = calibration.p_values(fitted.scored(outputs).compared[mask]), outputs.graph.data.y[mask]
            for error in ERRORS:
                members = calibration.sets(p, outputs.logits[mask], error)
                for measure in measures:
                    shares[graph, method, error, measure].append(set_share(measure, members, y))


def set_share(measure: str, members: Tensor, y: Tensor) -> float:
    """What `MEASURES` says of these sets: a share in %, or how many classes are in those that are not empty."""
    if measure == "classes":
        return float(members.sum(dim=1)[members.any(dim=1)].float().mean())
    lacking = ~members[torch.arange(len(y)), y] if measure in ("lacking", "beside") else ~members.any(dim=1)
    return 100 * float(lacking.float().mean())


def tables(checks: Checks, shares: Shares, splits: int) -> str:
    """Both, as Markdown."""
    return f"{table(checks, splits)}\nSets of classes, mean over {splits} splits:\n\n{set_table(shares)}"


def set_table(shares: Shares) -> str:
    """Markdown: a row for each graph, method and error."""
    lines = [f"| graph | method | error | {' | '.join(MEASURES.values())} |", f"|---|---|---|{'---|' * len(MEASURES)}"]
    for graph, method, error in dict.fromkeys(key[:3] for key in shares):
        found = {measure: shares[graph, method, error, measure] for measure in MEASURES}
        columns = [mean(values, digits=2 if measure == "classes" else 1) for measure, values in found.items()]
        lines.append(f"| {graph} | {method} | {error:.0%} | {' | '.join(columns)} |")
    return "\n".join(lines) + "\n"


def mean(values: list[float], digits: int) -> str:
    """The mean ± two standard errors."""
    error = statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else float("nan")
    return f"{statistics.mean(values):.{digits}f} ± {2 * error:.{digits}f}"


def table(checks: Checks, splits: int) -> str:
    """Markdown: a row for each graph, method and way."""
    head = [f"{level:.0%}" for level in LEVELS]
    lines = [
        f"| graph | method | calibrated with | {' | '.join(head)} | within, of {splits} each |",
        f"|---|---|---|{'---|' * len(LEVELS)}---|",
    ]
    for graph, method, way in dict.fromkeys(key[:3] for key in checks):
        columns, within = [], []
        for level in LEVELS:
            found = checks[graph, method, way, level]
            columns.append(mean([100 * check.rate for check in found], digits=2))
            within.append(str(sum(check.expected[0] <= check.rate <= check.expected[1] for check in found)))
        lines.append(f"| {graph} | {method} | {way} | {' | '.join(columns)} | {', '.join(within)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
