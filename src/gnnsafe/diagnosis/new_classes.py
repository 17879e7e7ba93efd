"""A new class without retraining: one that the model knows is taken out of all that detectors see.

The class loses its logit, and its nodes leave the training and validation masks, so that banks and class means know
nothing of it; its test nodes are then the unknown. The other logits and the embeddings still come from a model that has
seen the class: figures are optimistic, and a class that training never saw is harder to find.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from gnnsafe.datasets.shifts.graphs import dice
from gnnsafe.graph import node_labels
from gnnsafe.outputs import Outputs

__all__ = ["LEAST_NODES", "MOST_CLASSES", "class_left_out", "possible_classes"]

LEAST_NODES = 10  # test nodes of a class, below which its AUROC says little
MOST_CLASSES = 10


class WithoutClass:
    """A classifier that lacks the logit of one class, however it is called."""

    def __init__(self, classifier: Any, number: int) -> None:
        self.classifier, self.number = classifier, number

    def __call__(self, graph: Any, **asked: Any) -> Outputs:
        """The classifier's outputs without that class."""
        return narrowed(self.classifier(graph, **asked), self.number)

    def __getattr__(self, name: str) -> Any:
        """All else is the classifier's."""
        return getattr(self.classifier, name)


def narrowed(outputs: Outputs, number: int) -> Outputs:
    """The outputs without that class's logit, of a model that lacks it when it runs again."""
    kept = torch.arange(outputs.logits.shape[1], device=outputs.logits.device) != number
    model: Any = WithoutClass(outputs.classifier, number)
    return replace(outputs, logits=outputs.logits[:, kept], classifier=model)


def class_left_out(outputs: Outputs, number: int) -> Outputs:
    """The same outputs, for detectors that do not know that class; the others are numbered 0, 1, …"""
    graph = outputs.graph
    y = node_labels(graph)
    masks = {name: getattr(graph, name, None) for name in ("train_mask", "val_mask")}
    known = {name: mask & (y != number) for name, mask in masks.items() if mask is not None}
    renumbered = (y - (y > number).long()).where(y != number, -1)
    return narrowed(replace(outputs, graph=graph.with_labels(y=renumbered, **known)), number)


def possible_classes(outputs: Outputs, test: Tensor, seed: int) -> tuple[list[int], str]:
    """The classes that can play the unknown, at most ten of them drawn from the seed; or why there are none."""
    if outputs.classifier is None:
        return [], "there is no model whose classes could be left out"
    if outputs.task != "multiclass":
        return [], "it takes a multiclass model: labels of a multilabel model have no 'other' class"
    if (count := outputs.logits.shape[1]) < 3:
        return [], f"it takes at least 3 classes, so that 2 are left (the model has {count})"
    y, train = node_labels(outputs.graph), outputs.graph.train_mask
    taught, held_out = (torch.bincount(y[mask & (y >= 0)], minlength=count)[:count] for mask in (train, test))
    found = ((held_out >= LEAST_NODES) & (taught > 0)).nonzero().flatten().tolist()
    if len(found) < 2:
        return [], f"it takes at least 2 classes with {LEAST_NODES} labelled test nodes each (there are {len(found)})"
    return sorted(dice(seed).permutation(found)[:MOST_CLASSES].tolist()), ""
