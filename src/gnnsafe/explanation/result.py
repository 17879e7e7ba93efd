"""A score taken apart: what is said of it in words, as a record and in a picture."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gnnsafe.checks import Task
from gnnsafe.display import shown
from gnnsafe.explanation.classes import NearClass
from gnnsafe.explanation.shares import Evidence, Share, pulls

__all__ = ["Explanation"]

NAMED = 3  # nodes and classes in a text
PULLS = 2  # nodes that raised, or lowered, one piece of evidence
TOLD = 0.05  # of a difference between the score and what p-values compare
RAREST = 1e-6  # of a p-value that says more than that the node is beyond all that was seen
NUMBERS = ("node", "method", "score", "compared", "own", "task", "p_value")


@dataclass(frozen=True, repr=False)
class Explanation:
    """A node's score, taken apart: print it, `to_dict()`, or `draw("why.png")`."""

    node: int
    """Its number."""
    method: str
    """The method, as its `repr`."""
    score: float
    """The score that is explained."""
    compared: float
    """What p-values compare: the score, or, of a method that reads the graph as a whole, what is left without that."""
    own: float
    """Its own score before propagation; for GNNSafe its energy."""
    shares: tuple[Share, ...]
    """Every node that counts, the heaviest first; they sum to the score. Itself is among them.

    A method that weighs evidence has one score per node, made of it: that node's share is all of it.
    """
    evidence: tuple[Evidence, ...]
    """What a method that weighs evidence makes `own` of, the most telling first, silent evidence last."""
    graph: tuple[str, ...]
    """What the graph as a whole did to that, in words."""
    figures: Mapping[str, float]
    """The same as numbers: for `TwoScale` t, surroundings' weight, openness, lift and shift, −log p before them."""
    task: Task
    """What the logits mean: "multiclass" or "multilabel"."""
    logits: tuple[float, ...]
    """Of the node, one per class or label."""
    probabilities: tuple[float, ...]
    """Of each class or label."""
    predicted: tuple[int, ...]
    """The class, or all labels that it has (multilabel)."""
    p_value: float | None
    """None where the detector is not calibrated."""
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
    """What the classes are called, in the order of their numbers."""

    def __str__(self) -> str:
        parts = self._evidence(), self.graph, self._origin(), self._prediction(), self._classes()
        return "\n".join([self._standing(), *(line for lines in parts for line in lines)])

    __repr__ = __str__

    def to_dict(self) -> dict[str, Any]:
        """All of it, as JSON has it; of the calibration scores only where it stands among them.

        Returns:
            Numbers, lists and texts by name.
        """
        nodes, edges = self.ego
        own = {
            str(node): name if isinstance(name, str | int | float) else str(name)
            for node, name in self.node_ids.items()
        }
        return {
            **({"node_ids": own} if own else {}),
            **({"class_names": list(self.class_names)} if self.class_names else {}),
            **{name: getattr(self, name) for name in (*NUMBERS, "total")},
            **{name: list(getattr(self, name)) for name in ("logits", "probabilities", "predicted")},
            "shares": [share._asdict() for share in self.shares],
            "evidence": [one.to_dict() for one in self.evidence],
            "graph": {"says": list(self.graph), **self.figures},
            "nearest": [near._asdict() for near in self.nearest],
            "above": self.above,
            "calibration_nodes": len(self.calibration),
            "ego": {"nodes": list(nodes), "edges": [list(edge) for edge in edges], "around": self.around},
        }

    @property
    def total(self) -> float:
        """What the evidence adds up to."""
        return sum(one.addend for one in self.evidence)

    @property
    def above(self) -> float | None:
        """The share of calibration nodes that score lower."""
        if not self.calibration:
            return None
        return sum(score < self.compared for score in self.calibration) / len(self.calibration)

    def draw(self, path: str | os.PathLike[str]) -> None:
        """The nodes around it, coloured by score, as .png, .svg or .html by the ending; needs `gnnsafe[report]`.

        Args:
            path: Where to; the ending says the format.

        Raises:
            InputError: The ending is another, or the file cannot be written.
            MissingExtraError: Altair is not installed.
        """
        from gnnsafe.report.ego_graph import write_ego_graph

        write_ego_graph(Path(path), **self._picture())

    def chart(self) -> Any:
        """The same picture as an Altair chart, for a notebook.

        Returns:
            An Altair chart.

        Raises:
            MissingExtraError: Altair is not installed.
        """
        from gnnsafe.report.ego_graph import ego_graph

        return ego_graph(**self._picture())

    def _picture(self) -> dict[str, Any]:
        nodes, edges = self.ego
        boundary = self.calibration[int(0.95 * (len(self.calibration) - 1))] if self.calibration else None
        named = [{**node, "name": self._node(node["node"])} for node in nodes]
        left_out = f"Colours are by what p-values compare, {self.compared:.4g} for this node: see the text."
        return {
            "nodes": named,
            "edges": edges,
            "title": self._standing().rstrip("."),
            "boundary": boundary,
            "around": self.around,
            "note": left_out if abs(self.score - self.compared) >= TOLD else "",
        }

    def _node(self, number: int) -> str:
        return shown(self.node_ids.get(number, number))

    def _class(self, label: int) -> str:
        return shown(label if self.class_names is None else self.class_names[label])

    def _standing(self) -> str:
        text = f"Node {self._node(self.node)} scores {self.score:.4g}"
        if not self.calibration:
            unknown = "" if self.p_value is None else "; its class has no calibration node"
            return f"{text} (higher = more OOD){unknown}."
        text += "," if self.score == self.compared else "; what p-values compare of it is"
        return f"{text} above {self.above:.1%} of {len(self.calibration)} calibration nodes (p = {self.p_value:.3g})."

    def _origin(self) -> list[str]:
        itself = next((share.weight for share in self.shares if share.node == self.node), 0.0)
        others = [share for share in self.shares if share.node != self.node]
        if not others:
            return [] if self.evidence else [f"All of it is its own, by {self.method}."]
        first = (
            f"Its own score before propagation is {self.own:.4g} and counts {itself:.1%}; "
            f"{len(others)} other node{'s' * (len(others) > 1)} count{'s' * (len(others) == 1)} for the rest."
        )
        return [first, *(f"  {line}" for line in self._pulls(self.shares, self.score, NAMED))]

    def _pulls(self, found: tuple[Share, ...], score: float, count: int) -> list[str]:
        return pulls(found, score, self.node, self._node, count)

    def _evidence(self) -> list[str]:
        if not self.evidence:
            return []
        lines = [f"Its evidence adds up to {self.total:.3g} (p: how rare among ID nodes):"]
        for one in self.evidence:
            if one.p_value is None:
                lines.append(f"    none  {one.says}: {one.silent}")
                continue
            lines.append(f"  {one.addend:+6.2f}  {one.says} ({_rarity(one.p_value)}, weight {one.weight:.2f})")
            if one.score is not None and (found := self._pulls(one.shares, one.score, PULLS)):
                lines.append(f"          {'; '.join(found)}")
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


def _rarity(p_value: float) -> str:
    return f"p = {p_value:.2g}" if p_value >= RAREST else f"p < {RAREST:g}"
