"""Benchmarks: an in-distribution graph, exposure nodes, and OOD test nodes."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, get_args

import numpy as np
import torch

from gnnsafe.datasets import shifts
from gnnsafe.datasets.catalogue import CONTROLS, DATASETS, Dataset, Parts, synthetic_dataset
from gnnsafe.datasets.shifts.graphs import TestNodes
from gnnsafe.errors import require, require_known, require_seed
from gnnsafe.graph import Data, changed, moved

__all__ = ["Benchmark", "load_benchmark"]

Split = Literal["public", "random"]
Head = Literal["all", "id"]


@dataclass(frozen=True)
class Benchmark:
    """One data set under one shift.

    `id` has `train_mask`, `val_mask` and `test_mask`; `exposure` (None where the shift leaves no class for it) and each
    graph of `ood` have `mask`, the nodes that count. An OOD graph with a `test_mask` of its own has ID nodes among its
    OOD nodes, against which these are told apart. The classifier has `num_classes` outputs: one per class of the whole
    data set, or with `head="id"` one per class that some ID node has.

    Args:
        name: The data set.
        shift: The shift.
        seed: Of the shift and, where it is drawn, of the split.
        id: The in-distribution graph, to train on.
        exposure: OOD nodes that may be seen in training.
        ood: OOD graphs by name.
        num_classes: How many outputs the classifier has.
        source: Where the files came from, for the record.
    """

    name: str
    shift: str
    seed: int
    id: Data
    exposure: Data | None
    ood: dict[str, Data]
    num_classes: int
    source: str

    def to(self, device: torch.device | str) -> Benchmark:
        """The same with all graphs on that device.

        Args:
            device: Such as "cuda".

        Returns:
            A new benchmark.
        """
        exposure = None if self.exposure is None else moved(self.exposure, device)
        ood = {name: moved(graph, device) for name, graph in self.ood.items()}
        return replace(self, id=moved(self.id, device), exposure=exposure, ood=ood)


def load_benchmark(
    name: str,
    *,
    shift: str,
    seed: int = 0,
    root: str | os.PathLike[str] | None = None,
    test_nodes: TestNodes = "all",
    split: Split = "public",
    head: Head = "all",
    **size: int,
) -> Benchmark:
    """A data set under a shift: `load_benchmark("cora", shift="structure")`; `gnnsafe datasets` lists them.

    Where the shift is drawn at random, the OOD graph is the first draw and the exposure graph the second. All their
    nodes count. Label shift: see `label_classes`. The same arguments give the same benchmark to the bit.

    Args:
        name: The data set.
        shift: Which of its shifts.
        seed: Of the shift and, where it is drawn, of the split.
        root: A folder with the raw files, laid out as PyG does; by default `$GNNSAFE_DATA`, then a package that
            carries them, then a download.
        test_nodes: "id-test": only those nodes count that are ID test nodes in the original (planted shifts choose
            their nodes themselves), as in the rigorous protocol.
        split: "random": the seed draws the split where the data set has a public one, too, 20 per class/500/1000.
        head: "id": classes that no ID node has get no output; the others are numbered 0, 1, …, and the nodes of
            left-out classes have no label, −1.
        **size: Of `synthetic` alone: any of `nodes`, `edges`, `features` and `classes`.

    Returns:
        `.id` (the graph with its masks), `.exposure` and `.ood` (name → graph), whose `.mask` says which nodes count.

    Raises:
        UnknownNameError: There is no such data set, shift or option.
        DataNotFoundError: Its files were not found.
        InputError: The files are not what was published.

    >>> graphs = load_benchmark("synthetic", shift="feature", nodes=300, edges=1500, features=16, classes=3)
    >>> graphs.id.num_nodes, graphs.num_classes, list(graphs.ood)
    (300, 3, ['feature'])
    """
    require_known("name", name, DATASETS)
    for option in size:
        require(name == "synthetic", option, "be given only for 'synthetic'", repr(size[option]))
        require_known("option", option, ("nodes", "edges", "features", "classes"))
    dataset = synthetic_dataset(**size) if size else DATASETS[name]
    require_known("shift", shift, dataset.shifts)
    require_known("test_nodes", test_nodes, get_args(TestNodes))
    require_known("split", split, get_args(Split))
    require_known("head", head, get_args(Head))
    require_seed(seed)
    if shift in dataset.own:
        parts, source = dataset.own[shift](root, seed)
    else:
        data, source = _whole(dataset, root, seed, split)
        if shift in CONTROLS:
            parts = _control(data, shift, seed)
        else:
            parts = _single_graph(data, shift, seed, test_nodes, dataset.middle)
    if head == "id":
        parts = _id_classes_only(*parts)
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


def _whole(dataset: Dataset, root: str | os.PathLike[str] | None, seed: int, split: Split) -> tuple[Data, str]:
    """The one graph of a data set, or the ID graph of its own shift."""
    graph = dataset.redrawn if split == "random" and dataset.redrawn is not None else dataset.graph
    if graph is not None:
        return graph(root, seed)
    (inside, _, _), source = next(iter(dataset.own.values()))(root, seed)
    return inside, source


def _control(data: Data, shift: str, seed: int) -> Parts:
    """ID against ID: nothing is to be told apart, and nothing is exposed."""
    drawn = int(np.random.SeedSequence(seed).generate_state(1)[0])
    if shift == "control-nothing":
        return data, None, {shift: shifts.nothing(data, drawn)}
    here, there = shifts.other_half(data, drawn)
    return here, None, {shift: there}


def _id_classes_only(inside: Data, exposure: Data | None, outside: dict[str, Data]) -> Parts:
    split = inside.train_mask | inside.val_mask | inside.test_mask
    classes = inside.y[split].unique()  # in order

    def renumbered(graph: Data) -> Data:
        place = torch.searchsorted(classes, graph.y).clamp(max=len(classes) - 1)
        return changed(graph, y=place.where(classes[place] == graph.y, -1))

    seen = None if exposure is None else renumbered(exposure)
    return renumbered(inside), seen, {name: renumbered(graph) for name, graph in outside.items()}


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
