"""Decisions with a stated error rate: scores compared with those of held-out ID nodes."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Self

from torch import Tensor

from gnnsafe.calibration import LEVELS, Calibration, CalibrationCheck, KnownClasses, Tail
from gnnsafe.calibration.decisions import ODD, warn_of_shared
from gnnsafe.checks import check_mask
from gnnsafe.detector.answering import Answering, predictions
from gnnsafe.detector.decisions import Decisions
from gnnsafe.detector.sets import ClassSets
from gnnsafe.errors import CalibrationWarning, require, require_flag
from gnnsafe.graph import Graph, node_ids, node_labels, node_mask
from gnnsafe.methods.scored import Scored
from gnnsafe.new_scores import NewDecisions
from gnnsafe.outputs import Outputs

__all__ = ["Deciding"]

log = logging.getLogger(__name__)


class Deciding(Answering):
    """A `Detector` as far as it decides: p-values, flags and sets of classes, once it is calibrated."""

    def calibrate(
        self,
        data: Graph,
        *,
        mask: Tensor | None = None,
        by_class: bool = False,
        batch_size: int | None = None,
        hops: int | None = None,
    ) -> Self:
        """Keep the scores of held-out ID nodes, `mask` or `data.val_mask`: p-values compare with them.

        They stand for the ID nodes to come if both are drawn at random from one pool and neither was used to train the
        model or fit the method. Training nodes are refused. Where validation nodes chose the epoch, others are better.

        Args:
            data: The graph with the held-out nodes, usually the training graph. Where their classes are known, `data.y`
                (−1 where not), `predict_sets` compares with them.
            mask: The held-out ID nodes; by default `data.val_mask`.
            by_class: Compare a node with the calibration nodes of its own predicted class, so that error rates hold in
                each class.
            batch_size: On how many nodes at a time the model runs; see `score`.
            hops: With a `batch_size`, the model's receptive field; see `score`.

        Returns:
            The detector itself, calibrated.

        Raises:
            NotFittedError: The detector is not fitted.
            InputError: The mask holds training nodes or none, or the graph is unlike the training graph.
        """
        require_flag("by_class", by_class)
        graph, outputs = self._outputs_as_fitted(data, self._asked(batch_size, hops))
        name = "val_mask" if mask is None else "mask"
        held_out = node_mask(graph, "val_mask") if mask is None else check_mask("mask", mask, graph.x.shape[0])
        assert self.used_ is not None  # as it is fitted
        nodes = self.used_.not_trained_on(name, graph, held_out)
        scored = self._scored(outputs)
        method = scored.method  # known scores are by the weights of the graph that it has seen, this one
        count = nodes.among(self.used_.validated)
        known = method.known_scores() if count and nodes.same_nodes(self.used_.validated) else None
        if count and known is None:
            warnings.warn(
                f"{self.method!r} has learnt from {count} of these {int(held_out.sum())} nodes, which val_mask held: "
                "they are no longer held out; calibrate with mask=…, a mask of other ID nodes",
                CalibrationWarning,
                stacklevel=2,
            )
        self._calibrate(scored.compared[held_out] if known is None else known, graph, outputs, held_out, by_class)
        watched = scored.watched[held_out] if known is None else method.known_watched()
        if watched is not None and method.known_watched() is not None:
            assert self.calibration_ is not None
            self.calibration_ = replace(self.calibration_, watched=watched)
        self.calibrated_by_ = repr(self.method)
        self.used_ = replace(self.used_, calibrated=nodes)
        log.info("%r calibrated on %d nodes", self.method, int(held_out.sum()))
        return self

    def _calibrate(self, scores: Tensor, graph: Graph, outputs: Outputs, held_out: Tensor, by_class: bool) -> None:
        known = self._known_classes(graph, outputs, held_out)
        if not by_class:
            self.calibration_ = Calibration(scores, known=known)
            return
        require(self.task == "multiclass", "by_class", "be given only for a multiclass model", self.task)
        require(self.classifier is not None, "by_class", "be left out where there is no model", "no model")
        logits = outputs.logits[held_out]
        self.calibration_ = Calibration(scores, logits.argmax(dim=1), logits.shape[1], known)

    def _known_classes(self, graph: Graph, outputs: Outputs, held_out: Tensor) -> KnownClasses | None:
        """Of the graph that was given: the outputs may be those of `fit`, where it had other labels."""
        unlabelled = getattr(graph, "y", None) is None
        if unlabelled or self.classifier is None or self.task != "multiclass":
            return None
        labels = node_labels(graph)
        return KnownClasses.of(outputs.logits[held_out], labels[held_out.to(labels.device)])

    def p_values(
        self,
        data: Graph,
        *,
        seed: int | None = None,
        tail: Tail = "exact",
        batch_size: int | None = None,
        hops: int | None = None,
    ) -> Tensor:
        """How rare each score is among ID nodes: (1 + #{calibration ≥ s}) / (n + 1), float64; small = OOD.

        `gnnsafe.calibration` says what the figures promise.

        Args:
            data: The graph.
            seed: Breaks ties at random; None: ties count against a node's being OOD.
            tail: "extrapolated" goes on beyond all calibration nodes, on the assumption that
                `gnnsafe.calibration.extrapolated_p_values` states.
            batch_size: On how many nodes at a time the model runs; see `score`.
            hops: With a `batch_size`, the model's receptive field; see `score`.

        Returns:
            A p-value for each node.

        Raises:
            NotFittedError: The detector is not fitted or not calibrated.
            InputError: The graph is unlike the training graph.
        """
        self.calibrated()
        return self._p_values(self.outputs(data, batch_size=batch_size, hops=hops), seed=seed, tail=tail)[0]

    def predict(
        self,
        data: Graph,
        *,
        false_alarm: float | None = None,
        fdr: float | None = None,
        mask: Tensor | None = None,
        seed: int | None = None,
        tail: Tail = "exact",
        storey: bool = False,
        batch_size: int | None = None,
        hops: int | None = None,
    ) -> Tensor:
        """True = OOD: at most a share `false_alarm` of ID nodes is flagged, or of the flagged at most `fdr` is ID.

        Both hold on average for ID nodes that are exchangeable with the calibration nodes, whatever the OOD nodes are.
        An ID node beside shifted ones is scored with them and is flagged more often: `gnnsafe.calibration` says by how
        much it was. Measure it on held-out ID nodes of the graph in question with `check_calibration`.

        Args:
            data: The graph.
            false_alarm: Of the ID nodes at most this share is flagged.
            fdr: Of the flagged nodes at most this share is ID.
            mask: The nodes to decide about; no other is flagged. Fewer nodes need fewer calibration nodes for `fdr`.
            seed: Breaks ties of p-values at random.
            tail: "extrapolated" extends p-values beyond all calibration nodes, on an assumption; see `p_values`.
            storey: With `fdr`, estimate how many nodes are ID instead of counting all; see `gnnsafe.calibration`.
            batch_size: On how many nodes at a time the model runs; see `score`.
            hops: With a `batch_size`, the model's receptive field; see `score`.

        Returns:
            A boolean tensor, one entry per node.

        Raises:
            NotFittedError: The detector is not fitted or not calibrated.
            InputError: The graph is unlike the training graph, or both or none of `false_alarm` and `fdr` are given.
        """
        calibration, outputs = self.calibrated(), self.outputs(data, batch_size=batch_size, hops=hops)
        p, _ = self._p_values(outputs, seed=seed, tail=tail)
        return calibration.decisions(p, false_alarm=false_alarm, fdr=fdr, mask=mask, storey=storey)

    def decide(
        self,
        data: Graph,
        *,
        false_alarm: float | None = None,
        fdr: float | None = None,
        mask: Tensor | None = None,
        seed: int | None = None,
        tail: Tail = "exact",
        storey: bool = False,
        batch_size: int | None = None,
        hops: int | None = None,
    ) -> Decisions:
        """All about every node from one forward pass: score, p-value, flag, predicted class and its probability.

            decided = detector.decide(new_data, false_alarm=0.05)
            decided.to_pandas().sort_values("p_value")

        Args:
            data: The graph.
            false_alarm: Of the ID nodes at most this share is flagged; `predict` says what that promises.
            fdr: Of the flagged nodes at most this share is ID.
            mask: The nodes to decide about; no other is flagged. `decide(…, mask=mask).of(mask)` is about them alone.
            seed: Breaks ties of p-values at random.
            tail: "extrapolated" extends p-values beyond all calibration nodes, on an assumption; see `p_values`.
            storey: With `fdr`, estimate how many nodes are ID instead of counting all; see `gnnsafe.calibration`.
            batch_size: On how many nodes at a time the model runs; see `score`.
            hops: With a `batch_size`, the model's receptive field; see `score`.

        Returns:
            Tensors with one entry per node; `.to_arrow()` and `.to_pandas()` are the table that `gnnsafe score` writes.

        Raises:
            NotFittedError: The detector is not fitted or not calibrated.
            InputError: The graph is unlike the training graph, or both or none of `false_alarm` and `fdr` are given.
        """
        calibration, outputs = self.calibrated(), self.outputs(data, batch_size=batch_size, hops=hops)
        p, scored = self._p_values(outputs, seed=seed, tail=tail)
        return Decisions(
            node_ids(outputs.graph) or range(outputs.graph.num_nodes),
            scored.scores,
            p,
            calibration.decisions(p, false_alarm=false_alarm, fdr=fdr, mask=mask, storey=storey),
            *predictions(outputs),
            self.class_names_,
            scored.watched,
        )

    def watching(self) -> tuple[tuple[str, ...], Tensor]:
        """What is watched over many graphs, by name, and its values at the calibration nodes, [nodes, scores].

        `Decisions.watched` has the same of the nodes decided about. It is what p-values compare or, of a method that
        weighs evidence by the graph (`TwoScale`), own evidence without weights, together and piece by piece.

        Returns:
            The names of the scores, and a tensor with a column for each.

        Raises:
            NotFittedError: The detector is not calibrated.
            InputError: The detector was calibrated with another method.
        """
        calibration = self.calibrated()
        known = self.method.known_watched() if calibration.watched is None else calibration.watched
        return self.method.watched_names(), calibration.scores[:, None] if known is None else known.cpu()

    def predict_sets(
        self, data: Graph, *, error: float = 0.1, batch_size: int | None = None, hops: int | None = None
    ) -> ClassSets:
        """The classes that each node conforms to, at an error rate; an empty set says: to none of the known classes.

        An ID node's set holds its class with a probability of at least 1 − error, on average and where ID nodes are
        exchangeable with the calibration nodes; after `calibrate(…, by_class=True)` that holds in each class. A node is
        left without any class by its OOD score, and without some by its logits; see `gnnsafe.calibration`.

            sets = detector.predict_sets(new_data, error=0.1)
            sets.names(17), sets.empty                        # ("red", "blue"), and who is none of the known classes

        Args:
            data: The graph.
            error: Of the ID nodes at most this share has a set without their class.
            batch_size: On how many nodes at a time the model runs; see `score`.
            hops: With a `batch_size`, the model's receptive field; see `score`.

        Returns:
            `members`, a boolean tensor [nodes, classes], with `.sizes`, `.empty`, `.names(node)` and tables.

        Raises:
            NotFittedError: The detector is not fitted or not calibrated.
            InputError: The model is not a multiclass one, no calibration node's class is known, or the graph is unlike
                the training graph.
        """
        multiclass = self.classifier is not None and self.task == "multiclass"
        got = "no model" if self.classifier is None else self.task
        require(multiclass, "model", "be a multiclass one for sets of classes", got, "use predict(data)")
        calibration, remedy = self.calibrated(), "set data.y at the calibration nodes, then calibrate(data) again"
        require(calibration.known is not None, "y", "be known for calibration nodes to make sets", "none", remedy)
        outputs = self.outputs(data, batch_size=batch_size, hops=hops)
        members = calibration.sets(self._p_values(outputs)[0], outputs.logits, error)
        return ClassSets(node_ids(outputs.graph) or range(outputs.graph.num_nodes), members, self.class_names_)

    def check_calibration(
        self,
        data: Graph,
        mask: Tensor | None = None,
        *,
        levels: tuple[float, ...] = LEVELS,
        batch_size: int | None = None,
        hops: int | None = None,
    ) -> CalibrationCheck:
        """Whether stated false-alarm rates hold on other ID nodes, those in `mask`: observed rates and intervals.

        Args:
            data: The graph with these nodes.
            mask: Held-out ID nodes. By default the test nodes of the split that the detector was fitted with where
                `data` is the same graph, else those of `data.test_mask`.
            levels: The false-alarm rates to check.
            batch_size: On how many nodes at a time the model runs; see `score`.
            hops: With a `batch_size`, the model's receptive field; see `score`.

        Returns:
            Observed rates with their intervals: print it.

        Raises:
            NotFittedError: The detector is not fitted or not calibrated.
            InputError: Some of these nodes were used to train, to fit the method or to calibrate: on them the rates say
                nothing.
        """
        calibration, asked, graph = self.calibrated(), self._asked(batch_size, hops), self.prepared(data)
        p, _ = self._p_values(self._outputs(graph, asked))
        assert self.used_ is not None  # as it is fitted
        if mask is None:
            mask = self.used_.split(graph).get("test_mask")
            require(mask is not None, "mask", "be given where no test nodes are known", "none")
        self.used_.unseen("mask", graph, check_mask("mask", mask, len(p)))
        return CalibrationCheck.of(p[mask], calibration, levels)

    def predict_new(
        self,
        data: Graph,
        nodes: Tensor | Sequence[int],
        *,
        false_alarm: float | None = None,
        fdr: float | None = None,
        hops: int | None = None,
        touched: bool = True,
        seed: int | None = None,
        tail: Tail = "exact",
        storey: bool = False,
    ) -> NewDecisions:
        """As `score_new`, with p-values and flags, equal to those of the whole graph except for `fdr`.

        With `fdr` each node is weighed among those that are scored here, not among all of the graph.

            touched, scores, p_values, flags = detector.predict_new(data, nodes, false_alarm=0.05)

        Args:
            data: The graph as it is now.
            nodes: New and changed nodes; see `score_new`.
            false_alarm: Of the ID nodes at most this share is flagged; see `predict`.
            fdr: Of the flagged nodes at most this share is ID.
            hops: The receptive field of a model that is not one of gnnsafe.models.
            touched: Whether all touched nodes are scored, or the given ones alone.
            seed: Breaks ties of p-values at random.
            tail: "extrapolated" extends p-values beyond all calibration nodes; see `p_values`.
            storey: With `fdr`, estimate how many nodes are ID instead of counting all.

        Returns:
            The numbers of the nodes that are scored, their scores, p-values and flags.

        Raises:
            NotFittedError: The detector is not fitted or not calibrated.
            InputError: As for `score_new` and `predict`.
        """
        calibration, (found, compared, logits) = self.calibrated(), self._score_new(data, nodes, hops, touched)
        p = calibration.p_values(compared, self._classes(logits), seed=seed, tail=tail)
        return NewDecisions(*found, p, calibration.decisions(p, false_alarm=false_alarm, fdr=fdr, storey=storey))

    def _p_values(self, outputs: Outputs, *, seed: int | None = None, tail: Tail = "exact") -> tuple[Tensor, Scored]:
        """Those of a whole graph, with a warning where they leave out what makes much of it odd."""
        calibration, scored = self.calibrated(), self._scored(outputs)
        p = calibration.p_values(scored.compared, self._classes(outputs.logits), seed=seed, tail=tail)
        if (limit := calibration.odd_from()) is not None:
            warn_of_shared(int((scored.watched[:, 0] > limit).sum()), int((p <= ODD).sum()), len(p))
        return p, scored

    def _classes(self, logits: Tensor) -> Tensor | None:
        """Those that the model predicts, where nodes are compared with the calibration nodes of their class."""
        return None if self.calibrated().classes is None else logits.argmax(dim=1)
