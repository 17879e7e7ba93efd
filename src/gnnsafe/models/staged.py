"""A model in stages, so that training can compute once what two passes share.

`model(x, edge_index)` equals `tail(stem(prepare(x, edge_index)), prepare(x, edge_index))`, where `prepare` reads only
the graph and `stem` behaves the same in training and in evaluation mode. The validation pass of one epoch and the
training pass of the next have the same weights, hence the same stem.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from torch import Tensor, nn

__all__ = ["Staged", "Whole", "staged"]

STAGES = ("prepare", "stem", "tail")


@runtime_checkable
class Staged(Protocol):
    """The three stages of a forward."""

    def prepare(self, x: Tensor, edge_index: Tensor) -> Any:
        """What depends on the graph alone."""
        ...

    def stem(self, inputs: Any) -> Tensor:
        """The first part of the forward: no dropout, no batch statistics."""
        ...

    def tail(self, hidden: Tensor, inputs: Any) -> Tensor:
        """The rest of the forward, to the logits."""
        ...


class Whole:
    """Somebody's model as stages: all of it is the tail."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model

    def prepare(self, x: Tensor, edge_index: Tensor) -> tuple[Tensor, Tensor]:
        """The graph as it is."""
        return x, edge_index

    def stem(self, inputs: tuple[Tensor, Tensor]) -> Tensor:
        """The features as they are."""
        return inputs[0]

    def tail(self, hidden: Tensor, inputs: tuple[Tensor, Tensor]) -> Tensor:
        """The model's own forward."""
        logits: Tensor = self.model(hidden, inputs[1])
        return logits


def staged(model: nn.Module) -> Staged:
    """The model itself where its stages are its forward, else all of it as one.

    They are where the forward is defined beside the stages or above them, and so calls them; not where a subclass or
    somebody's code gave the model another forward, or hooks that a forward would call.
    """
    hooked = "forward" in vars(model) or model._forward_hooks or model._forward_pre_hooks or model._backward_hooks
    if not isinstance(model, Staged) or hooked:
        return Whole(model)
    forward, *stages = (next(cls for cls in type(model).__mro__ if name in vars(cls)) for name in ("forward", *STAGES))
    return model if all(issubclass(stage, forward) for stage in stages) else Whole(model)
