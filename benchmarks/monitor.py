"""The alarm of `gnnsafe monitor` on real graphs: python -m benchmarks.monitor --data FOLDER.

A GCN is trained on a split drawn again (20 training nodes per class and 500 to validate on Cora and PubMed, 1 : 1 : 8
on the others); each stream has validation nodes drawn again among those not trained on, and a detector that is fitted
and calibrated on them; then days of 50 nodes. Every fifth stream has a new model. Calm streams take models of 50
epochs, since what the alarm promises does not depend on how good a model is; all else takes 200.

- Calm streams, up to 40 days of ID test nodes: `random`, each day a random draw of nodes of the whole graph; `growing`,
  nodes that join the graph as they come, at first a half of it; `regions`, days of neighbours; `regions, apart`, the
  same, but no two neighbours counted in one day; `regions, as blocks`, the same, each day counted as one.
- Changes: 10 calm days of random draws, then days of nodes of a shifted graph. The delay is how many shifted nodes were
  counted by the end of the day of the alarm. Beside it a daily two-sample test (Kolmogorov and Smirnov's, of the day's
  nodes beside the calibration nodes), whose threshold is set so that as many calm streams of that length, and of that
  graph's, have a day below it as the alarm promises. It has to be set on calm streams, which nobody has; the alarm's
  threshold is 1 / α.
- Accuracy: the estimate beside the truth, on test nodes and on nodes of later years.

Records are kept by stream, so that it may be stopped and continued: `--only cora --streams 0-49`; `--write` makes the
page. The 200 calm streams alone, on two cores: `--kinds calm --workers 2`.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.calibration import GRAPHS
from benchmarks.calibration import split as drawn_split
from gnnsafe import CrossEntropy, Detector, load_benchmark, shifts, train
from gnnsafe.files import replacing
from gnnsafe.graph import Data, changed
from gnnsafe.models import GCN
from gnnsafe.monitoring import Alarm, estimated_accuracy
from gnnsafe.monitoring.drift import two_sample

DAY, CALM_DAYS, BEFORE, AFTER = 50, 40, 10, 20
MEASURED = ("two-scale", "gnnsafe")
EPOCHS = {"calm": 50, "growing": 50, "changes": 200, "accuracies": 200}
SEEDS = {
    "calm": 50,
    "growing": 5,
    "changes": 3,
    "accuracies": 3,
}  # growing: a forward for every day; changes: a model for each
STREAMS = 5  # of a model


@dataclass
class Watched:
    """A detector on one graph: what is watched at its nodes and at held-out nodes."""

    names: tuple[str, ...]
    known: np.ndarray
    rows: np.ndarray

    @classmethod
    def of(cls, detector: Detector, data: Data) -> Watched:
        """All nodes of a graph."""
        decided = detector.decide(data, false_alarm=0.05)
        names, known = detector.watching()
        return cls(names, known.double().numpy(), decided.watched.double().numpy())


def followed(watched: Watched, days: list[np.ndarray], seed: int, *, block: bool = False) -> dict[str, Any]:
    """The alarm and the daily test after each day: peaks and least p-values so far."""
    alarm, peaks, tests = Alarm.watching(watched.names, watched.known, seed=seed), [], []
    known = torch.from_numpy(watched.known[:, 0])
    for day in days:
        alarm = alarm.after(day, block=block) if len(day) else alarm
        peaks.append(round(alarm.log_peak, 3))
        tests.append(two_sample(torch.from_numpy(day[:, 0]), known).p_value if len(day) > 1 else 1.0)
    return {"peaks": peaks, "tests": tests, "loudest": alarm.loudest.name}


@lru_cache(maxsize=1)
def trained(name: str, root: str | None, seed: int, epochs: int) -> tuple[Data, GCN]:
    """A split and a model."""
    data = drawn_split(name, _graph(name, root), seed)
    return data, model_of(data, seed, epochs)


def model_of(data: Data, seed: int, epochs: int) -> GCN:
    """Trained on a graph."""
    torch.manual_seed(seed)
    model = GCN(data.x.shape[1], 64, int(data.y.max()) + 1)
    train(model, data, objective=CrossEntropy(), epochs=epochs)
    return model


def redrawn(data: Data, seed: int) -> Data:
    """As many validation nodes as there were, drawn again among all but training nodes; the others for testing."""
    free = (~data.train_mask).nonzero().flatten().numpy()
    order, masks = np.random.default_rng(seed).permutation(free), [torch.zeros_like(data.train_mask) for _ in range(2)]
    count = int(data.val_mask.sum())
    masks[0][order[:count]], masks[1][order[count:]] = True, True
    return changed(data, val_mask=masks[0], test_mask=masks[1])


def detectors(model: GCN, data: Data) -> Iterator[tuple[str, Detector]]:
    """A detector by each method."""
    for method in MEASURED:
        yield method, Detector(model, method).fit(data).calibrate(data)


def chunks(nodes: np.ndarray, days: int = CALM_DAYS) -> list[np.ndarray]:
    """Days of 50 nodes."""
    return [nodes[start : start + DAY] for start in range(0, min(len(nodes), days * DAY), DAY)]


def regional(data: Data, nodes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The nodes in the order in which a walk from neighbour to neighbour meets them."""
    neighbours, met, found = _neighbours(data), np.zeros(data.num_nodes, dtype=bool), []
    for first in rng.permutation(data.num_nodes).tolist():
        queue = deque([first])
        while queue:
            node = queue.popleft()
            if not met[node]:
                met[node] = True
                found.append(node)
                queue.extend(neighbours[node][~met[neighbours[node]]].tolist())
    wanted = np.zeros(data.num_nodes, dtype=bool)
    wanted[nodes] = True
    return np.array([node for node in found if wanted[node]])


