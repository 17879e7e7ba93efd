"""The classes that methods read: one of several per node, and which training nodes have which."""

from __future__ import annotations

import torch
from torch import Tensor

from gnnsafe.checks import Task, check_binary, check_classes, check_labels
from gnnsafe.errors import require
from gnnsafe.methods.base import Method
from gnnsafe.outputs import Outputs

__all__ = ["check_multiclass", "class_members"]


def check_multiclass(method: Method, outputs: Outputs) -> None:
    """Said by a method that has no meaning for sigmoid heads."""
    require(outputs.task == "multiclass", "task", f"be 'multiclass' for {method!r}", repr(outputs.task))


def class_members(y: Tensor, mask: Tensor, num_classes: int, *, task: Task, dtype: torch.dtype) -> Tensor:
    """Which of the nodes in `mask` belong to which class: [nodes, classes] of zeros and ones.

    Multilabel: having a label and not having it are a class each, [nodes, 2 · labels].

    >>> class_members(torch.tensor([1, 0]), torch.tensor([True, True]), 2, task="multiclass", dtype=torch.float32)
    tensor([[0., 1.],
            [1., 0.]])
    """
    labels = check_labels("y", y, len(mask), task)[mask]
    if task == "multilabel":
        check_binary("y", labels, num_classes, "the training mask")
        return torch.cat([labels, 1 - labels.to(dtype)], dim=1)
    check_classes("y", labels, num_classes, "training nodes")
    return torch.nn.functional.one_hot(labels, num_classes).to(dtype)
