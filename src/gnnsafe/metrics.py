"""How well scores tell OOD from ID nodes, and how well logits tell classes: fractions in [0, 1].

Scores, labels and masks may be on any device.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gnnsafe.checks import check_labels, check_logits, check_mask, check_tensor
from gnnsafe.errors import InputError, is_number, require

__all__ = [
    "Detection",
    "accuracy",
    "auroc_within",
    "balanced_accuracy",
    "detection",
    "majority_rate",
    "threshold",
]


class Detection(NamedTuple):
    """Detection metrics; each name says which class is the positive one where it matters."""

    auroc: float
    """Chance that an OOD node scores above an ID node (ties count half)."""
    aupr_in: float
    """Average precision with ID nodes as positives: the paper's AUPR."""
    aupr_out: float
    """Average precision with OOD nodes as positives."""
    fpr95: float
    """Share of OOD nodes accepted at the threshold that accepts 95 % of ID nodes: the paper's FPR95."""
    fpr95_out: float
    """Share of ID nodes flagged at the threshold that flags 95 % of OOD nodes."""


def detection(id_scores: Any, ood_scores: Any) -> Detection:
    """All detection metrics from one sort, ties included; higher scores mean more out-of-distribution.

    Args:
        id_scores: The scores of ID nodes: a tensor, an array or a list.
        ood_scores: The scores of OOD nodes.

    Returns:
        AUROC, both average precisions and both FPR95, each from 0 to 1.

    Raises:
        InputError: There are no scores, or some are NaN, infinite or not of shape [nodes].

    >>> detection([0.1, 0.2, 0.3, 0.6], [0.4, 0.7])
    Detection(auroc=0.875, aupr_in=0.95, aupr_out=0.8333..., fpr95=0.5, fpr95_out=0.25)
    """
    id_scores, ood_scores = _values("id_scores", id_scores), _values("ood_scores", ood_scores)
    num_id, num_ood = len(id_scores), len(ood_scores)
    ordered, inside = _sorted(np.concatenate([id_scores, ood_scores]), num_id)
    last = np.append(np.flatnonzero(ordered[1:] != ordered[:-1]), len(ordered) - 1)  # end of each group of ties
    accepted_id = np.cumsum(inside)[last]  # ID nodes with at most that score
    accepted_ood = last + 1 - accepted_id
    # With OOD as positives the thresholds are passed from above: what is not accepted is flagged.
    flagged_id = np.append(num_id - accepted_id[-2::-1], num_id)
    flagged_ood = np.append(num_ood - accepted_ood[-2::-1], num_ood)
    return Detection(
        auroc=_auroc(accepted_id, accepted_ood),
        aupr_in=_average_precision(accepted_id, accepted_ood),
        aupr_out=_average_precision(flagged_ood, flagged_id),
        fpr95=_fpr_at_recall(accepted_id, accepted_ood, 0.95),
        fpr95_out=_fpr_at_recall(flagged_ood, flagged_id, 0.95),
    )


