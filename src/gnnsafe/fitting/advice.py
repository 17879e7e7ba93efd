"""What points against relying on a detector that was just trained, each in a line with its remedy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from gnnsafe.calibration import nodes_needed
from gnnsafe.detector import Detector
from gnnsafe.errors import CalibrationWarning, GnnsafeWarning, HeterophilyWarning, TrainingWarning
from gnnsafe.fitting.backbones import AUTO, Trained, TrainingSetup, best
from gnnsafe.graph import Data
from gnnsafe.homophily import HETEROPHILIC, label_homophily

__all__ = ["advise", "one_way"]

SIGNIFICANT = 0.05
RECIPROCAL = 0.1  # the share of edges with a reverse, below which edges look one-way
WITHOUT_INCOMING = 0.2  # the share of nodes with out-neighbours but no in-neighbours, above which that costs


def advise(
    trained: Trained, tried: Sequence[Trained], data: Data, detector: Detector, calibrated_on: str, setup: TrainingSetup
) -> tuple[list[Trained], list[GnnsafeWarning]]:
    """The backbones that were tried on a heterophilous graph besides, and all warnings."""
    rivals, warnings = _heterophily(trained, tried, data, setup, compare=detector.method.model is None)
    predicted = detector.outputs(data).logits.argmax(dim=1)
    found = (_majority(predicted, data), _epochs(trained), _edges(data), _calibration(data, calibrated_on))
    return rivals, [*(warning for each in found for warning in each), *warnings]


def _majority(predicted: Tensor, data: Data) -> Iterator[TrainingWarning]:
    """Whether the model is right where the largest class is not, more often than the reverse (a sign test)."""
    from scipy.stats import binomtest

    largest = int(torch.bincount(data.y[data.train_mask]).argmax())
    y, answers = data.y[data.val_mask], predicted[data.val_mask]
    gained, lost = (int((one & ~other).sum()) for one, other in _both_ways(answers == y, y == largest))
    if gained + lost and binomtest(gained, gained + lost, alternative="greater").pvalue <= SIGNIFICANT:
        return
    right, always = _share(answers == y), f"always saying '{data.class_names[largest]}' ({_share(y == largest)})"
    if gained > 2 * lost:  # which many nodes would show
        yield TrainingWarning(
            f"the model is right on {right} of {len(y):,} validation nodes: too few to tell that it is better than "
            f"{always}; give more of them"
        )
        return
    yield TrainingWarning(
        f"the model is right on {right} of {len(y):,} validation nodes, no better than {always}: its scores say "
        "little; check features and labels, or try --backbone auto"
    )


def _both_ways(one: Tensor, other: Tensor) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    return (one, other), (other, one)


def _share(right: Tensor) -> str:
    return f"{float(right.double().mean()):.1%}"


def _epochs(trained: Trained) -> Iterator[TrainingWarning]:
    epochs = len(trained.history.loss)
    if trained.history.best_epoch == epochs - 1:
        yield TrainingWarning(
            f"the best epoch is the last of {epochs}: the model was still learning; try --epochs {2 * epochs}"
        )


def one_way(edge_index: Tensor, num_nodes: int) -> tuple[float, float]:
    """The share of edges whose reverse is there too, and of nodes with out-neighbours but no in-neighbours.

    Self-loops do not count, and a repeated edge counts once.

    >>> one_way(torch.tensor([[0, 1, 1, 2], [1, 0, 2, 2]]), 4)
    (0.666..., 0.0)
    """
    source, target = edge_index[:, edge_index[0] != edge_index[1]].long()  # whose products int32 need not hold
    if len(source) == 0:
        return 1.0, 0.0
    edges = torch.unique(source * num_nodes + target)
    reciprocal = float(torch.isin((edges % num_nodes) * num_nodes + edges // num_nodes, edges).double().mean())
    points, reached = (torch.bincount(end, minlength=num_nodes) > 0 for end in (source, target))
    return reciprocal, float((points & ~reached).double().mean())


def _edges(data: Data) -> Iterator[TrainingWarning]:
    reciprocal, unheard = one_way(data.edge_index, data.num_nodes)
    if reciprocal < RECIPROCAL and unheard > WITHOUT_INCOMING:
        yield TrainingWarning(
            f"edges look one-way: {reciprocal:.0%} have a reverse, and {unheard:.0%} of the nodes point to others and "
            "have no in-neighbours; where a link means the same both ways, use --undirected"
        )


def _calibration(data: Data, calibrated_on: str) -> Iterator[CalibrationWarning]:
    count = int(data[calibrated_on].sum())
    few = [f"{level:.0%} of false alarms ({nodes_needed(level)} are needed)" for level in (0.05, 0.01)]
    never = [text for text, level in zip(few, (0.05, 0.01), strict=True) if count < nodes_needed(level)]
    if never:
        yield CalibrationWarning(
            f"{count} calibration nodes are too few to ever flag a node at {' or at '.join(never)}; label more nodes, "
            f"or give more of them to {calibrated_on.removesuffix('_mask')}"
        )


def _heterophily(
    trained: Trained, tried: Sequence[Trained], data: Data, setup: TrainingSetup, *, compare: bool
) -> tuple[list[Trained], list[GnnsafeWarning]]:
    """On a heterophilous graph, what the other backbones reach: each is trained to say so, if they may `compare`."""
    alike = label_homophily(data.y, data.train_mask | data.val_mask, data.edge_index)
    if alike is None or not alike[1] < HETEROPHILIC:
        return [], []
    names = {one.backbone for one in tried}
    rivals = [] if len(tried) > 1 or not compare else [setup(name) for name in AUTO if name not in names]
    every = sorted([*tried, *rivals], key=lambda one: -one.accuracy)
    reached = ", ".join(f"{one.backbone} {one.accuracy:.1%}" for one in every)
    winner = best([*tried, *rivals])
    remedy = f"{trained.backbone} suits it best"
    if winner.accuracy > trained.accuracy:
        remedy = f"use --backbone {winner.backbone}"
    elif sum(one.accuracy == trained.accuracy for one in every) > 1:
        remedy = f"none is better than {trained.backbone}"
    text = (
        f"neighbours are hardly more alike than by chance ({alike[0]:.0%} of edges join nodes of one class, "
        f"{alike[1]:.2f} beyond chance), so propagated scores may mislead: compare with --method energy; right on "
        f"validation nodes: {reached}: {remedy}"
    )
    return rivals, [HeterophilyWarning(text)]
