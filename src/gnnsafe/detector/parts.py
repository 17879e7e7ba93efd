"""What a detector says about nodes of a graph kept elsewhere, from the part that determines their scores."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gnnsafe.borrowed import borrow
from gnnsafe.calibration.p_values import false_alarms
from gnnsafe.detector.answering import predictions
from gnnsafe.detector.decisions import Decisions
from gnnsafe.detector.detector import Detector
from gnnsafe.edges import Edges
from gnnsafe.errors import require
from gnnsafe.explanation import Explanation, explain
from gnnsafe.graph import Data, changed
from gnnsafe.methods.scored import rows_of, scored_rows
from gnnsafe.new_scores import is_builtin
from gnnsafe.outputs import Outputs
from gnnsafe.prepared import admit

__all__ = ["PartDetector", "Read"]


class Read(NamedTuple):
    """What is read off some nodes before any propagation."""

    rows: Tensor
    """What the method knows of each."""
    predicted: Tensor | None
    probabilities: Tensor | None


class PartDetector:
    """A detector with the weights of one graph, by which parts of it are scored as `Detector.score_new` does.

    It has a method of its own: what else the detector scores leaves these weights alone. A score is made in two stages:
    what is read off a node (`read`), from a receptive field of `near` hops, that of the model and of the method's base
    scores; then these are propagated along `steps` edges (`decided`). Who keeps what was read needs to read only those
    again the nodes near a change. Only a method and a model of gnnsafe.models are known to have no larger receptive
    field.
    """

    def __init__(self, detector: Detector) -> None:
        self._detector = copy.copy(detector)
        one = detector.node_type is None
        require(one, "detector", "be for one type of nodes where a graph is kept", repr(detector.node_type))
        known = is_builtin(detector.method) and _as_made(detector)
        whole = "score graphs as a whole with it, by POST /v1/score or gnnsafe score"
        require(
            known, "detector", "have a method and a model of gnnsafe's where a graph is kept", repr(detector), whole
        )
        self.near = sum(self._detector._reach(None))
        self.steps = detector.method.hops_after_rows()
        self.undirected, self.class_names = detector.undirected, detector.class_names_
        self.num_features, self.calibration = detector.num_features_, detector.calibrated()

    @property
    def reach(self) -> int:
        """Its receptive field in hops, of method and model together."""
        return self.near + self.steps

    def whole(self, data: Data, *, false_alarm: float) -> tuple[Decisions, Read]:
        """All about every node of a graph, whose weights are taken from then on."""
        outputs = self._detector.outputs(data)
        scored = self._detector._scored(outputs)
        read = Read(scored.rows, *predictions(outputs))
        return self._decisions(range(len(scored.scores)), scored.scores, scored.compared, read, false_alarm), read

    def read(self, data: Data, out_degrees: Tensor, where: Tensor) -> Read:
        """What is read off the nodes at `where` of a part of that graph, whose nodes have these degrees in it."""
        outputs = self._outputs(data, out_degrees)
        read = Read(rows_of(self._detector.method, outputs), *predictions(outputs))
        return Read(*(None if values is None else values[where] for values in read))  # type: ignore[arg-type]

    def decided(
        self, rows: Tensor, edge_index: Tensor, where: Tensor, ids: Sequence[Any], read: Read, *, false_alarm: float
    ) -> Decisions:
        """All about the nodes at `where` of a part, by the rows of all its nodes and what was read off these."""
        edges = Edges(edge_index, len(rows), reused=False)
        scored = scored_rows(self._detector.method, rows, edges, len(rows))
        return self._decisions(ids, scored.scores[where], scored.compared[where], read, false_alarm)

    def _decisions(
        self, ids: Sequence[Any], scores: Tensor, compared: Tensor, read: Read, false_alarm: float
    ) -> Decisions:
        p = self.calibration.p_values(compared, read.predicted)
        flags = false_alarms(p, false_alarm)
        return Decisions(ids, scores, p, flags, read.predicted, read.probabilities, self.class_names)

    def nothing(self) -> Decisions:
        """What is said about no node."""
        none = torch.empty(0)
        return Decisions([], none, none.double(), none.bool(), None, None, self.class_names)

    def explain(self, data: Data, out_degrees: Tensor, ids: Sequence[Any], node: int) -> Explanation:
        """Why a node of a part has its score; the part decides about it and about all nodes drawn around it."""
        detector = self._detector
        outputs = self._outputs(changed(data, node_id=list(ids)), out_degrees)
        return explain(
            detector.method,
            outputs,
            node,
            calibration=self.calibration,
            classes=detector.classes_,
            class_names=self.class_names,
            part=True,
        )

    def _outputs(self, data: Data, out_degrees: Tensor) -> Outputs:
        self._detector.check_weights()
        graph = admit(data, num_features=self.num_features)
        graph.edges.part_of(lambda: out_degrees)
        return self._detector._outputs(graph, self._detector.classifier)


def _as_made(detector: Detector) -> bool:
    """Whether its model is one of gnnsafe.models as it was made; asked while no other thread has a hook on it."""
    if detector.classifier is None:
        return True
    with borrow(detector.classifier.model):
        return detector.classifier.as_made
