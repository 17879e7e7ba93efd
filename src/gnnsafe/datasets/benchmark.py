"""Benchmarks: an in-distribution graph, exposure nodes, and OOD test nodes, by the paper's protocol."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np

from gnnsafe.datasets import shifts
from gnnsafe.datasets.cora import cora
from gnnsafe.errors import require, require_known

__all__ = ["DATASETS", "SHIFTS", "Benchmark", "load_benchmark"]

Data = Any  # PyG's class, whose package ships no types

DATASETS = {"cora": cora}
SHIFTS = ("structure", "feature", "label")


@dataclass(frozen=True)
class Benchmark:
    """One data set under one shift.

    `id` has `train_mask`, `val_mask` and `test_mask`; `exposure` and each graph of `ood` have `mask`, the nodes that
    count. The classifier has one output per class of the whole data set: `num_classes`.
    """

    name: str
    shift: str
    seed: int
    id: Data
    exposure: Data
    ood: dict[str, Data]
    num_classes: int
    source: str


def load_benchmark(name: str, *, shift: str, seed: int = 0, root: str | os.PathLike[str] | None = None) -> Benchmark:
    """A data set under a shift: `load_benchmark("cora", shift="structure")`.

    Structure and feature shifts: the OOD graph is the first draw of the shift, the exposure graph the second, and all
    their nodes count. Label shift: classes above the median are ID, the median one is exposure, those below it OOD.
    """
    require_known("name", name, DATASETS)
    require_known("shift", shift, SHIFTS)
    require(isinstance(seed, int) and seed >= 0, "seed", "be a whole number >= 0", seed)
    data, source = DATASETS[name](root, seed=seed)
    num_classes = int(data.y.max()) + 1
    if shift == "label":
        middle = (num_classes - 1) // 2
        inside, exposure, ood = shifts.label(data, ood=set(range(middle)), exposure={middle})
    else:
        draw = {"structure": shifts.structure, "feature": shifts.feature}[shift]
        first, second = np.random.SeedSequence(seed).generate_state(2).tolist()
        inside, ood, exposure = data, draw(data, first), draw(data, second)
    return Benchmark(name, shift, seed, inside, exposure, {shift: ood}, num_classes, source)
