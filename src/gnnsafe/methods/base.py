"""What a method is: fit on a model's outputs, score a model's outputs."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import field, fields
from typing import Any, ClassVar, Literal, TypeVar

import torch
from torch import Tensor

from gnnsafe.arguments import PlainNumbers
from gnnsafe.borrowed import without_autocast
from gnnsafe.checks import Task, check_binary, check_classes, check_finite, check_labels, check_mask, check_tensor
from gnnsafe.errors import NotFittedError, require
from gnnsafe.outputs import Outputs
from gnnsafe.propagation import Unpropagated

__all__ = ["Kind", "Method", "check_multiclass", "class_members", "fitted", "scores_of", "unpropagated_of"]

AnyMethod = TypeVar("AnyMethod", bound="Method")
FLOATS = (torch.float32, torch.float64)
Kind = Literal["post-hoc", "model", "transductive", "trivial"]


def fitted() -> Any:
    """A field that `fit` sets: no argument, no part of the method's `repr`; its name ends in `_`."""
    return field(init=False, repr=False, compare=False)


class Method(metaclass=PlainNumbers):
    """How to score: a small dataclass that knows no model, no file and no threshold."""

    kind: ClassVar[Kind] = "post-hoc"
    """What it needs: any classifier, a model made for it, the training graph beside the new one, or no model at all."""

    def fit(self: AnyMethod, outputs: Outputs, y: Tensor, mask: Tensor) -> AnyMethod:
        """Learn from the training nodes (those in `mask`) what in-distribution looks like; returns itself.

        A method with nothing to learn keeps this one, which only checks its arguments; one that has calls it first.
        """
        check_labels("y", y, len(outputs.logits), outputs.task)
        check_mask("mask", mask, len(outputs.logits))
        return self

    @abstractmethod
    def score(self, outputs: Outputs) -> Tensor:
        """Float32, one per node, higher = more out-of-distribution."""

    def unpropagated(self, outputs: Outputs) -> Unpropagated:
        """What propagation, where it has the last word, makes the score of; the score itself where it has not."""
        return Unpropagated(self.score(outputs))

    def reach(self) -> int | None:
        """From how many edges away other nodes' outputs count in a node's score; None where it may be any number."""
        return 0

    def needs_model(self) -> bool:
        """Whether it reads anything but the graph."""
        return self.kind != "trivial"

    def learns_from_validation(self) -> bool:
        """Whether `fit` reads the graph's `val_mask`: those nodes are no longer held out."""
        return False

    @classmethod
    def needs_fitting(cls) -> bool:
        """Whether `fit` has anything to learn."""
        return any(name.endswith("_") for name in _fields(cls))

    def __getattr__(self, name: str) -> Any:
        """Only asked for what is not there: a fitted field before the fit."""
        if name in _fields(type(self)):
            raise NotFittedError(f"{self!r} is not fitted; call fit(outputs, y, mask) on the training graph first")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


def scores_of(method: Method, outputs: Outputs) -> Tensor:
    """The method's scores, once they are known to be float32, one per node and finite: whoever scores asks here."""
    with without_autocast():
        return _checked(method, "score", method.score(outputs), len(outputs.logits))


def unpropagated_of(method: Method, outputs: Outputs) -> Unpropagated:
    """What propagation makes the method's scores of, once its scores are known to be such too."""
    with without_autocast():
        before = method.unpropagated(outputs)
    return before._replace(scores=_checked(method, "unpropagated", before.scores, len(outputs.logits)))


def _checked(method: Method, call: str, scores: object, num_nodes: int) -> Tensor:
    tensor = scores.detach().float() if isinstance(scores, Tensor) and scores.dtype in FLOATS else None
    if tensor is not None and tensor.shape == (num_nodes,) and math.isfinite(float(tensor.sum())):
        return tensor
    name = f"{method!r}.{call}(outputs)"  # in words only where they are needed: they cost more than the check
    given = check_tensor(name, scores)
    fits = given.shape == (num_nodes,) and given.dtype in FLOATS
    require(fits, name, f"be float32 numbers of shape [{num_nodes}]", f"{given.dtype} {list(given.shape)}")
    check_finite(name, given.float())
    return given.detach().float()


def check_multiclass(method: Method, outputs: Outputs) -> None:
    """Said by a method that has no meaning for sigmoid heads."""
    require(outputs.task == "multiclass", "task", f"be 'multiclass' for {method!r}", repr(outputs.task))


def _fields(cls: type) -> list[str]:
    return [field.name for field in fields(cls)] if hasattr(cls, "__dataclass_fields__") else []


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
