"""Conformal sets of classes: which known classes a node conforms to, by its logits and by how odd it is as a whole.

A class c is tested for a node by two p-values: P of its OOD score, and Q of its margin a_c = max_k z_k − z_c among
the margins that calibration nodes have at their own class. One error is shared by both: their lesser is ranked again,
among the calibration nodes' own, and the class is in the set where that rank is not rare:

    p_c = (1 + #{j: min(P_j, Q_j) ≤ min(P, Q)}) / (n + 1) > error.

Why the promise holds: join the node, as one of class c, to the n calibration nodes, and take all ranks among these
n + 1. If they are exchangeable, each is as likely as any other to be the one with the k-th least min(P, Q): p_c ≤ error
has a probability of at most error. Who joins moves the ranks of others by one place at most, and P_j, Q_j are taken at
the end of it that keeps the promise: P_j counts j itself once, B_j / (n + 1), and so does Q_j unless Q ≤ P, when those
that count have margins no smaller than the node's, and stand behind no new one. That gives away one node in n. The
highest score and the largest margin both have the least rank, so that p_c is hardly below 2 / (n + 1): sets need twice
as many calibration nodes as false alarms do.

The predicted class has the margin 0 and Q = 1: the OOD score alone leaves it out. So an empty set says "none of the
known classes", and a node that the model is unsure of gets a large set, not an empty one.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import torch
from torch import Tensor

from gnnsafe.calibration.p_values import check_level, conformal_p_values, nodes_needed
from gnnsafe.checks import check_labels, check_scores
from gnnsafe.errors import CalibrationWarning, require
from gnnsafe.scores import max_softmax, saturated

__all__ = ["KnownClasses", "class_margins", "shared_p_values"]

ROUNDING = 1 + 1e-9  # ranks that are equal must not differ by how they were computed


@dataclass(frozen=True, eq=False)
class KnownClasses:
    """The classes of calibration nodes, −1 where unknown, and the margins of their logits at them; on the CPU."""

    labels: Tensor
    margins: Tensor
    probabilities: Tensor | None = None
    """Of the predicted class: what confidence was worth, for estimates of accuracy (`gnnsafe.monitoring`)."""

    def __post_init__(self) -> None:
        check_labels("labels", self.labels, len(self.labels))
        check_scores(self.margins)
        require(len(self.labels) == len(self.margins), "margins", f"be {len(self.labels)}", len(self.margins))
        require(bool((self.labels >= 0).any()), "labels", "be known for a node", "none")
        confident = len(self.labels if self.probabilities is None else self.probabilities)
        require(confident == len(self.labels), "probabilities", f"be {len(self.labels)}", confident)
        for name in ("labels", "margins", "probabilities"):
            value = getattr(self, name)
            object.__setattr__(self, name, None if value is None else value.cpu())

    @classmethod
    def of(cls, logits: Tensor, labels: Tensor) -> KnownClasses | None:
        """Of calibration nodes; a label that is none of the model's classes is not known. None where no label is."""
        inside = (labels >= 0) & (labels < logits.shape[1])
        labels = torch.where(inside, labels, -1)
        own = class_margins(logits).gather(1, labels.clamp(min=0)[:, None]).squeeze(1)
        return cls(labels, own, -max_softmax(logits)) if inside.any() else None

    def sets(self, p: Tensor, logits: Tensor, ranks: Tensor, error: float, *, by_class: bool = False) -> Tensor:
        """Which classes are in each node's set, [nodes, classes]; a share `error` of ID nodes at most lacks its own.

        Args:
            p: P, the p-values of the nodes' OOD scores.
            logits: Of the nodes.
            ranks: P_j of the calibration nodes.
            error: Shared by the OOD score and the logits.
            by_class: Hold each class against the calibration nodes of that class, so that the error holds in each. One
                that has too few is compared with those of all classes, with a warning.
        """
        check_level("error", error)
        margins, groups = class_margins(logits), self._groups(logits.shape[1], error, by_class)
        own = [(margins[:, label], ranks[group], self.margins[group]) for label, group in enumerate(groups)]
        return torch.stack([shared_p_values(p, *each) > error for each in own], dim=1)

    def _groups(self, num_classes: int, error: float, by_class: bool) -> list[Tensor]:
        """The calibration nodes that each class is compared with, as masks; a warning where they are too few."""
        known, needed = self.labels >= 0, nodes_needed(error / 2)
        groups = [self.labels == label if by_class else known for label in range(num_classes)]
        few = {label: int(group.sum()) for label, group in enumerate(groups) if group.sum() < needed}
        if few:
            have = self._few_of_a_class(few) if by_class and known.sum() >= needed else self._few()
            warnings.warn(f"{have}: at least {needed} are needed at error={error:g}", CalibrationWarning, stacklevel=5)
        return [known if label in few else group for label, group in enumerate(groups)]

    def _few(self) -> str:
        return f"{int((self.labels >= 0).sum())} calibration nodes of known class are too few to leave out any class"

    def _few_of_a_class(self, few: dict[int, int]) -> str:
        counts = ", ".join(f"{label} ({count})" for label, count in few.items())
        return (
            f"the calibration nodes of class {counts} are too few for sets by class, so it is compared with those of "
            "all classes, and its nodes' sets may lack it more often than stated"
        )


def class_margins(logits: Tensor) -> Tensor:
    """a_c = max_k z_k − z_c, how far each class stands behind the predicted one, [nodes, classes].

    >>> class_margins(torch.tensor([[2.0, 0.5, 3.0]])).tolist()
    [[1.0, 2.5, 0.0]]
    """
    exact = logits.double()
    return saturated(exact.amax(dim=1, keepdim=True) - exact)


def shared_p_values(p: Tensor, margins: Tensor, known: Tensor, known_margins: Tensor) -> Tensor:
    """p_c = (1 + #{j: min(P_j, Q_j) ≤ min(P, Q)}) / (n + 1) of one class at every node.

    Args:
        p: P, the p-values of the nodes' OOD scores.
        margins: The nodes' margins at the class.
        known: P_j = B_j / (n + 1) of the calibration nodes, B_j how many of them score at least s_j.
        known_margins: Their margins at their own class.

    >>> known, margins = torch.arange(1, 5).double() / 5, torch.tensor([0.0, 0.0, 0.0, 3.0])
    >>> p = torch.tensor([5, 1, 5]).double() / 5
    >>> shared_p_values(p, torch.tensor([0.0, 0.0, 4.0]), known, margins).tolist()
    [1.0, 0.6, 0.4]
    """
    known, known_margins, one = known.to(p.device), known_margins.to(p.device), ROUNDING / (len(known) + 1)
    q, known_q = (conformal_p_values(each.contiguous(), known_margins) for each in (margins, known_margins))
    behind, once = (torch.minimum(known, each).sort().values for each in (known_q, known_q - one))
    least = torch.minimum(p, q)
    ranks, lower = (torch.searchsorted(each, least, right=True) for each in (behind, once))
    return (1 + torch.where(q <= p, ranks, lower)).double() / (len(known) + 1)
