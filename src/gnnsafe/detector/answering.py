"""Scores of nodes before anything is decided: from one forward pass, in batches, or from a part of the graph."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from gnnsafe.checks import check_nodes
from gnnsafe.detector.scoring import Scorer
from gnnsafe.errors import InputError, require_flag, require_whole
from gnnsafe.graph import Graph
from gnnsafe.methods.scored import Scored, part_scores
from gnnsafe.new_scores import NewScores, Parts, Reach, score_nodes
from gnnsafe.outputs import Outputs
from gnnsafe.prepared import PreparedGraph
from gnnsafe.scores import max_softmax

__all__ = ["Answering", "predictions"]


def predictions(outputs: Outputs) -> tuple[Tensor | None, Tensor | None]:
    """The class that the model predicts for each node and its probability, where the model is a multiclass one."""
    if outputs.classifier is None or outputs.task != "multiclass":
        return None, None
    return outputs.logits.argmax(dim=1), -max_softmax(outputs.logits)


class Answering(Scorer):
    """A `Detector` as far as it scores: all nodes of a graph, or the nodes that new nodes and edges affect."""

    def score(self, data: Graph, *, batch_size: int | None = None, hops: int | None = None) -> Tensor:
        """Float32, one per node, higher = more out-of-distribution.

        With a `batch_size` the model never runs on the whole graph, but on the receptive field of so many nodes at a
        time, with the same scores: only its logits and embeddings are those of all nodes, of which the method makes
        scores. What the model needs then grows with the largest of these receptive fields, which are small where
        neighbours have numbers near each other.

            scores = detector.score(large, batch_size=10_000, hops=2)  # a model with two message-passing layers

        Args:
            data: The graph.
            batch_size: On how many nodes at a time the model runs; None: on all.
            hops: With a `batch_size`, the receptive field of a model that is not one of gnnsafe.models; see
                `score_new`.

        Returns:
            A score for each node.

        Raises:
            NotFittedError: The detector is not fitted.
            InputError: The graph is unlike the training graph; or, with a `batch_size`, the model's receptive field is
                not known or larger than is said, or the method asks for gradients.
        """
        return self._scored(self.outputs(data, batch_size=batch_size, hops=hops)).scores

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
        self._one_graph()
        graph, reach = self.prepared(data), self._reach(hops)
        reach = reach._replace(method=reach.method + self.method.hops_after_rows())
        read = () if self.classifier is None else self.classifier.read(graph)
        parts = Parts(partial(self._outputs, asked=self.classifier), graph, reach, read)
        given = check_nodes("nodes", nodes, graph.num_nodes).to(graph.device)
        if not given.any():
            scores = torch.empty(0, device=given.device)
            return NewScores(scores.long(), scores), scores, scores.unsqueeze(1)
        score = partial(self._part_scores, graph)
        found, logits = score_nodes(parts, given, self.method, score, touched=touched, trusted=self._trusted(hops))
        scores, compared = found.scores.T.contiguous()
        return NewScores(found.nodes, scores), compared, logits

    def _part_scores(self, whole: PreparedGraph, outputs: Outputs) -> Tensor:
        """Scores and what p-values compare, [nodes, 2], by the weights of the graph that was seen last, or is seen."""
        part = outputs.graph
        if part.x.shape[0] == whole.x.shape[0] and part.edge_index.shape == whole.edge_index.shape:
            scored = self._scored(outputs)
            return torch.stack([scored.scores, scored.compared], dim=1)
        return part_scores(self.method, outputs)

    def _scored(self, outputs: Outputs) -> Scored:
        """The scores of a whole graph; how the method has read it is kept, for parts of it (`score_new`)."""
        scored = self.method.scored(outputs)
        self.method = scored.method
        return scored

    def _reach(self, hops: int | None) -> Reach:
        """The receptive fields of the method's base scores, as it says itself, and of the model."""
        if self.method.base_reach is None:
            raise InputError(
                f"'method' must have a known receptive field (got {self.method!r}, which says none); use "
                "score(data), or say in the class from how many edges away nodes count, such as base_reach = 1"
            )
        require_whole("base_reach", self.method.base_reach, 0)
        return Reach(self.method.base_reach, self._hops(hops))
