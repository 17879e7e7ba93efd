"""Benchmarks: an in-distribution graph, exposure nodes, and OOD test nodes."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from gnnsafe.datasets import shifts
from gnnsafe.datasets.catalogue import DATASETS, Parts, synthetic_dataset
from gnnsafe.datasets.shifts.graphs import TestNodes
from gnnsafe.errors import require, require_known
from gnnsafe.graph import Data

__all__ = ["Benchmark", "load_benchmark"]


@dataclass(frozen=True)
class Benchmark:
    """One data set under one shift.

    `id` has `train_mask`, `val_mask` and `test_mask`; `exposure` (None where the shift leaves no class for it) and each
    graph of `ood` have `mask`, the nodes that count. An OOD graph with a `test_mask` of its own has ID nodes among its
    OOD nodes, against which these are told apart. The classifier has one output per class of the whole data set:
    `num_classes`.
    """

    name: str
    shift: str
    seed: int
    id: Data
    exposure: Data | None
    ood: dict[str, Data]
    num_classes: int
    source: str


def load_benchmark(
    name: str,
    *,
    shift: str,
    seed: int = 0,
    root: str | os.PathLike[str] | None = None,
    test_nodes: TestNodes = "all",
    **size: int,
) -> Benchmark:
    """A data set under a shift: `load_benchmark("cora", shift="structure")`; `gnnsafe datasets` lists them.

    Where the shift is drawn at random, the OOD graph is the first draw and the exposure graph the second. All their
    nodes count; with `test_nodes="id-test"`, the rigorous protocol's choice, only those that are ID test nodes in the
    original do (planted shifts choose their nodes themselves). Label shift: see `label_classes`. `synthetic` takes a
    size: any of `nodes`, `edges`, `features` and `classes`.
    """
    require_known("name", name, DATASETS)
    for option in size:
        require(name == "synthetic", option, "be left out but for 'synthetic'", repr(size[option]))
        require_known("option", option, ("nodes", "edges", "features", "classes"))
    dataset = synthetic_dataset(**size) if size else DATASETS[name]
    require_known("shift", shift, dataset.shifts)
    require_known("test_nodes", test_nodes, ("all", "id-test"))
    require(isinstance(seed, int) and seed >= 0, "seed", "be a whole number >= 0", seed)
    if shift in dataset.own:
        parts, source = dataset.own[shift](root, seed)
    else:
        assert dataset.graph is not None
        data, source = dataset.graph(root, seed)
        parts = _single_graph(data, shift, seed, test_nodes, dataset.middle)
    return Benchmark(name, shift, seed, *parts, num_classes=int(parts[0].y.max()) + 1, source=source)


def label_classes(num_classes: int, middle: int | None = None) -> tuple[set[int], set[int]]:
    """The classes left out as OOD and as exposure: those below the middle one, and the middle one.

    The middle class is C // 2, or lower where that would leave fewer than two ID classes above it; with three classes
    there is none to spare for exposure. The paper sets it to 3, 4, 4 for Cora, Amazon-Photo and Coauthor-CS.

    >>> label_classes(7), label_classes(4), label_classes(3)
    (({0, 1, 2}, {3}), ({0}, {1}), ({0}, set()))
    """
    require(num_classes >= 3, "data", "have at least 3 classes for a label shift", num_classes)
    if num_classes == 3:
        return {0}, set()
    middle = min(num_classes // 2, num_classes - 3) if middle is None else middle
    return set(range(middle)), {middle}


def _single_graph(data: Data, shift: str, seed: int, test_nodes: TestNodes, middle: int | None) -> Parts:
    if shift == "label":
        ood, exposure = label_classes(int(data.y.max()) + 1, middle)
        inside, seen, unseen = shifts.label(data, ood=ood, exposure=exposure)
        return inside, seen if exposure else None, {shift: unseen}
    draws: dict[str, Callable[..., Data]] = {
        "structure": partial(shifts.structure, test_nodes=test_nodes),
        "feature": partial(shifts.feature, test_nodes=test_nodes),
        "rewire": partial(shifts.rewire, test_nodes=test_nodes),
        "feature-noise": partial(shifts.feature_noise, test_nodes=test_nodes),
        "perturb-edges": partial(shifts.perturb_edges, rate=0.5, test_nodes=test_nodes),
        "planted-feature": partial(shifts.planted, kind="feature"),
        "planted-structure": partial(shifts.planted, kind="structure"),
    }
    first, second = np.random.SeedSequence(seed).generate_state(2).tolist()
    return data, draws[shift](data, second), {shift: draws[shift](data, first)}
