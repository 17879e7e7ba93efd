"""Is the advice of `diagnose` right about trouble that it did not plant? `python -m benchmarks.diagnosis --data DATA`.

New classes: a model is trained on a graph without the nodes of some classes and diagnosed there; then the whole graph,
with these nodes in it, is scored, its ID test nodes against the nodes of new classes. Time and domain: PubMed by year,
ID nodes and new nodes in the same later graph; Twitch, another country's graph. The rule of the verdict was chosen on
Cora and Photo; all else is validation, looked at once. Writes diagnosis.md beside this file.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from benchmarks.diagnosis_page import NEW_CLASSES, OVERALL, WHOLE_GRAPH, Case, page
from gnnsafe import CrossEntropy, Detector, load_benchmark, train
from gnnsafe.datasets import DATASETS
from gnnsafe.diagnosis import Diagnosis
from gnnsafe.graph import changed
from gnnsafe.metrics import detection
from gnnsafe.models import MODELS

OUT = Path(__file__).with_name("diagnosis.md")
MASKS = ("train_mask", "val_mask", "test_mask")
SINGLE = tuple({number} for number in range(8))

LEFT_OUT: list[tuple[str, str, str, tuple[set[int], ...]]] = [
    ("development", "cora", "gcn", (*SINGLE[:7], {0, 1, 2}, {3, 4}, {2, 5, 6})),
    ("development", "cora", "graphsage", ({0}, {2}, {3}, {5}, {0, 1, 2})),
    ("development", "cora", "gat", ({0}, {2}, {3}, {5}, {0, 1, 2})),
    ("development", "amazon-photo", "gcn", ({0}, {3}, {5}, {7}, {0, 1, 2, 3}, {4, 5})),
    ("development", "amazon-photo", "graphsage", ({3}, {0, 1, 2, 3})),
    ("validation", "coauthor-cs", "gcn", ({1}, {7}, {0, 1, 2, 3}, {5, 6, 7, 8})),
    ("validation", "pubmed", "gcn", ({0}, {1}, {2})),
]
SPLITS = 2


def main() -> None:
    """Run all and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True, help="the data root")
    parser.add_argument("--only", help="a data set; no page is written")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    cases, began = [], time.monotonic()
    for case in _cases(arguments.data, arguments.only):
        cases.append(case)
        print(f"{time.monotonic() - began:.0f} s: {case}", file=sys.stderr, flush=True)
    text = page(cases)
    print(text)
    if arguments.only is None:
        OUT.write_text(text, encoding="utf-8")


def _cases(root: str, only: str | None) -> Iterator[Case]:
    for part, name, backbone, choices in LEFT_OUT:
        for left_out in choices if only in (None, name) else ():
            yield from _new_classes(part, root, name, backbone, left_out)
    if only in (None, "twitch"):
        yield from _twitch(root)
    for seed in range(SPLITS if only in (None, "pubmed-years") else 0):
        yield from _years(root, seed)


def _new_classes(part: str, root: str, name: str, backbone: str, left_out: set[int]) -> Iterator[Case]:
    taught, whole, new = without_classes(root, name, left_out)
    detector, found = _diagnosed(taught, backbone, draws=1)  # the verdict about new classes needs no shift
    real = _reality(detector, found, taught, whole, whole.test_mask, new)
    for trouble in (NEW_CLASSES, OVERALL):
        yield Case.of(part, name, backbone, trouble, " ".join(map(str, sorted(left_out))), found, real)


def without_classes(root: Any, name: str, left_out: set[int], seed: int = 0) -> tuple[Any, Any, torch.Tensor]:
    """A graph without some classes, to be taught; the whole one, to be met; and which nodes are of new classes."""
    graph = DATASETS[name].graph
    assert graph is not None
    data, _ = graph(root, seed)
    data = changed(data, x=data.x.to_sparse_csr() if name == "coauthor-cs" else data.x)
    new = torch.isin(data.y, torch.tensor(sorted(left_out)))
    classes = data.y[~new].unique()
    numbered = torch.searchsorted(classes, data.y).clamp(max=len(classes) - 1).where(~new, -1)
    whole = changed(data, y=numbered, **{mask: data[mask] & ~new for mask in MASKS})
    return _induced(whole, ~new), whole, new


def _years(root: str, seed: int) -> Iterator[Case]:
    benchmark = load_benchmark("pubmed-years", shift="time", root=root, seed=seed)
    detector, found = _diagnosed(benchmark.id, "gcn")
    for period, graph in benchmark.ood.items():
        real = _reality(detector, found, benchmark.id, graph, benchmark.id.test_mask, graph.mask)
        for trouble in (NEW_CLASSES, WHOLE_GRAPH, OVERALL):
            yield Case.of("validation", "pubmed-years", "gcn", trouble, f"{period}, split {seed}", found, real)


def _twitch(root: str) -> Iterator[Case]:
    benchmark = load_benchmark("twitch", shift="domain", root=root)
    detector, found = _diagnosed(benchmark.id, "gcn")
    for country, graph in benchmark.ood.items():
        real = _reality(detector, found, benchmark.id, graph, None, graph.mask)
        for trouble in (WHOLE_GRAPH, OVERALL):
            yield Case.of("validation", "twitch", "gcn", trouble, country, found, real)


def _induced(data: Any, kept: torch.Tensor) -> Any:
    """The graph of these nodes alone."""
    place = torch.full((len(kept),), -1)
    place[kept] = torch.arange(int(kept.sum()))
    edges = place[data.edge_index]
    rows = data.x.to_dense()[kept] if data.x.layout == torch.strided else _rows(data.x, kept)
    values = {name: data[name][kept] for name in ("y", *MASKS)}
    return changed(data, x=rows, edge_index=edges[:, (edges >= 0).all(dim=0)], **values)


def _rows(x: torch.Tensor, kept: torch.Tensor) -> torch.Tensor:
    from gnnsafe.sparse import scipy_csr, torch_csr

    return torch_csr(scipy_csr(x)[kept.numpy()])


def _diagnosed(data: Any, backbone: str, draws: int = 3) -> tuple[Detector, Diagnosis]:
    model = MODELS[backbone](data.x.shape[1], 64, int(data.y.max()) + 1)
    train(model, data, objective=CrossEntropy())
    detector = Detector(model, "two-scale").fit(data)
    return detector, detector.diagnose(data, draws=draws)


def _reality(
    detector: Detector, found: Diagnosis, taught: Any, met: Any, inside: torch.Tensor | None, outside: torch.Tensor
) -> dict[str, float]:
    """AUROC of every candidate on the graph met; without `inside` the ID nodes are the test nodes of the one taught."""
    before, after = detector.outputs(taught), detector.outputs(met)
    real = {}
    for candidate in found.candidates:
        scores = candidate.method.score(after)  # it was fitted on the graph taught
        known = candidate.method.score(before)[taught.test_mask] if inside is None else scores[inside]
        real[candidate.name] = detection(known, scores[outside]).auroc
    return real


if __name__ == "__main__":
    main()