def apart(data: Data, nodes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The nodes, but of neighbours only one, in a random order."""
    taken = np.zeros(data.num_nodes, dtype=bool)
    kept, neighbours = [], _neighbours(data)
    for node in rng.permutation(nodes).tolist():
        if not taken[node]:
            kept.append(node)
            taken[neighbours[node]] = True
            taken[node] = True
    return np.array(kept)


@lru_cache(maxsize=1)
def _graph(name: str, root: str | None) -> Data:
    return load_benchmark(name, shift="feature", root=root).id


@lru_cache(maxsize=1)
def _lists(edge_index: Tensor, nodes: int) -> list[np.ndarray]:
    source, target = edge_index.numpy()
    order = np.argsort(source, kind="stable")
    return np.split(target[order], np.searchsorted(source[order], np.arange(1, nodes)))


def _neighbours(data: Data) -> list[np.ndarray]:
    return _lists(data.edge_index, data.num_nodes)


def calm(name: str, seed: int, root: str | None, epochs: int) -> list[dict[str, Any]]:
    """The calm streams of one split."""
    data, model = trained(name, root, seed // STREAMS, epochs)
    data = redrawn(data, seed)
    rng, records = np.random.default_rng(seed), []
    nodes = rng.permutation(data.test_mask.nonzero().flatten().numpy())
    days = {"random": chunks(nodes)}
    if seed % STREAMS == 0:
        walk = regional(data, nodes, rng)
        days |= {"regions": chunks(walk), "regions, apart": [apart(data, day, rng) for day in chunks(walk)]}
        days |= {"regions, as blocks": chunks(walk)}
    for method, detector in detectors(model, data):
        watched = Watched.of(detector, data)
        for way, numbers in days.items():
            found = followed(watched, [watched.rows[day] for day in numbers], seed, block="blocks" in way)
            records.append({"kind": "calm", "way": way, "graph": name, "method": method, "seed": seed, **found})
    return records


def growing(name: str, seed: int, root: str | None, epochs: int) -> list[dict[str, Any]]:
    """Half of the graph at first; the others join as they come, 50 a day."""
    whole = drawn_split(name, _graph(name, root), seed)
    rng, records = np.random.default_rng(seed), []
    test = rng.permutation((whole.test_mask | whole.fresh_mask).nonzero().flatten().numpy())
    first, later = test[: len(test) // 2], chunks(test[len(test) // 2 :], days=BEFORE)
    there = (whole.train_mask | whole.val_mask).clone()
    there[first] = True
    begun = whole.subgraph(there)
    for method, detector in detectors(model_of(begun, seed, epochs), begun):
        now, days, watched = there.clone(), [], None
        for day in later:
            now[day] = True
            watched = Watched.of(detector, whole.subgraph(now))
            days.append(watched.rows[(now.cumsum(0) - 1)[day].numpy()])
        assert watched is not None
        found = followed(watched, days, seed)
        records.append({"kind": "calm", "way": "growing", "graph": name, "method": method, "seed": seed, **found})
    return records


def changed_graphs(name: str, seed: int, root: str | None) -> Iterator[tuple[str, Data, Data, np.ndarray]]:
    """The kind of change, the graph that detectors know, the one that comes, and those of its nodes that come."""
    data = drawn_split(name, _graph(name, root), seed)
    data.test_mask = data.test_mask | data.fresh_mask
    test = data.test_mask.nonzero().flatten().numpy()
    yield "feature", data, shifts.feature(data, seed), test
    yield "structure", data, shifts.structure(data, seed), test
    planted = shifts.planted(data, seed, kind="feature", share=0.1)
    yield "planted", data, planted, (planted.mask | planted.test_mask).nonzero().flatten().numpy()
    label = load_benchmark(name, shift="label", seed=seed, root=root, head="id", **_redrawn(name))
    yield "label", label.id, label.ood["label"], label.ood["label"].mask.nonzero().flatten().numpy()
    if name == "pubmed":
        years = load_benchmark("pubmed-years", shift="time", seed=seed, root=root)
        for period, graph in years.ood.items():
            yield f"time {period}", years.id, graph, graph.mask.nonzero().flatten().numpy()


def _redrawn(name: str) -> dict[str, Any]:
    return {"split": "random"} if name in ("cora", "pubmed") else {}


def changes(name: str, seed: int, root: str | None, epochs: int) -> list[dict[str, Any]]:
    """Calm days, then days of another graph."""
    records, known, made = [], None, []
    for change, before, after, nodes in changed_graphs(name, seed, root):
        if known is not before:
            known, made = before, list(detectors(model_of(before, seed, epochs), before))
        rng = np.random.default_rng(seed)
        calm_nodes = rng.permutation(before.test_mask.nonzero().flatten().numpy())
        for method, detector in made:
            here, there = Watched.of(detector, before), Watched.of(detector, after)
            days = [here.rows[day] for day in chunks(calm_nodes, BEFORE)]
            days += [there.rows[day] for day in chunks(rng.permutation(nodes), AFTER)]
            found = followed(here, days, seed)
            record = {"kind": "change", "change": change, "graph": name, "method": method, "seed": seed}
            records.append({**record, "before": len(chunks(calm_nodes, BEFORE)), **found})
    return records


def accuracies(name: str, seed: int, root: str | None, epochs: int) -> list[dict[str, Any]]:
    """On test nodes and, of PubMed, on papers of later years by a model of earlier ones."""
    data = drawn_split(name, _graph(name, root), seed)
    detector = Detector(model_of(data, seed, epochs)).fit(data).calibrate(data)
    records = [accuracy(detector, data, data.test_mask | data.fresh_mask, name, MEASURED[0], seed, "test nodes")]
    if name != "pubmed":
        return records
    years = load_benchmark("pubmed-years", shift="time", seed=seed, root=root)
    detector = Detector(model_of(years.id, seed, epochs)).fit(years.id).calibrate(years.id)
    asked = {"test nodes until 1995": (years.id, years.id.test_mask)}
    asked |= {period: (graph, graph.mask) for period, graph in years.ood.items()}
    return records + [accuracy(detector, *each, name, MEASURED[0], seed, at) for at, each in asked.items()]


def accuracy(
    detector: Detector, data: Data, mask: Tensor, name: str, method: str, seed: int, at: str
) -> dict[str, Any]:
    """The estimate of the nodes in the mask that are not flagged, and the truth."""
    decided = detector.decide(data, false_alarm=0.05).of(mask)
    found = estimated_accuracy(detector.calibrated(), decided.probabilities, decided.flags)
    assert found is not None
    right = decided.predicted == data.y[mask]
    truth = float(right[~decided.flags].float().mean())
    record = {"kind": "accuracy", "graph": name, "method": method, "seed": seed, "at": at, "truth": truth}
    return {**record, "all": float(right.float().mean()), "estimate": found.value, "error": found.error}


def main() -> None:
    """Run what has no record yet, then write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", metavar="FOLDER", help="the data root (default: $GNNSAFE_DATA)")
    parser.add_argument("--only", metavar="NAME", choices=GRAPHS, help="one data set")
    parser.add_argument(
        "--streams",
        default="0-49",
        help="which seeds (default: 0-49; 0-2 of changes and accuracies, 0-4 of growing graphs)",
    )
    parser.add_argument("--kinds", default=",".join(SEEDS))
    parser.add_argument("--records", type=Path, default=Path("results/monitor"))
    parser.add_argument("--workers", type=int, default=1, help="processes, a thread each (default: 1)")
    parser.add_argument("--write", action="store_true", help="only write benchmarks/monitor.md from the records")
    arguments = parser.parse_args()
    if not arguments.write:
        low, high = map(int, arguments.streams.split("-"))
        names, kinds = [arguments.only] if arguments.only else GRAPHS, arguments.kinds.split(",")
        groups = [range(first, min(first + STREAMS, high + 1)) for first in range(low, high + 1, STREAMS)]
        tasks = [(kind, name, group, arguments) for group in groups for kind in kinds for name in names]
        with ProcessPoolExecutor(arguments.workers, get_context("spawn")) as workers:
            list(workers.map(_group, tasks))
    from benchmarks.monitor_page import page

    with replacing(Path("benchmarks/monitor.md")) as part:
        part.write_text(page(arguments.records), encoding="utf-8")


def _group(task: tuple[str, str, range, argparse.Namespace]) -> None:
    """The streams of one model."""
    torch.set_num_threads(1)
    kind, name, seeds, arguments = task
    for seed in seeds:
        _kept(kind, name, seed, arguments)


def _kept(kind: str, name: str, seed: int, arguments: argparse.Namespace) -> None:
    file: Path = arguments.records / f"{kind}-{name}-{seed}.json"
    if file.exists() or seed >= SEEDS[kind]:
        return
    start = time.perf_counter()
    runs = {"calm": calm, "growing": growing, "changes": changes, "accuracies": accuracies}
    made = runs[kind](name, seed, arguments.data, EPOCHS[kind])
    with replacing(file) as part:
        part.write_text(json.dumps(made), encoding="utf-8")
    print(f"{file.name} in {time.perf_counter() - start:.1f} s", flush=True)


if __name__ == "__main__":
    main()
