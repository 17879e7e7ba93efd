"""What one forward pass of a model gave on one graph: the model runs once, every method reads the same outputs."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from gnnsafe.borrowed import borrow, eager, parts
from gnnsafe.calling import check_device, check_edges, check_unwritten, forward_signature, passed, single_tensor, takes
from gnnsafe.checks import (
    Task,
    check_features,
    check_finite,
    check_logits,
    check_no_probabilities,
    check_task,
    check_tensor,
    full_precision,
)
from gnnsafe.errors import InputError, require, require_known
from gnnsafe.graph import Graph
from gnnsafe.hetero import NodeTypeGraph
from gnnsafe.once import once
from gnnsafe.prepared import PreparedGraph, admit, prepare
from gnnsafe.regions import row_kinds, rows
from gnnsafe.staged import Whole, staged

__all__ = ["Classifier", "Outputs", "Penultimate", "embeddings_of"]

Forward = Callable[[nn.Module, Any], Tensor]
Edit = Callable[[Tensor], Tensor]


class Penultimate(nn.Identity):
    """Marks in a model the place that its penultimate embedding passes: `hidden = self.penultimate(hidden)`."""


PLAIN_TYPES = (int, float, str, type(None))
OWN_LAYERS = (Penultimate, nn.BatchNorm1d, nn.LayerNorm, nn.Linear, nn.ModuleList, nn.ParameterList)  # of our models


@contextmanager
def embeddings_of(model: nn.Module) -> Iterator[list[Tensor]]:
    """What passes a model's one `Penultimate` within it, forward by forward, with its gradients."""
    marks = [module for module in model.modules() if isinstance(module, Penultimate)]
    require(
        len(marks) == 1, "model", "send its embedding through one gnnsafe.outputs.Penultimate", f"{len(marks)} such"
    )
    seen: list[Tensor] = []
    hook = marks[0].register_forward_hook(lambda _module, _inputs, embedding: seen.append(embedding))
    try:
        yield seen
    finally:
        hook.remove()


