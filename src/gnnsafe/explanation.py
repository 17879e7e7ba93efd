"""Why a node has the score that it has."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gnnsafe.calibration import Calibration
from gnnsafe.checks import Task
from gnnsafe.display import shown
from gnnsafe.graph import node_ids
from gnnsafe.methods import Method
from gnnsafe.methods.base import base_scores_of
from gnnsafe.outputs import Outputs
from gnnsafe.regions import reached

__all__ = ["Explanation", "NearClass", "Share", "TrainingClasses", "explanation"]

DRAWN = 60  # nodes in a picture
NAMED = 3  # nodes and classes in a text


class Share(NamedTuple):
    """What one node brings to the score: `weight` × its own `score` before propagation = `share`."""

    node: int
    weight: float
    score: float
    share: float


class NearClass(NamedTuple):
    """A training class and how far the node lies from its mean: 1 is as far as its training nodes do."""

    label: int
    distance: float


@dataclass(frozen=True, eq=False)
class TrainingClasses:
    """Where each class's training nodes lie: the mean of their embeddings (or logits), and their distance from it.

    Kept on the CPU.
    """

    labels: Tensor
    means: Tensor
    spreads: Tensor

    @classmethod
    def of(cls, outputs: Outputs, y: Tensor, mask: Tensor) -> TrainingClasses:
        """Those of the training nodes; multilabel: for each label the nodes that have it."""
        h, y = _places(outputs)[mask].cpu().double(), y[mask].cpu()
        members = y[:, None] == torch.unique(y) if outputs.task == "multiclass" else y == 1
        labels = torch.unique(y) if outputs.task == "multiclass" else torch.arange(y.shape[1])
        labels, members = labels[members.any(dim=0)], members[:, members.any(dim=0)]
        groups = [h[member] for member in members.T]
        if not groups:  # no training node has a label
            return cls(labels, h[:0], h.new_empty(0))
        means = torch.stack([group.mean(dim=0) for group in groups])
        squares = [(group - mean).square().sum(dim=1) for group, mean in zip(groups, means, strict=True)]
        usual = torch.cat(squares).mean()  # for a class of one node, or of nodes that are all alike
        spreads = torch.stack([square.mean() if square.any() else usual for square in squares]).sqrt()
        return cls(labels, means, spreads)

    def nearest(self, outputs: Outputs, node: int) -> tuple[NearClass, ...]:
        """The classes, nearest first."""
        distances = (self.means - _places(outputs)[node].cpu().double()).norm(dim=1) / self.spreads.clamp(min=1e-12)
        order = distances.argsort()
        pairs = zip(self.labels[order].tolist(), distances[order].tolist(), strict=True)
        return tuple(NearClass(label, distance) for label, distance in pairs)


def _places(outputs: Outputs) -> Tensor:
    return outputs.logits if outputs.embedded is None else outputs.embedded


@dataclass(frozen=True, repr=False)
class Explanation:
    """A node's score, taken apart: print it, `to_dict()`, or `draw("why.png")`."""

    node: int
    method: str
    score: float
    own: float
    """Its own score before propagation; for GNNSafe its energy."""
    shares: tuple[Share, ...]
    """Every node that counts, the heaviest first; they sum to the score. Itself is among them."""
    task: Task
    logits: tuple[float, ...]
    probabilities: tuple[float, ...]
    predicted: tuple[int, ...]
    """The class, or all labels that it has (multilabel)."""
    p_value: float | None
    calibration: tuple[float, ...]
    """The calibration scores that it is compared with, lowest first."""
    nearest: tuple[NearClass, ...]
    """Training classes, nearest first."""
    ego: tuple[tuple[dict[str, Any], ...], tuple[tuple[int, int], ...]]
    """The nodes around it that count most (node, hop, score, weight), and the edges among them: what is drawn."""
    around: int
    """How many nodes there are so near; at most 60 of them are drawn."""
    node_ids: Mapping[int, Any] = field(default_factory=dict)
    """What the user calls the nodes that are named here, where the graph says so (`node_id`)."""
    class_names: tuple[Any, ...] | None = None

    def __str__(self) -> str:
        return "\n".join([self._standing(), *self._origin(), *self._prediction(), *self._classes()])

    __repr__ = __str__

    def to_dict(self) -> dict[str, Any]:
        """All of it, as JSON has it; of the calibration scores only where it stands among them."""
        nodes, edges = self.ego
        return {
            **({"node_ids": {str(number): own for number, own in self.node_ids.items()}} if self.node_ids else {}),
            **({"class_names": list(self.class_names)} if self.class_names else {}),
            **{name: getattr(self, name) for name in ("node", "method", "score", "own", "task", "p_value")},
            **{name: list(getattr(self, name)) for name in ("logits", "probabilities", "predicted")},
            "shares": [share._asdict() for share in self.shares],
            "nearest": [near._asdict() for near in self.nearest],
            "above": self.above,
            "calibration_nodes": len(self.calibration),
            "ego": {"nodes": list(nodes), "edges": [list(edge) for edge in edges], "around": self.around},
        }

    @property
    def above(self) -> float | None:
        """The share of calibration nodes that score lower."""
        if not self.calibration:
            return None
        return sum(score < self.score for score in self.calibration) / len(self.calibration)

    def draw(self, path: str | os.PathLike[str]) -> None:
        """The nodes around it, coloured by score, as .png, .svg or .html by the ending; needs `gnnsafe[report]`."""
        from gnnsafe.report.ego_graph import write_ego_graph

        write_ego_graph(Path(path), **self._picture())

    def chart(self) -> Any:
        """The same picture as an Altair chart, for a notebook."""
        from gnnsafe.report.ego_graph import ego_graph

        return ego_graph(**self._picture())

    def _picture(self) -> dict[str, Any]:
        nodes, edges = self.ego
        boundary = self.calibration[int(0.95 * (len(self.calibration) - 1))] if self.calibration else None
        named = [{**node, "name": self._node(node["node"])} for node in nodes]
        title = self._standing().rstrip(".")
        return {"nodes": named, "edges": edges, "title": title, "boundary": boundary, "around": self.around}

    def _node(self, number: int) -> str:
        return shown(self.node_ids.get(number, number))

    def _class(self, label: int) -> str:
        return shown(label if self.class_names is None else self.class_names[label])

    def _standing(self) -> str:
        text = f"Node {self._node(self.node)} scores {self.score:.4g}"
        if not self.calibration:
            unknown = "" if self.p_value is None else "; its class has no calibration node"
            return f"{text} (higher = more OOD){unknown}."
        return f"{text}, above {self.above:.1%} of {len(self.calibration)} calibration nodes (p = {self.p_value:.3g})."

    def _origin(self) -> list[str]:
        itself = next((share.weight for share in self.shares if share.node == self.node), 0.0)
        others = [share for share in self.shares if share.node != self.node]
        if not others:
            return [f"All of it is its own, by {self.method}."]
        lines = [
            f"Its own score before propagation is {self.own:.4g} and counts {itself:.1%}; "
            f"{len(others)} other node{'s' * (len(others) > 1)} count{'s' * (len(others) == 1)} for the rest."
        ]
        pulls = sorted(others, key=lambda share: share.weight * (share.score - self.score))
        for verb, chosen in (("raised", pulls[::-1]), ("lowered", pulls)):
            sign = 1 if verb == "raised" else -1
            named = [s for s in chosen[:NAMED] if sign * (s.score - self.score) > 0]
            if named:
                shares = ", ".join(f"{self._node(s.node)} ({s.score:.4g} × {s.weight:.1%})" for s in named)
                lines.append(f"  {verb} most by node{'s' * (len(named) > 1)} {shares}")
        return lines

    def _prediction(self) -> list[str]:
        if not self.logits:
            return []
        order = sorted(range(len(self.logits)), key=lambda label: -self.logits[label])[:NAMED]
        logits = ", ".join(f"{self._class(label)}: {self.logits[label]:.4g}" for label in order)
        likely = [(self._class(label), self.probabilities[label]) for label in self.predicted[:NAMED]]
        said = ", ".join(f"{name} (probability {probability:.2g})" for name, probability in likely)
        what = "class" if self.task == "multiclass" else "labels"
        return [f"Predicted {what} {said or 'none'}; largest logits {logits}."]

    def _classes(self) -> list[str]:
        if not self.nearest:
            return []
        first, *others = self.nearest[:NAMED]
        text = f"{self._class(first.label)} ({first.distance:.2g} times as far from its mean as its training nodes)"
        further = [f"{self._class(c.label)} ({c.distance:.2g})" for c in others]
        return [f"Nearest training classes {', '.join([text, *further])}."]


