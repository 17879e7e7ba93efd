"""What a method is: fit on a model's outputs, score a model's outputs."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import field, fields
from inspect import isfunction
from typing import Any, ClassVar, Literal, Self, final

from torch import Tensor

from gnnsafe.arguments import PlainNumbers
from gnnsafe.checks import check_labels, check_mask
from gnnsafe.devices import on_device
from gnnsafe.errors import NotFittedError, require, require_whole
from gnnsafe.methods.reasons import Reasons
from gnnsafe.methods.scored import Scored, scored_rows
from gnnsafe.modes import without_modes
from gnnsafe.outputs import Outputs
from gnnsafe.prepared import PreparedGraph
from gnnsafe.propagation import Propagation

__all__ = ["Kind", "Method", "fitted"]

REMEDIES = {
    "score": "write base_scores(outputs), the scores before propagation, and a property propagation where there is any",
    "reach": "say base_reach, the receptive field of the base scores in hops",
    "scored": "write base_scores(outputs), the scores before propagation",
}
Kind = Literal["post-hoc", "model", "transductive", "trivial"]


def fitted() -> Any:
    """A field that `fit` sets: no argument, no part of the method's `repr`; its name ends in `_`."""
    return field(init=False, repr=False, compare=False)


class Method(metaclass=PlainNumbers):
    """How to score: a small dataclass that knows no model, no file and no threshold.

    It gives its scores before propagation (`base_scores`) and, as data, how they are propagated (`propagation`) and how
    large their receptive field is (`base_reach`).
    """

    kind: ClassVar[Kind] = "post-hoc"
    """What it needs: any classifier, a model made for it, the training graph beside the new one, or no model at all."""

    objective: ClassVar[str] = "cross-entropy"
    """The objective, a name in `OBJECTIVES`, that its model is trained by."""

    model: ClassVar[str | None] = None
    """The model, a name in `MODELS`, that it alone reads; None: any backbone."""

    tells: ClassVar[bool] = False
    """Whether p-values ask what in-neighbours `told`."""

    def __init_subclass__(cls) -> None:
        """`score` and `reach` are Method's; other base scores have another receptive field and say something else."""
        super().__init_subclass__()
        for name, remedy in REMEDIES.items():
            left = getattr(cls, name) is getattr(Method, name)
            require(left, f"{cls.__name__}.{name}", "be left to Method", "one of its own", remedy)
        for name in ("base_reach", "propagation", "says"):
            called, remedy = isfunction(getattr(cls, name)), "put @property before it"
            require(not called, f"{cls.__name__}.{name}", "be a value or a property", "a function", remedy)
        for name in ("base_reach", "says"):
            if _place(cls, "base_scores") < _place(cls, name):
                setattr(cls, name, getattr(Method, name))

    def fit(self, outputs: Outputs, y: Tensor, mask: Tensor) -> Self:
        """Learn from the training nodes (those in `mask`) what in-distribution looks like; returns itself.

        A method with nothing to learn keeps this one, which only checks its arguments; one that has calls it first.

        Args:
            outputs: The model's outputs on the training graph.
            y: The class of each node, or a 0 or 1 per label.
            mask: The training nodes.

        Returns:
            The method itself.

        Raises:
            InputError: Labels or mask are not of the graph's size or kind, or there is nothing to learn from.
        """
        check_labels("y", y, len(outputs.logits), outputs.task)
        check_mask("mask", mask, len(outputs.logits))
        return self

    @abstractmethod
    def base_scores(self, outputs: Outputs) -> Tensor:
        """The scores before propagation: float32, one per node, higher = more out-of-distribution.

        Args:
            outputs: The model's outputs on a graph.

        Returns:
            A score for each node.

        Raises:
            NotFittedError: The method has something to learn and is not fitted.
        """

    @property
    def base_reach(self) -> int | None:
        """Receptive field of the base scores in hops: how many edges away nodes count; None: unknown, or any number.

        A class says it by `base_reach = 0`, where a node's own outputs are all that counts, or by a property.
        """
        return None

    @property
    def propagation(self) -> Propagation:
        """How the base scores are propagated: not at all, unless a class says otherwise."""
        return Propagation()

    @property
    def says(self) -> str:
        """What a high score says of a node, in plain words for `explain`; a class says it by `says = "…"`."""
        return type(self).__name__

    def looking_at(self, graph: PreparedGraph) -> Self:
        """The method, having looked at a whole graph before it is asked about nodes: itself, unless it minds others.

        Args:
            graph: The graph.

        Returns:
            A method that reads nodes of this graph.
        """
        return self

    def heard(self, outputs: Outputs) -> Outputs:
        """The outputs that its parts read: these, unless some nodes are not to be heard by their neighbours.

        Args:
            outputs: The model's outputs on a graph.

        Returns:
            The same, or the model's outputs on fewer edges.
        """
        return outputs

    def rows(self, outputs: Outputs) -> Tensor:
        """What it knows of each node: its base scores, or, of a method that weighs them, evidence [nodes, parts].

        Args:
            outputs: The model's outputs on a graph.

        Returns:
            One row, or one number, per node.
        """
        return self.base_scores(outputs)

    def for_graph(self, rows: Tensor) -> Self:
        """The method, having read the rows of all nodes of a graph: itself where each node is scored by itself.

        Args:
            rows: What `rows` gave for all nodes of the graph.

        Returns:
            A method that scores nodes of this graph.
        """
        return self

    def weighed(self, rows: Tensor) -> Tensor:
        """The base scores of rows, as the graph that was seen last weighs them.

        Args:
            rows: What `rows` gave.

        Returns:
            A base score for each of them.
        """
        return rows

    def told(self, rows: Tensor) -> Tensor | None:
        """What nodes tell those that they point to, one number each: `comparable` hears the mean over in-neighbours.

        A class whose nodes tell anything says so by `tells = True`.

        Args:
            rows: What `rows` gave.

        Returns:
            A number for each of them, or None where nothing is told.
        """
        return None

    def comparable(self, rows: Tensor, around: Tensor | None = None) -> Tensor | None:
        """The same on a scale on which ID nodes of any graph are alike: what p-values compare.

        None unless a method weighs evidence by the graph: then p-values compare the scores.

        Args:
            rows: What `rows` gave.
            around: For each of them the mean of what its in-neighbours `told`, 0 where it has none; None where nothing
                was told.

        Returns:
            A number for each of them, higher = more out-of-distribution, or None.
        """
        return None

    def watched(self, rows: Tensor) -> Tensor | None:
        """What is watched over many graphs, [nodes, scores]: on scales that no graph moves, and no region shares.

        None unless a method weighs evidence by the graph: then what p-values compare is watched.

        Args:
            rows: What `rows` gave.

        Returns:
            A column for each of `watched_names`, or None.
        """
        return None

    def known_watched(self) -> Tensor | None:
        """The same of the validation nodes that it learnt from, as if it had not.

        Returns:
            A row for each validation node, or None.
        """
        return None

    def watched_names(self) -> tuple[str, ...]:
        """What each of these scores is called.

        Returns:
            One name for each column of `watched`.
        """
        return ("score",)

    def reasons(self, row: Tensor, around: Tensor | None = None) -> Reasons:
        """Why a node has its base score, by its row: for a method that weighs evidence, what each of its parts adds.

        Args:
            row: That of one node, from `rows`.
            around: The mean of what its in-neighbours `told`; None where nothing was told.

        Returns:
            What each part adds, in numbers and in words.
        """
        return Reasons()

    def known_scores(self) -> Tensor | None:
        """Those of the validation nodes that it learnt from, as if it had not: what p-values compare with.

        In the order of the nodes; None where it keeps none.

        Returns:
            A score for each validation node, or None.
        """
        return None

    @final
    def score(self, outputs: Outputs) -> Tensor:
        """The base scores, propagated: float32, one per node, finite, higher = more out-of-distribution.

        Args:
            outputs: The model's outputs on a graph.

        Returns:
            A score for each node.

        Raises:
            NotFittedError: The method has something to learn and is not fitted.
            InputError: The base scores are not finite numbers, one per node.
        """
        return self.scored(outputs).scores

    @final
    def scored(self, outputs: Outputs) -> Scored:
        """The scores of a whole graph, and the method as it has read it.

        Args:
            outputs: The model's outputs on a graph.

        Returns:
            Scores, what p-values compare, and the method for parts of this graph.
        """
        with without_modes():
            method = on_device(self, outputs.logits.device).looking_at(outputs.graph)
            rows = method.rows(outputs)
            return scored_rows(method.for_graph(rows), rows, outputs.graph.edges, len(outputs.logits))

    @final
    def reach(self) -> int | None:
        """Receptive field of the scores in hops, within the model's outputs; None where it is not known.

        Returns:
            A number of hops, or None.

        Raises:
            InputError: `base_reach` is not a whole number, 0 or more.
        """
        if self.base_reach is None:
            return None
        require_whole("base_reach", self.base_reach, 0)
        return self.base_reach + self.hops_after_rows()

    @final
    def hops_after_rows(self) -> int:
        """Over how many hops nodes' rows count in scores and p-values: the propagation's, one more where any is told.

        Returns:
            A number of hops.
        """
        return self.propagation.steps + self.tells

    @final
    def reach_within(self) -> int | None:
        """The same for a method within another: None where it reads the graph as a whole, which no part of it is.

        Returns:
            A number of hops, or None.
        """
        return self.reach() if type(self).for_graph is Method.for_graph else None

    def parts(self) -> tuple[Method, ...]:
        """The methods that it is made of.

        Returns:
            Those methods; none where it stands alone.
        """
        return ()

    def needs_model(self) -> bool:
        """Whether it reads anything but the graph.

        Returns:
            False for a method such as `InDegree`.
        """
        parts = self.parts()
        return any(part.needs_model() for part in parts) if parts else self.kind != "trivial"

    def learns_from_validation(self) -> bool:
        """Whether `fit` reads the graph's `val_mask`: those nodes are no longer held out.

        Returns:
            False unless it, or a part of it, says otherwise.
        """
        return any(part.learns_from_validation() for part in self.parts())

    @classmethod
    def needs_fitting(cls) -> bool:
        """Whether `fit` has anything to learn.

        Returns:
            True where the class has a field whose name ends in `_`.
        """
        return any(name.endswith("_") for name in _fields(cls))

    def __getattr__(self, name: str) -> Any:
        """Only called for what is not there: a fitted field before the fit."""
        if name in _fields(type(self)):
            raise NotFittedError(f"{self!r} is not fitted; call fit(outputs, y, mask) on the training graph first")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


def _fields(cls: type) -> list[str]:
    return [field.name for field in fields(cls)] if hasattr(cls, "__dataclass_fields__") else []


def _place(kind: type, name: str) -> int:
    """Of the class, among those that a class inherits from, that gives it what is of this name; its own is 0."""
    return next(place for place, one in enumerate(kind.__mro__) if name in vars(one))