@dataclass(frozen=True, eq=False)
class Classifier:
    """How to run a user's model on a graph.

    It is called `model(x, edge_index)`, with whatever else the graph holds under names that its forward takes (such as
    `edge_weight`), or `forward(model, graph)` where that is given. `embedding` names the submodule whose output is the
    penultimate embedding (`"convs.0"`); a model of gnnsafe.models marks it by itself, and so can any other with a
    `Penultimate`. `task` says what its logits mean. Of a model that `torch.compile` wrapped, the one within runs.
    """

    model: nn.Module
    forward: Forward | None = None
    embedding: str | None = None
    task: Task = "multiclass"

    def __post_init__(self) -> None:
        require(isinstance(self.model, nn.Module), "model", "be a torch.nn.Module", type(self.model).__name__)
        object.__setattr__(self, "model", eager(self.model))
        require(self.forward is None or callable(self.forward), "forward", "be called (model, data)", self.forward)
        if self.embedding is not None:
            require_known("embedding", self.embedding, [name for name, _ in self.model.named_modules() if name])
        check_task(self.task)

    @property
    def takes_prepared(self) -> bool:
        """Whether the model takes a prepared graph, as those of gnnsafe.models are."""
        return self.forward is None and not isinstance(staged(self.model), Whole)

    @property
    def as_made(self) -> bool:
        """Whether it is one of gnnsafe.models, its parts are as they were made, and none has hooks or a new forward."""
        modules = parts(self.model)
        usual = all(type(part) in OWN_LAYERS or type(part).__module__.startswith("gnnsafe.models.") for part in modules)
        hooked = any(part._forward_hooks or part._forward_pre_hooks or "forward" in vars(part) for part in modules)
        return self.takes_prepared and usual and not hooked

    def numbers(self) -> dict[tuple[str, str], object]:
        """The model's attributes that are numbers, texts or None, by module and name; a mode is none of them."""
        return {
            (path, name): value
            for path, part in self.model.named_modules(prefix="model")
            for name, value in vars(part).copy().items()  # which a forward in another thread may add to
            if isinstance(value, PLAIN_TYPES) and name != "training"
        }

    def changed_numbers(self, before: Mapping[tuple[str, str], object]) -> list[tuple[str, str]]:
        """The places of `numbers` that are not what they were before."""
        parts = {path: vars(part) for path, part in self.model.named_modules(prefix="model")} if before else {}
        changed = []
        for (path, name), was in before.items():
            now = parts[path].get(name) if path in parts else None
            if now is not was and (now if isinstance(now, PLAIN_TYPES) else None) != was:
                changed.append((path, name))
        return changed

    def settings(self) -> list[object]:
        """What the model's answers depend on besides its weights, so far as it can be compared: numbers and hooks."""
        parts = [vars(part) for part in self.model.modules()]
        hooks = [dict(part[name]) for part in parts for name in ("_forward_hooks", "_forward_pre_hooks")]
        return [self.numbers(), *hooks, *(part.get("forward") for part in parts)]

    def read(self, graph: Graph) -> Collection[str] | None:
        """The names of the graph's attributes that the model reads besides x and edge_index; None: it may read any."""
        if self.takes_prepared:
            return ()
        return None if self.forward is not None else passed(self.model, graph)

    def __call__(self, graph: PreparedGraph, *, gradients: bool = False, edit: Edit | None = None) -> Outputs:
        """One forward pass in evaluation mode; `edit` changes the embedding on its way to the logits."""
        seen: list[Any] = []

        def pass_by(_module: nn.Module, _inputs: object, embedding: Any) -> Tensor | None:
            theirs = isinstance(embedding, Tensor) and not (isinstance(place, Penultimate) and self.takes_prepared)
            seen.append(embedding.clone() if theirs else embedding)  # what comes after may work in place
            return None if edit is None else edit(embedding.to(graph.device)).to(embedding.device)

        with borrow(self.model, gradients=gradients) as modules:
            place, before = self._embedding_module(modules), graph.versions()
            hook = place.register_forward_hook(pass_by) if place is not None else None
            try:
                logits = self._logits(graph, modules)
            finally:
                if hook is not None:
                    hook.remove()
            check_unwritten(graph, before)
        embeddings = self._embeddings(seen, graph)
        if not gradients:  # a model may hand on features that ask for one
            logits, embeddings = logits.detach(), None if embeddings is None else embeddings.detach()
        return Outputs(logits, graph, self.task, self, embeddings)

    def _embedding_module(self, modules: Sequence[nn.Module]) -> nn.Module | None:
        if self.embedding is not None:
            return self.model.get_submodule(self.embedding)
        marks = [module for module in modules if isinstance(module, Penultimate)]
        return marks[0] if len(marks) == 1 else None

    def _logits(self, graph: PreparedGraph, modules: Sequence[nn.Module]) -> Tensor:
        logits = self._called(graph, modules)
        if self.task == "multilabel" and logits.dim() == 1:  # a binary head, squeezed
            logits = logits.unsqueeze(1)
        check_logits(logits)
        logits = full_precision(logits)
        here, move = graph.x.device, "return logits.to(data.x.device) from forward, or call data.to(...)"
        require(logits.device == here, "logits", f"be on the graph's device, {here}", logits.device, move)
        nodes = graph.x.shape[0]
        require(len(logits) == nodes, "logits", f"have one row for each of {nodes} nodes", len(logits))
        require(
            logits.shape[1] > 1 or self.task == "multilabel", "logits", "have at least two classes", 1,
            'a sigmoid head, one logit for yes or no, is task="multilabel"',
        )  # fmt: skip
        if self.task == "multiclass":
            check_no_probabilities(logits)
        return logits

    def _called(self, graph: PreparedGraph, modules: Sequence[nn.Module]) -> Tensor:
        if self.forward is not None:
            try:  # on a copy, so that what a forward sets stays there
                return single_tensor("forward(model, data)", self.forward(self.model, copy.copy(graph.data)))
            except RuntimeError:  # it may move tensors itself: only where it fails is the place of any a mistake
                check_device(modules, graph)
                check_edges(graph)
                raise
        check_device(modules, graph)
        if self.takes_prepared:
            return single_tensor("model(graph)", self.model(graph))
        extra = passed(self.model, graph)
        try:
            return single_tensor("model(x, edge_index)", self.model(graph.x, graph.edge_index, **extra))
        except TypeError as error:
            if takes(self.model, graph.x, graph.edge_index, **extra):
                raise
            raise InputError(
                f"'model' must be called (x, edge_index) (got forward{forward_signature(self.model)}); say how to call "
                "it, such as forward=lambda model, data: model(data)"
            ) from error
        except RuntimeError as error:
            check_edges(graph)
            own = next((p.dtype for p in self.model.parameters() if p.is_floating_point()), graph.x.dtype)
            if own == graph.x.dtype:
                raise
            raise InputError(f"'x' must be {own} as the model is (got {graph.x.dtype}): {error}") from error

    def _embeddings(self, seen: list[Any], graph: PreparedGraph) -> Tensor | None:
        """What passed the place of the embedding, where the graph is: a forward may run its model on another device."""
        if not seen:
            require(self.embedding is None, "embedding", "name a submodule that the forward runs", self.embedding)
            return None
        name = f"embedding ({self.embedding or 'penultimate'})"
        require(len(seen) == 1, name, "be given once in a forward", f"{len(seen)} times", "name another submodule")
        embeddings, nodes = check_tensor(name, seen[0]), graph.num_nodes
        shape = list(embeddings.shape)
        require(embeddings.dim() == 2 and shape[0] == nodes, name, f"be of shape [{nodes}, dimensions]", shape)
        return full_precision(embeddings.to(graph.device))