def explanation(
    method: Method,
    outputs: Outputs,
    node: int,
    *,
    calibration: Calibration | None,
    classes: TrainingClasses | None,
    class_names: tuple[Any, ...] | None = None,
) -> Explanation:
    """The score that `method` gives to a node of these outputs, taken apart."""
    own, how, edges = base_scores_of(method, outputs), method.propagation, outputs.graph.edges
    scores, row = how(own, edges), how.weights(edges, node, num_nodes=len(own))
    own, scores, row, index = (tensor.cpu() for tensor in (own, scores, row, edges.index))  # to be told and drawn
    p_value, compared = _standing(calibration, outputs, scores, node)
    logits = outputs.logits[node].cpu().double()
    softmax = outputs.task == "multiclass"
    probabilities = torch.softmax(logits, dim=0) if softmax else torch.sigmoid(logits)
    shares = _shares(row, own)
    drawn, joined, around = _ego(index, node, row, scores, hops=max(1, min(how.steps, 2)))
    ids = node_ids(outputs.graph)
    named = {node, *(share.node for share in shares), *(one["node"] for one in drawn)}
    predicted = logits.topk(min(1, len(logits))).indices if softmax else (logits > 0).nonzero().flatten()
    return Explanation(
        node=node,
        method=repr(method),
        score=float(scores[node]),
        own=float(own[node]),
        shares=shares,
        task=outputs.task,
        logits=tuple(logits.tolist()),
        probabilities=tuple(probabilities.tolist()),
        predicted=tuple(predicted.tolist()),
        p_value=p_value,
        calibration=compared,
        nearest=() if classes is None else classes.nearest(outputs, node),
        ego=(drawn, joined),
        around=around,
        node_ids={} if ids is None else {number: ids[number] for number in sorted(named)},
        class_names=class_names,
    )


