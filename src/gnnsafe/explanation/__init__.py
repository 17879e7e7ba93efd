"""Why a node has the score that it has."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gnnsafe.calibration import Calibration
from gnnsafe.explanation.classes import NearClass, TrainingClasses
from gnnsafe.explanation.result import Explanation
from gnnsafe.explanation.shares import Evidence, Share, evidence, mean_weights, shares
from gnnsafe.graph import node_ids
from gnnsafe.methods import Method
from gnnsafe.methods.scored import scored_part
from gnnsafe.outputs import Outputs
from gnnsafe.regions import reached

__all__ = ["Evidence", "Explanation", "NearClass", "Share", "TrainingClasses", "explain"]

DRAWN = 60  # nodes in a picture


def explain(
    method: Method,
    outputs: Outputs,
    node: int,
    *,
    calibration: Calibration | None,
    classes: TrainingClasses | None,
    class_names: tuple[Any, ...] | None = None,
    part: bool = False,
) -> Explanation:
    """The score that `method` gives to a node of these outputs, taken apart.

    They are those of a whole graph, or of a `part` of the one that the method has read last, by whose weights it is
    scored.
    """
    scored = scored_part(method, outputs) if part else method.scored(outputs)
    method, edges, compared = scored.method, outputs.graph.edges, scored.compared.cpu()
    reasons = method.reasons(scored.rows[node], None if scored.around is None else scored.around[node])
    pieces = evidence(method.parts(), reasons.addends, method.heard(outputs), node)
    own = method.weighed(scored.rows).float()
    whole = shares(own, method.propagation, edges, node)
    p_value, calibrated = _standing(calibration, outputs, compared, node)
    row = mean_weights(whole, pieces, node, len(compared))
    steps = max(part.propagation.steps for part in (method, *(method.parts() if pieces else ())))
    drawn, joined, around = _ego(edges.index.cpu(), node, row, compared, hops=max(1, min(steps, 2)))
    named = {share.node for found in (whole, *(one.shares for one in pieces)) for share in found}
    return Explanation(
        node=node,
        method=repr(method),
        score=float(scored.scores[node]),
        compared=float(compared[node]),
        own=float(own[node]),
        shares=whole,
        evidence=pieces,
        graph=reasons.graph,
        figures=reasons.figures,
        **_prediction(outputs, node),
        p_value=p_value,
        calibration=calibrated,
        nearest=() if classes is None else classes.nearest(outputs, node),
        ego=(drawn, joined),
        around=around,
        node_ids=_ids(outputs, named | {one["node"] for one in drawn}),
        class_names=class_names,
    )


def _prediction(outputs: Outputs, node: int) -> dict[str, Any]:
    logits, softmax = outputs.logits[node].cpu().double(), outputs.task == "multiclass"
    probabilities = torch.softmax(logits, dim=0) if softmax else torch.sigmoid(logits)
    predicted = logits.topk(min(1, len(logits))).indices if softmax else (logits > 0).nonzero().flatten()
    found = {"logits": logits, "probabilities": probabilities, "predicted": predicted}
    return {"task": outputs.task, **{name: tuple(values.tolist()) for name, values in found.items()}}


def _ids(outputs: Outputs, nodes: set[int]) -> dict[int, Any]:
    ids = node_ids(outputs.graph)
    return {} if ids is None else {number: ids[number] for number in sorted(nodes)}


def _standing(
    calibration: Calibration | None, outputs: Outputs, scores: Tensor, node: int
) -> tuple[float | None, tuple[float, ...]]:
    if calibration is None:
        return None, ()
    classes = None if calibration.classes is None else outputs.logits[node : node + 1].argmax(dim=1).cpu()
    compared = calibration.scores if classes is None else calibration.scores[calibration.classes == classes]
    return float(calibration.p_values(scores[node : node + 1], classes)), tuple(compared.sort().values.tolist())


def _ego(
    edge_index: Tensor, node: int, row: Tensor, scores: Tensor, *, hops: int
) -> tuple[tuple[dict[str, Any], ...], tuple[tuple[int, int], ...], int]:
    """Of the nodes that point to `node` in few hops the heaviest, the edges among these, and how many there are."""
    start = torch.zeros(len(row), dtype=torch.bool, device=row.device)
    start[node] = True
    balls = [reached(edge_index.flip(0), start, hop) for hop in range(hops + 1)]
    hop = hops - torch.stack(balls).sum(dim=0) + 1  # how many balls a node is not in
    around = balls[-1].nonzero().flatten()
    order = torch.tensor(
        sorted(around.tolist(), key=lambda i: (int(hop[i]), -float(row[i]), i))[:DRAWN], device=row.device
    )
    kept = torch.zeros_like(start)
    kept[order] = True
    among = edge_index[:, kept[edge_index[0]] & kept[edge_index[1]] & (edge_index[0] != edge_index[1])]
    nodes = tuple(
        {"node": i, "hop": int(hop[i]), "score": float(scores[i]), "weight": float(row[i])} for i in order.tolist()
    )
    return nodes, tuple(dict.fromkeys((a, b) for a, b in among.T.tolist())), len(around)