def _sorted(scores: NDArray[Any], num_id: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """The scores in order, or numbers in the same order, and which of them are of the first `num_id`.

    Float32 scores are sorted as integers with that bit at their end, which takes a third of an argsort's time.
    """
    if scores.dtype != np.float32:
        order = np.argsort(scores)
        return scores[order], order < num_id
    keys = (scores + np.float32(0)).view(np.int32).astype(np.int64)  # + 0: there is one zero, not two
    keys ^= (keys >> 63) & 0x7FFFFFFF  # negative floats are in order backwards
    keys <<= 1
    keys[:num_id] |= 1
    keys.sort()
    return keys >> 1, keys & 1


def threshold(id_scores: Any, *, recall: float = 0.95) -> float:
    """The lowest score τ such that at least `recall` of the ID nodes have a score ≤ τ.

    Args:
        id_scores: The scores of ID nodes: a tensor, an array or a list.
        recall: The share of them to be accepted, above 0 and at most 1.

    Returns:
        τ, one of the scores.

    Raises:
        InputError: There are no scores, some are NaN or infinite, or recall does not lie in (0, 1].

    >>> threshold([3.0, 1.0, 2.0, 4.0], recall=0.75)
    3.0
    """
    require(is_number(recall) and 0 < recall <= 1, "recall", "lie in (0, 1]", recall)
    ordered = np.sort(_values("id_scores", id_scores))
    counts = np.arange(1, len(ordered) + 1)
    return float(ordered[np.argmax(counts / len(ordered) >= recall)])


def accuracy(logits: Tensor, y: Tensor, mask: Tensor) -> float:
    """Share of the masked nodes whose largest logit is at their label.

    Args:
        logits: One row per node and one column per class.
        y: The class of each node.
        mask: The nodes that count.

    Returns:
        A share from 0 to 1.

    Raises:
        InputError: Logits, labels or mask are not of the graph's size or kind.

    >>> logits = torch.tensor([[2.0, 1.0], [0.0, 3.0], [5.0, 0.0]])
    >>> accuracy(logits, torch.tensor([0, 1, 1]), torch.tensor([True, False, True]))
    0.5
    """
    right, _ = _right(logits, y, mask)
    return float(right.float().mean())


def balanced_accuracy(logits: Tensor, y: Tensor, mask: Tensor) -> float:
    """Mean over the classes that masked nodes have of the share of their nodes that is right: 1 / classes by chance.

    Args:
        logits: One row per node and one column per class.
        y: The class of each node.
        mask: The nodes that count.

    Returns:
        A share from 0 to 1.

    Raises:
        InputError: Logits, labels or mask are not of the graph's size or kind.

    >>> logits = torch.tensor([[2.0, 1.0], [3.0, 0.0], [5.0, 0.0]])
    >>> balanced_accuracy(logits, torch.tensor([0, 0, 1]), torch.tensor([True, True, True]))
    0.5
    """
    right, labels = _right(logits, y, mask)
    return float(torch.stack([right[labels == label].double().mean() for label in torch.unique(labels)]).mean())


def _right(logits: Tensor, y: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Which of the masked nodes have their largest logit at their label, and these labels."""
    check_logits(logits)
    check_labels("y", y, len(logits))
    mask = check_mask("mask", mask, len(logits)).to(logits.device)
    labels = y.to(logits.device)[mask]
    return logits[mask].argmax(dim=-1) == labels, labels


def majority_rate(y: Tensor, train: Tensor, mask: Tensor) -> float:
    """Share of the masked nodes in the class that most training nodes have: what a constant prediction reaches.

    Args:
        y: The class of each node.
        train: The training nodes, as a mask.
        mask: The nodes that count.

    Returns:
        A share from 0 to 1.

    Raises:
        InputError: Labels or masks are not of the graph's size or kind.

    >>> majority_rate(torch.tensor([0, 0, 1, 1, 0]), torch.tensor([1, 1, 1, 0, 0]).bool(), torch.arange(5) > 2)
    0.5
    """
    check_labels("y", y, len(mask))
    train = check_mask("train", train, len(y)).to(y.device)
    mask = check_mask("mask", mask, len(y)).to(y.device)
    return float((y[mask] == torch.bincount(y[train]).argmax()).double().mean())


def _values(name: str, scores: Any) -> NDArray[np.floating[Any]]:
    if isinstance(scores, Tensor):
        tensor = check_tensor(name, scores).detach().cpu()
        values = (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()  # numpy has no bfloat16
    else:
        try:
            values = np.asarray(scores)
        except ValueError as error:
            raise InputError(f"'{name}' must be one score per node, of shape [nodes] (got {error})") from error
    require(values.ndim == 1, name, "be one score per node, of shape [nodes]", list(values.shape))
    require(values.size > 0, name, "hold at least one score", "none")
    if not (np.issubdtype(values.dtype, np.floating) or np.issubdtype(values.dtype, np.integer)):
        raise InputError(f"'{name}' must be real numbers (got {values.dtype})")
    require(bool(np.isfinite(values).all()), name, "be finite", f"{int((~np.isfinite(values)).sum())} NaN or infinite")
    return values


def _groups(name: str, groups: Any, count: int) -> NDArray[Any]:
    values = np.asarray(groups.detach().cpu() if isinstance(groups, Tensor) else groups)
    require(values.shape == (count,), name, f"be one for each of {count} scores", list(values.shape))
    return values


def _auroc(hits: NDArray[np.int64], misses: NDArray[np.int64]) -> float:
    """Area under the curve through (0, 0) and the counts of both classes at each threshold, by trapezoids."""
    new_misses = np.diff(misses, prepend=0)
    heights = hits + np.append(0, hits[:-1])
    return float(np.dot(new_misses.astype(np.float64), heights) / (2.0 * hits[-1] * misses[-1]))


def _average_precision(hits: NDArray[np.int64], misses: NDArray[np.int64]) -> float:
    """Σ (recall_n − recall_{n−1}) · precision_n over the thresholds."""
    return float(np.dot(np.diff(hits, prepend=0), hits / (hits + misses)) / hits[-1])


def _fpr_at_recall(hits: NDArray[np.int64], misses: NDArray[np.int64], recall: float) -> float:
    """Share of misses at the first threshold whose recall reaches `recall`."""
    return float(misses[np.argmax(hits / hits[-1] >= recall)] / misses[-1])


def auroc_within(id_scores: Any, ood_scores: Any, id_groups: Any, ood_groups: Any) -> float | None:
    """Chance that an OOD node scores above an ID node of the same group (ties count half): None where there are no two.

    Every pair of nodes of one group counts alike. With degrees as groups it says what a score knows beyond them.

    Args:
        id_scores: The scores of ID nodes: a tensor, an array or a list.
        ood_scores: The scores of OOD nodes.
        id_groups: The group of each ID node.
        ood_groups: The group of each OOD node.

    Returns:
        A share from 0 to 1; None where no group has both ID and OOD nodes.

    Raises:
        InputError: There are no scores, some are NaN or infinite, or there is not one group for each score.

    >>> auroc_within([1.0, 5.0], [2.0, 6.0, 0.0], [0, 1], [0, 1, 1])  # 2 > 1; 6 > 5; 0 < 5
    0.666...
    """
    scores = [_values("id_scores", id_scores), _values("ood_scores", ood_scores)]
    named = zip(("id_groups", "ood_groups"), (id_groups, ood_groups), scores, strict=True)
    groups = np.concatenate([_groups(name, given, len(values)) for name, given, values in named])
    total = len(groups)
    values, outside = np.concatenate(scores), np.arange(total) >= len(scores[0])
    order = np.lexsort((values, groups))
    groups, values, outside = groups[order], values[order], outside[order]
    starts = np.flatnonzero(np.append(True, groups[1:] != groups[:-1]))
    tied = np.flatnonzero(np.append(True, (groups[1:] != groups[:-1]) | (values[1:] != values[:-1])))
    inside_before = np.append(0, np.cumsum(~outside))
    first = inside_before[starts].repeat(np.diff(np.append(starts, total)))[tied]  # those of groups before
    odd, even = (np.add.reduceat(kind.astype(np.int64), tied) for kind in (outside, ~outside))
    wins = float(np.dot(odd, inside_before[tied] - first + even / 2))
    count = float(np.dot(*(np.add.reduceat(kind.astype(np.int64), starts) for kind in (outside, ~outside))))
    return wins / count if count else None
