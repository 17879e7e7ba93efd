"""A model in stages, so that training can compute once what two passes share.

`model(graph)`, of a prepared graph, equals `tail(stem(prepare(graph)), prepare(graph))`, where `prepare` reads only the
graph and `stem` behaves the same in training and in evaluation mode. The validation pass of one epoch and the
training pass of the next have the same weights, hence the same stem.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Protocol, cast, runtime_checkable

from torch import Tensor, nn

from gnnsafe.calling import passed
from gnnsafe.prepared import PreparedGraph

__all__ = ["Staged", "Whole", "staged"]

STAGES = ("prepare", "stem", "tail")


@runtime_checkable
class Staged(Protocol):
    """The three stages of a forward."""

    def prepare(self, graph: PreparedGraph) -> Any:
        """What depends on the graph alone."""
        ...

    def stem(self, inputs: Any) -> Tensor:
        """The first part of the forward: no dropout, no batch statistics."""
        ...

    def tail(self, hidden: Tensor, inputs: Any) -> Tensor:
        """The rest of the forward, to the logits."""
        ...


class Whole:
    """A user's model as stages: all of it is the tail."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model

    def prepare(self, graph: PreparedGraph) -> PreparedGraph:
        """The graph as it is."""
        return graph

    def stem(self, inputs: PreparedGraph) -> Tensor:
        """The features as they are."""
        return inputs.x

    def tail(self, hidden: Tensor, inputs: PreparedGraph) -> Tensor:
        """The model's own forward, with what the graph holds of what it takes."""
        logits: Tensor = self.model(hidden, inputs.edge_index, **passed(self.model, inputs))
        return logits


def staged(model: nn.Module) -> Staged:
    """The model itself where its stages are its forward, else all of it as one.

    They are where the forward is defined beside the stages or above them, and so calls them; not where a subclass or
    a user's code gave the model another forward, or hooks that a forward would call.
    """
    hooked = "forward" in vars(model) or model._forward_hooks or model._forward_pre_hooks or model._backward_hooks
    in_stages = not hooked and _in_stages(cast(Any, type(model)), getattr(type(model), "forward", None))
    return cast(Staged, model) if in_stages else Whole(model)


@lru_cache
def _in_stages(kind: Any, _forward: object) -> bool:
    """Whether this kind of model, as long as it has this forward, defines it beside its stages or above them."""
    if not all(hasattr(kind, name) for name in STAGES):
        return False
    forward, *stages = (next(cls for cls in kind.__mro__ if name in vars(cls)) for name in ("forward", *STAGES))
    return all(issubclass(stage, forward) for stage in stages)
