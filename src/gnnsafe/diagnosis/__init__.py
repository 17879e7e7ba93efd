"""Does propagation help on this graph, and which detector suits which trouble? Judged without any OOD data.

Shifts are planted into the user's own ID graph, of features and of edges; scattered, in clusters, or over all of it;
and every candidate is asked to find them. What comes out are the planted shifts' figures: real trouble may differ.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence

from gnnsafe.diagnosis.result import HETEROPHILY, Candidate, Diagnosis
from gnnsafe.diagnosis.trials import Ask, fitted, ready, tried
from gnnsafe.diagnosis.verdict import least_of_the_best, reason
from gnnsafe.errors import HeterophilyWarning, require_whole
from gnnsafe.graph import Data, node_labels, node_mask
from gnnsafe.homophily import mean_homophily, score_homophily
from gnnsafe.methods import Method
from gnnsafe.outputs import Outputs

__all__ = ["CANDIDATES", "Candidate", "Diagnosis", "diagnosis"]

CANDIDATES = ("msp", "energy", "agreement", "edge-disagreement", "knn", "mahalanobis", "diffused-knn", "mean-cosine")
EVIDENCE = 30  # edges between labelled nodes, below which labels are not heard


def diagnosis(
    method: Method,
    ask: Ask,
    data: Data,
    *,
    candidates: Sequence[Method | str] = CANDIDATES,
    draws: int = 3,
    seed: int = 0,
) -> Diagnosis:
    """Of a fitted method, on the outputs that `ask` gives for a graph, and the ID graph that it was fitted on."""
    require_whole("draws", draws, 1)
    data = ready(data)
    outputs = ask(data)
    rivals, left_out = fitted(candidates, method, outputs)
    own, others, untried = tried(method, rivals, ask, outputs, draws=draws, seed=seed)
    chosen = least_of_the_best(own)
    result = Diagnosis(
        steps=chosen.steps or 0,
        alpha=chosen.alpha or 0.0,
        reason=reason(own, others, chosen),
        prediction_homophily=_prediction_homophily(outputs),
        label_homophily=_label_homophily(data, outputs),
        score_homophily=score_homophily(method.unpropagated(outputs).scores, data.edge_index),
        own=own,
        others=others,
        left_out=left_out | untried,
    )
    if result.heterophilic:
        warnings.warn(HETEROPHILY, HeterophilyWarning, stacklevel=3)
    return result


def _prediction_homophily(outputs: Outputs) -> tuple[float, float]:
    if outputs.logits.shape[1] == 0:
        return math.nan, math.nan
    single = outputs.task == "multiclass"
    predicted = outputs.logits.argmax(dim=1, keepdim=True) if single else (outputs.logits > 0).long()
    return mean_homophily(predicted, outputs.graph.edge_index)


def _label_homophily(data: Data, outputs: Outputs) -> tuple[float, float] | None:
    known = node_mask(data, "train_mask")
    if getattr(data, "val_mask", None) is not None:
        known = known | node_mask(data, "val_mask")
    source, target = data.edge_index
    edges = data.edge_index[:, known[source] & known[target] & (source != target)]
    if edges.shape[1] < EVIDENCE:
        return None
    y = node_labels(data, outputs.task)
    return mean_homophily(y.view(len(y), -1).long(), edges)
