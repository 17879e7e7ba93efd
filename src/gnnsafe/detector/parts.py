"""What a detector says about some nodes of a graph that somebody else keeps, from the part that decides about them."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from gnnsafe.batches import Answers
from gnnsafe.borrowed import borrowed
from gnnsafe.calibration.p_values import false_alarms
from gnnsafe.detector.decisions import Decisions
from gnnsafe.detector.detector import Detector
from gnnsafe.errors import require
from gnnsafe.explanation import Explanation, explanation
from gnnsafe.graph import Data, changed
from gnnsafe.methods.base import scored_part
from gnnsafe.new_scores import of_ours
from gnnsafe.outputs import Outputs
from gnnsafe.prepared import admitted

__all__ = ["PartDetector"]


class PartDetector:
    """A detector with the weights of one graph, by which parts of it are scored as `Detector.score_new` does.

    It has a method of its own: what else the detector scores leaves these weights alone. `reach` is its receptive
    field in hops, of method and model together; only a method and a model of ours are known to have no larger one.
    """

    def __init__(self, detector: Detector) -> None:
        self._detector = copy.copy(detector)
        one = detector.node_type is None
        require(one, "detector", "be for one type of nodes where a graph is kept", repr(detector.node_type))
        known = of_ours(detector.method) and _as_made(detector)
        whole = "score graphs as a whole with it, by POST /v1/score or gnnsafe score"
        require(
            known, "detector", "have a method and a model of gnnsafe's where a graph is kept", repr(detector), whole
        )
        self.reach = sum(self._detector._reach(self._detector.method.reach(), None))
        self.undirected, self.class_names = detector.undirected, detector.class_names_
        self.num_features, self.calibration = detector.num_features_, detector.calibrated()

    def whole(self, data: Data, *, false_alarm: float) -> Decisions:
        """All about every node of a graph, whose weights are taken from then on."""
        return self._detector.decide(data, false_alarm=false_alarm)

    def part(
        self, data: Data, out_degrees: Tensor, where: Tensor, ids: Sequence[Any], *, false_alarm: float
    ) -> Decisions:
        """All about the nodes in the mask `where` of a part of that graph, whose nodes have these degrees in it."""
        outputs, method = self._outputs(data, out_degrees), self._detector.method
        scored = scored_part(method, outputs)
        answers = Answers.of(scored.scores, scored.compared, outputs).at(where)
        p = self.calibration.p_values(answers.compared, answers.predicted)
        flags = false_alarms(p, false_alarm)
        return Decisions(ids, answers.scores, p, flags, answers.predicted, answers.probabilities, self.class_names)

    def nothing(self) -> Decisions:
        """What is said about no node."""
        none = torch.empty(0)
        return Decisions([], none, none.double(), none.bool(), None, None, self.class_names)

    def explain(self, data: Data, out_degrees: Tensor, ids: Sequence[Any], node: int) -> Explanation:
        """Why a node of a part has its score; the part decides about it and about all who are drawn around it."""
        detector = self._detector
        outputs = self._outputs(changed(data, node_id=list(ids)), out_degrees)
        return explanation(
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
        graph = admitted(data, num_features=self.num_features)
        graph.edges.part_of(lambda: out_degrees)
        return self._detector._outputs(graph)


def _as_made(detector: Detector) -> bool:
    """Whether its model is one of ours as it was made; asked while no other thread has a hook on it."""
    if detector.classifier is None:
        return True
    with borrowed(detector.classifier.model):
        return detector.classifier.as_made
