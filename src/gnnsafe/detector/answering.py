"""Scores of nodes before anything is decided: from one forward pass, in batches, or from a part of the graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from gnnsafe.batches import Answers, in_batches
from gnnsafe.checks import check_nodes
from gnnsafe.detector.scoring import Scorer
from gnnsafe.devices import on_device
from gnnsafe.errors import InputError, require, require_flag, require_whole
from gnnsafe.graph import Graph
from gnnsafe.methods.scored import Scored, part_scores, rows_of, scored_rows
from gnnsafe.models import MODELS, Model
from gnnsafe.new_scores import NewScores, Parts, Reach, score_nodes
from gnnsafe.outputs import Outputs
from gnnsafe.prepared import PreparedGraph

__all__ = ["Answering"]


class Answering(Scorer):
    """A `Detector` as far as it scores: all nodes of a graph, or the nodes that new nodes and edges affect."""

    def score(self, data: Graph, *, batch_size: int | None = None, hops: int | None = None) -> Tensor:
        """Float32, one per node, higher = more out-of-distribution.

        With a `batch_size` the model never runs on the whole graph, but on the receptive field of so many nodes at a
        time, with the same scores; only the propagation of scores is over the whole graph. Memory then grows with the
        largest of these receptive fields, which are small where neighbours have numbers near each other.

            scores = detector.score(large, batch_size=10_000, hops=2)  # a model with two message-passing layers

        Args:
            data: The graph.
            batch_size: How many nodes are scored at a time; None: all.
            hops: With a `batch_size`, the receptive field of a model that is not one of gnnsafe.models; see
                `score_new`.

        Returns:
            A score for each node.

        Raises:
            NotFittedError: The detector is not fitted.
            InputError: The graph is unlike the training graph; or, with a `batch_size`, the receptive field of model
                or method is not known or larger than is said.
        """
        if batch_size is None and hops is None:
            return self._scored(self.outputs(data)).scores
        return self._answers(data, batch_size, hops)[1].scores

    def score_new(
        self, data: Graph, nodes: Tensor | Sequence[int], *, hops: int | None = None, touched: bool = True
    ) -> NewScores:
        """Scores of the nodes that new nodes and edges affect, from a part of the graph: those of the whole, if weighed
        alike.

        Affected (touched) is every node that has one of `nodes` in its receptive field, that of model and method. A
        model that reads the whole graph at once (a norm over all nodes, a virtual node), or edges against their
        direction (PyG's DirGNNConv), has no receptive field: a few nodes are scored on another part of the graph too,
        and where that makes a difference it is refused.

        Scores are equal to those of the whole graph, but for a method that weighs evidence by the graph (`TwoScale`,
        the default): unless all of it is read, this takes the weights of the graph that the detector scored last as a
        whole, in any thread, or, before that, of the training graph. Score the whole again when much of it has
        changed, and have a detector for each of several graphs.

            touched, new = detector.score_new(data, nodes)
            scores[touched] = new

        Args:
            data: The graph as it is now.
            nodes: New and changed nodes, and both ends of new and removed edges, as numbers or as a mask.
            hops: The receptive field of a model that is not one of gnnsafe.models: its number of message-passing
                layers.
            touched: Whether all touched nodes are scored; False: the given ones alone, which reads far less where few
                edges lead far.

        Returns:
            The numbers of the nodes that are scored, and their scores.

        Raises:
            NotFittedError: The detector is not fitted.
            InputError: The receptive field of model or method is not known or larger than is said, or the graph is
                unlike the training graph.
        """
        return self._score_new(data, nodes, hops, touched)[0]

    def _score_new(
        self, data: Graph, nodes: Tensor | Sequence[int], hops: int | None, touched: bool
    ) -> tuple[NewScores, Tensor, Tensor]:
        """The scores, what p-values compare, and the logits."""
        require_flag("touched", touched)
        graph = self._one_graph(data)
        parts = self._parts(graph, hops, self.method.reach(), partial(self._part_scores, graph))
        given = check_nodes("nodes", nodes, parts.graph.num_nodes).to(parts.graph.device)
        if not given.any():
            scores = torch.empty(0, device=given.device)
            return NewScores(scores.long(), scores), scores, scores.unsqueeze(1)
        found, logits = score_nodes(parts, given, touched=touched)
        scores, compared = found.scores.T.contiguous()
        return NewScores(found.nodes, scores), compared, logits

    def _part_scores(self, whole: PreparedGraph, outputs: Outputs) -> Tensor:
        """Scores and what p-values compare, [nodes, 2], by the weights of the graph that was seen last, or is seen."""
        part = outputs.graph
        if part.x.shape[0] == whole.x.shape[0] and part.edge_index.shape == whole.edge_index.shape:
            scored = self._scored(outputs)
            return torch.stack([scored.scores, scored.compared], dim=1)
        return part_scores(self.method, outputs)

    def _answers(
        self, data: Graph, batch_size: int | None, hops: int | None, *, logits: bool = False
    ) -> tuple[PreparedGraph, Answers]:
        """The graph, and the scores, classes and probabilities of its nodes: from one forward pass, or in batches."""
        if batch_size is None:
            require(hops is None, "hops", "be left out where there is no batch_size", hops)
            outputs = self.outputs(data)
            scored = self._scored(outputs)
            return outputs.graph, Answers.of(
                scored.scores, scored.compared, outputs, watched=scored.watched, logits=logits
            )
        require_whole("batch_size", batch_size, 1)
        graph = self._one_graph(data)
        method = on_device(self.method, graph.device).looking_at(self._scaled(graph))
        parts = self._parts(graph, hops, self.method.base_reach, partial(rows_of, method))
        answers = in_batches(parts, batch_size, logits=logits)
        method = method.for_graph(answers.scores)
        scored = scored_rows(method, answers.scores, graph.edges, graph.num_nodes)
        self.method = scored.method
        return graph, answers._replace(scores=scored.scores, compared=scored.compared, watched=scored.watched)

    def _scored(self, outputs: Outputs) -> Scored:
        """The scores of a whole graph; how the method has read it is kept, for parts of it (`score_new`)."""
        scored = self.method.scored(outputs)
        self.method = scored.method
        return scored

    def _one_graph(self, data: Graph) -> PreparedGraph:
        require(self.node_type is None, "data", "be one graph with one type of nodes", "a heterogeneous graph")
        return self.prepared(data)

    def _parts(
        self, graph: PreparedGraph, hops: int | None, reach: int | None, score: Callable[[Outputs], Tensor]
    ) -> Parts:
        trusted = self.classifier is None or (self.classifier.as_made and hops is None)
        read = () if self.classifier is None else self.classifier.read(graph)
        return Parts(self.method, self._outputs, graph, self._reach(reach, hops), read, trusted, score)

    def _reach(self, own: int | None, hops: int | None) -> Reach:
        """The receptive fields of the method's scores, as it says itself, and of the model."""
        if own is None:
            raise InputError(
                f"'method' must have a known receptive field (got {self.method!r}, which says none); use "
                "score(data), or say in the class from how many edges away nodes count, such as base_reach = 1"
            )
        require_whole("base_reach", own, 0)
        model = None if self.classifier is None else self.classifier.model
        if hops is None and isinstance(model, Model) and self.forward is None and MODELS.name_of(type(model)):
            hops = model.reach
            unsaid = f"{type(model).__name__}, which says none: it reads the whole graph, or lacks a `reach`"
            remedy = "use score(data), or give hops, its number of message-passing layers"
            require(hops is not None, "model", "have a known receptive field", unsaid, remedy)
        if hops is None and model is not None:
            raise InputError(
                f"'hops' must be given for {type(model).__name__}, which is not one of gnnsafe.models (got none): its "
                "receptive field in hops, usually its number of message-passing layers"
            )
        hops = 0 if hops is None else hops
        require_whole("hops", hops, 0)
        return Reach(own, hops)