@dataclass(frozen=True, eq=False)
class Outputs:
    """Logits [nodes, classes] of a model, the graph that it read, and what else a method may need of that model.

    Args:
        logits: Unnormalised, one row per node and one column per class (or label).
        graph: The graph that the model read; bare data is prepared here.
        task: "multiclass", or "multilabel" where logits are those of sigmoids.
        classifier: How to run the model again; None where logits came from elsewhere.
        embedded: The penultimate embedding, [nodes, dimensions], where it is known; `embeddings` checks it.

    >>> from types import SimpleNamespace
    >>> from gnnsafe.models import GCN
    >>> graph = SimpleNamespace(x=torch.eye(3), edge_index=torch.tensor([[0, 1], [1, 2]]))
    >>> outputs = Outputs.of(GCN(3, 8, 2), graph)
    >>> outputs.logits.shape, outputs.embeddings.shape
    (torch.Size([3, 2]), torch.Size([3, 8]))
    """

    logits: Tensor
    graph: PreparedGraph
    """Bare data is prepared here."""
    task: Task = "multiclass"
    classifier: Classifier | None = None
    embedded: Tensor | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.graph, PreparedGraph):
            object.__setattr__(self, "graph", admit(self.graph))

    @classmethod
    def of(
        cls,
        model: nn.Module,
        graph: Graph,
        *,
        num_features: int | None = None,
        forward: Forward | None = None,
        embedding: str | None = None,
        task: Task = "multiclass",
    ) -> Outputs:
        """One forward pass in evaluation mode, on a graph with `num_features` where that is known; see `Classifier`.

        Args:
            model: Any module called `(x, edge_index)` that returns logits.
            graph: The graph.
            num_features: How many features it must have; None: any number.
            forward: How to call the model, `forward(model, data)`, where that is not `model(x, edge_index)`.
            embedding: The name of the submodule that gives the penultimate embedding.
            task: "multiclass", or "multilabel" where logits are those of sigmoids.

        Returns:
            Logits, embeddings where they are known, and the graph.

        Raises:
            InputError: The graph breaks a rule, or the model does not return finite, unnormalised logits for each node.
        """
        return Classifier(model, forward, embedding, task)(admit(graph, num_features=num_features))

    @once
    def embeddings(self) -> Tensor:
        """The penultimate embedding, [nodes, dimensions], checked to be finite.

        Returns:
            One row per node.

        Raises:
            InputError: No embedding is known, or it is NaN or infinite somewhere.
        """
        if self.embedded is None:
            named = [name for name, _ in self.classifier.model.named_modules() if name] if self.classifier else []
            raise InputError(
                "'embedding' must name the submodule whose output is the model's penultimate embedding (got none)"
                + (f"; it has {', '.join(named[:8])}{', …' if len(named) > 8 else ''}" if named else "")
            )
        check_finite("embeddings", self.embedded)
        return self.embedded

    def with_embeddings(self) -> Outputs:
        """The same where an embedding is known; else logits stand for it, here and where the model runs again.

        Returns:
            Outputs whose `embeddings` can be read.
        """
        return self if self.embedded is not None else self._with_logits

    @once
    def _with_logits(self) -> Outputs:
        return replace(self, embedded=self.logits)

    @once
    def without_edges(self) -> Outputs:
        """The same model run on the same nodes without edges.

        Returns:
            The outputs of a graph without edges.

        Raises:
            InputError: The logits came without a model.
        """
        attributes = {name: values[:0] for name, values in self._edge_attributes().items()}
        return self.again(self.graph.without_edges(**attributes))

    def without_messages(self, silent: Tensor) -> Outputs:
        """The same model run on the same graph without the edges that lead from `silent` nodes to others.

        Args:
            silent: A mask of nodes; where there are none, these outputs come back.

        Returns:
            The outputs of that graph.

        Raises:
            InputError: The logits came without a model, or the graph is one type of nodes among others.
        """
        if not bool(silent.any()):
            return self
        kept = self.graph.heard_edges(silent)
        attributes = {name: rows(values, kept) for name, values in self._edge_attributes().items()}
        return self.again(self.graph.without_messages(silent, **attributes))

    def _edge_attributes(self) -> dict[str, Any]:
        """By name; none of one type of nodes among others, which takes all edges away by itself."""
        data: Any = self.graph.data
        if isinstance(data, NodeTypeGraph):
            return {}
        read = () if self.classifier is None else self.classifier.read(data)
        return {name: getattr(data, name) for name in row_kinds(data, read, "edge")}

    def again(self, graph: Graph | None = None, *, gradients: bool = False, edit: Edit | None = None) -> Outputs:
        """The same model run again: on another graph, with gradients, or with an edited embedding.

        Args:
            graph: Another graph; None: the same.
            gradients: Whether logits and embeddings keep their gradients.
            edit: What is done to the embedding on its way to the logits.

        Returns:
            What the model gave this time.

        Raises:
            InputError: The logits came without a model, or an embedding is to be edited and none is known.
        """
        if self.classifier is None:
            raise InputError("'outputs' must come from Outputs.of(model, graph) for a method that runs the model again")
        if edit is not None:
            self.embeddings  # noqa: B018 - says what is missing
        asked = self.graph if graph is None else graph
        asked = asked if isinstance(asked, PreparedGraph) else prepare(asked)
        found = self.classifier(asked, gradients=gradients, edit=edit)
        return found.with_embeddings() if self.embedded is self.logits else found

    def dense_features(self) -> Tensor:
        """The features, dense.

        Returns:
            A tensor [nodes, features].

        Raises:
            InputError: The features are not finite numbers of that shape.
        """
        x = check_features(self.graph.x)
        return x.to_dense() if x.layout == torch.sparse_csr else x
