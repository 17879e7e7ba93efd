"""Which nodes of a labelled graph train, validate and test, and how its classes are numbered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from gnnsafe.datasets.splits import large_split, time_split
from gnnsafe.errors import require
from gnnsafe.graph import Data, changed, node_labels
from gnnsafe.held_out import MASKS
from gnnsafe.prepared import check_graph

__all__ = ["known_classes", "renumbered"]


def known_classes(data: Data, seed: int, *, by_time: bool = False) -> Data:
    """The graph with masks and with classes numbered 0, 1, …: those that training nodes have, `class_names` their own.

    A node of another class is OOD by its label: it loses it, and leaves the masks. Masks that the graph has are kept,
    unless it is split `by_time`.
    """
    check_graph(data)
    y = node_labels(data)
    if by_time:
        times: Any = getattr(data, "timestamp", None)
        require(times is not None, "timestamp", "be given to split by time", "none", "add a column 'timestamp'")
        data = time_split(changed(data), y >= 0, times, seed)
    elif "train_mask" not in data:
        data = large_split(changed(data), y >= 0, seed)
    names = _names(data, torch.unique(y[data.train_mask]))
    require(len(names) > 1, "label", "name at least two classes of training nodes", f"{len(names)} of them")
    return renumbered(data, names)


def renumbered(data: Data, own: Sequence[Any]) -> Data:
    """The graph with classes numbered by their place in `own`; nodes of all others lose label and masks."""
    labels = torch.unique(node_labels(data))
    place = {name: number for number, name in enumerate(own)}
    numbers = torch.tensor([place.get(name, -1) if label >= 0 else -1 for label, name in _named(data, labels)])
    y = numbers[torch.searchsorted(labels, data.y)]
    masks = {name: data[name] & (y >= 0) for name in MASKS if name in data}
    return changed(data, y=y, class_names=list(own), **masks)


def _named(data: Data, labels: Tensor) -> list[tuple[int, Any]]:
    return list(zip(labels.tolist(), _names(data, labels), strict=True))


def _names(data: Data, labels: Tensor) -> list[Any]:
    """What the graph calls these labels: by its `class_names`, or by their numbers."""
    names = getattr(data, "class_names", None)
    return [label if names is None or label < 0 else names[label] for label in labels.tolist()]