def _shares(row: Tensor, own: Tensor) -> tuple[Share, ...]:
    nodes = row.nonzero().flatten()
    nodes = nodes[row[nodes].argsort(descending=True, stable=True)]
    columns = (nodes, row[nodes], own[nodes].double(), row[nodes] * own[nodes].double())
    return tuple(Share(*values) for values in zip(*(column.tolist() for column in columns), strict=True))


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
    start = torch.zeros(len(row), dtype=torch.bool)
    start[node] = True
    balls = [reached(edge_index.flip(0), start, hop) for hop in range(hops + 1)]
    hop = hops - torch.stack(balls).sum(dim=0) + 1  # how many balls a node is not in
    around = balls[-1].nonzero().flatten()
    order = torch.tensor(sorted(around.tolist(), key=lambda i: (int(hop[i]), -float(row[i]), i))[:DRAWN])
    kept = torch.zeros_like(start)
    kept[order] = True
    among = edge_index[:, kept[edge_index[0]] & kept[edge_index[1]] & (edge_index[0] != edge_index[1])]
    nodes = tuple(
        {"node": i, "hop": int(hop[i]), "score": float(scores[i]), "weight": float(row[i])} for i in order.tolist()
    )
    return nodes, tuple(dict.fromkeys((a, b) for a, b in among.T.tolist())), len(around)
