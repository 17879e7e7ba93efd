"""Scores of held-out ID nodes, and decisions about other nodes by them."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import get_args

import numpy as np
import torch
from torch import Tensor

from gnnsafe.calibration.p_values import (
    TAIL_NODES,
    Tail,
    check_level,
    conformal_p_values,
    discovery_limit,
    extrapolated_p_values,
    nodes_needed,
)
from gnnsafe.calibration.sets import ROUNDING, KnownClasses
from gnnsafe.checks import check_mask, check_scores
from gnnsafe.errors import CalibrationWarning, require, require_flag, require_known, require_seed

__all__ = ["ODD", "Calibration", "rare", "warn_of_shared"]

MANY = 0.2  # the share of nodes flagged, above which ID nodes beside OOD nodes are likely among them
FEW = 20  # nodes, of which a share says little
ENOUGH = 100  # nodes, of which it is told what they have in common
ODD = 0.05  # a node is odd whose own evidence, or p-value, one ID node in twenty has


@dataclass(frozen=True, eq=False)
class Calibration:
    """Scores of held-out ID nodes; with their predicted `classes`, decisions are made class by class.

    By class (Mondrian; Vovk et al., 2005) a node is compared with the calibration nodes of its own predicted class, and
    the false-alarm rate holds in each of the `num_classes`, not only over all of them. Calibration scores are kept on
    the CPU; p-values and flags are on the device of the scores and p-values that they are made of.

    Args:
        scores: Of the held-out ID nodes, the calibration nodes.
        classes: Their predicted classes; None: all nodes are compared with all of them.
        num_classes: How many classes there are, where `classes` are given.
        known: Their true classes, for `sets`.
        watched: What is watched over many graphs, [nodes, scores], where that is not the scores.

    Raises:
        InputError: There are no scores, some are NaN or infinite, or other fields are not of their length.

    >>> calibration = Calibration(torch.arange(99.0))
    >>> p = calibration.p_values(torch.tensor([50.0, 98.5]))
    >>> p.tolist(), calibration.decisions(p, false_alarm=0.05).tolist()
    ([0.5, 0.01], [False, True])
    """

    scores: Tensor
    classes: Tensor | None = None
    num_classes: int = 0
    known: KnownClasses | None = None
    """The nodes' true classes, for `sets`."""
    watched: Tensor | None = None
    """What is watched over many graphs, [nodes, scores], where that is not the scores; see `Detector.watching`."""

    def __post_init__(self) -> None:
        check_scores(self.scores)
        require(len(self.scores) > 0, "mask", "hold at least one node", "an empty mask")
        labelled = len(self.scores if self.known is None else self.known.labels)
        require(labelled == len(self.scores), "known", f"have {len(self.scores)} labels", labelled)
        rows = len(self.scores if self.watched is None else self.watched)
        require(rows == len(self.scores), "watched", f"have {len(self.scores)} rows", rows)
        if self.classes is not None:
            count, kind = len(self.scores), f"{self.classes.dtype} {list(self.classes.shape)}"
            fits = self.classes.dtype == torch.int64 and self.classes.shape == (count,)
            require(fits, "classes", f"be {count} whole numbers", kind)
            inside = int(self.classes.min()) >= 0 and int(self.classes.max()) < self.num_classes
            require(inside, "classes", f"be below num_classes, {self.num_classes}", int(self.classes.max()))
        for name in ("scores", "classes", "watched"):
            value = getattr(self, name)
            object.__setattr__(self, name, None if value is None else value.cpu())

    def p_values(
        self, scores: Tensor, classes: Tensor | None = None, *, seed: int | None = None, tail: Tail = "exact"
    ) -> Tensor:
        """The p-value of each score, among the calibration nodes of its class where these count.

        Args:
            scores: One per node.
            classes: The nodes' predicted classes, which are read where calibration is by class.
            seed: Breaks ties at random, see `conformal_p_values`.
            tail: "extrapolated" extends p-values beyond all calibration nodes, see `extrapolated_p_values`.

        Returns:
            A p-value for each score, float64; small = OOD.

        Raises:
            InputError: There is no such `tail`, or a `seed` is given with an extrapolated one.
        """
        require_known("tail", tail, get_args(Tail))
        require(seed is None or tail == "exact", "seed", "be left out with tail='extrapolated'", seed)
        if seed is not None:
            require_seed(seed)
        if tail == "extrapolated" and (least := int(self.counts().min())) < TAIL_NODES:
            _warn(f"{least} calibration nodes are too few to extend a tail from: at least {TAIL_NODES} are needed")
        if self.classes is None:
            return _p_values(scores, self.scores, seed, tail)
        assert classes is not None
        p = torch.ones(len(scores), dtype=torch.float64, device=scores.device)
        for label in range(self.num_classes):
            members = classes == label
            own = None if seed is None else (seed + label) % 2**64  # else classes would share their draws
            p[members] = _p_values(scores[members], self.scores[self.classes == label], own, tail)
        return p

    def counts(self) -> Tensor:
        """How many calibration nodes there are, in each class or in all.

        Returns:
            One number for all nodes, or one for each class.
        """
        if self.classes is None:
            return torch.tensor([len(self.scores)], device="cpu")
        return torch.bincount(self.classes, minlength=self.num_classes)

    def thresholds(self, false_alarm: float) -> Tensor:
        """A node is flagged where its score lies above this: one number, or one for each class; ∞ where none can be.

        Args:
            false_alarm: The share of ID nodes that may be flagged, between 0 and 1.

        Returns:
            A threshold for all nodes, or one for each class.

        Raises:
            InputError: The level does not lie between 0 and 1.
        """
        check_level("false_alarm", false_alarm)
        if self.classes is None:
            return _threshold(self.scores, false_alarm)[None]
        groups = [self.scores[self.classes == label] for label in range(self.num_classes)]
        return torch.stack([_threshold(group, false_alarm) for group in groups])

    def decisions(
        self,
        p: Tensor,
        *,
        false_alarm: float | None = None,
        fdr: float | None = None,
        mask: Tensor | None = None,
        storey: bool = False,
    ) -> Tensor:
        """Flags of p-values at one of the two levels, with a warning where the promise is empty or hard to believe.

        Args:
            p: The p-values of all nodes.
            false_alarm: Of the ID nodes at most this share is flagged.
            fdr: Of the flagged nodes at most this share is ID.
            mask: The nodes to decide about; no other is flagged. With `fdr` each is weighed among these alone.
            storey: With `fdr`, count ID nodes by Storey's estimate in place of all nodes, see `id_share`.

        Returns:
            A boolean per node; True = OOD.

        Raises:
            InputError: Both or none of `false_alarm` and `fdr` are given, or a level does not lie between 0 and 1.
        """
        asked = torch.ones_like(p, dtype=torch.bool) if mask is None else check_mask("mask", mask, len(p)).to(p.device)
        each = torch.ones_like(p[asked], dtype=torch.int64)
        limit = self.limit(p[asked], each, false_alarm=false_alarm, fdr=fdr, storey=storey)
        return asked & (p <= limit)

    def limit(
        self,
        p: Tensor,
        counts: Tensor,
        *,
        false_alarm: float | None = None,
        fdr: float | None = None,
        storey: bool = False,
    ) -> float:
        """The p-value up to which nodes are flagged, where each of `p` is that of so many nodes; warns as `decisions`.

        Args:
            p: The p-values of the nodes to decide about, each once or as often as it is there.
            counts: How many nodes have it.
            false_alarm: Of the ID nodes at most this share is flagged.
            fdr: Of the flagged nodes at most this share is ID.
            storey: With `fdr`, count ID nodes by Storey's estimate.

        Returns:
            The largest p-value that is flagged; −∞: none is.

        Raises:
            InputError: Both or none of `false_alarm` and `fdr` are given, or a level does not lie between 0 and 1.
        """
        given = [name for name, level in (("false_alarm", false_alarm), ("fdr", fdr)) if level is not None]
        require(len(given) == 1, "false_alarm", "be given, or fdr, but not both", " and ".join(given) or "neither")
        require_flag("storey", storey)
        require(not storey or fdr is not None, "storey", "be given only with fdr", storey)
        nodes = int(counts.sum())
        if fdr is not None:
            limit = discovery_limit(p, counts, fdr, storey=storey)
            self._warn_of_discoveries(p, counts, limit, fdr, storey=storey)
            return limit
        assert false_alarm is not None
        check_level("false_alarm", false_alarm)
        self._warn_of_alarms(p, false_alarm)
        _warn_of_many(int(counts[p <= false_alarm].sum()), nodes, false_alarm)
        return false_alarm

    def odd_from(self) -> float | None:
        """The own evidence above which a node is odd; None where p-values compare all that the scores say.

        Returns:
            What at most one calibration node in twenty exceeds of the first score that is watched.
        """
        return None if self.watched is None else float(_threshold(self.watched[:, 0], ODD))

    def sets(self, p: Tensor, logits: Tensor, error: float) -> Tensor:
        """The classes that each node conforms to, by p-values and logits, [nodes, classes]; see `KnownClasses.sets`.

        Args:
            p: The p-values of the nodes.
            logits: Their logits, [nodes, classes].
            error: The share of ID nodes whose set may lack their class.

        Returns:
            A boolean tensor, [nodes, classes]: whether the class is in the node's set.
        """
        assert self.known is not None
        counts = self.counts() if self.classes is None else self.counts()[self.classes]
        ranks = self.p_values(self.scores, self.classes) - ROUNDING / (counts + 1).double()
        return self.known.sets(p, logits, ranks, error, by_class=self.classes is not None)

    def _finer(self, p: Tensor) -> bool:
        """Whether p-values go below 1 / (n + 1): extrapolated or randomised ones do, and no count is too small."""
        return bool((p < 1 / (int(self.counts().max()) + 1)).any())

    def _warn_of_alarms(self, p: Tensor, level: float) -> None:
        needed, counts = nodes_needed(level), self.counts()
        if (counts >= needed).all() or self._finer(p):
            return
        have = f"{len(self.scores)} calibration nodes are"
        if self.classes is not None:
            few = [f"{label} ({count})" for label, count in enumerate(counts.tolist()) if count < needed]
            have = f"the calibration nodes of class {', '.join(few)} are"
        _warn(f"{have} too few to flag any node at false_alarm={level:g}: at least {needed} are needed")

    def _warn_of_discoveries(self, p: Tensor, counts: Tensor, limit: float, level: float, *, storey: bool) -> None:
        """Nodes beyond all calibration nodes may still not be rare enough, since each is weighed among all nodes."""
        beyond, nodes = int(counts[p <= 1 / (int(self.counts().max()) + 1)].sum()), int(counts.sum())
        if beyond and not math.isfinite(limit) and not self._finer(p):
            enough = int(self.counts().min()) >= TAIL_NODES
            extend = ", extend the tail (tail='extrapolated', --p-values extrapolated)" if enough else ""
            estimate = "" if storey else ", or estimate how many nodes are ID (storey=True, --storey)"
            _warn(
                f"{len(self.scores)} calibration nodes are too few to flag any of {nodes} nodes at fdr={level:g}, "
                f"though {beyond} lie beyond all: at least {nodes_needed(level * beyond / nodes)} are needed for "
                f"those; or decide about fewer nodes (mask=, --nodes){extend}{estimate}"
            )


def _p_values(scores: Tensor, calibration: Tensor, seed: int | None, tail: Tail) -> Tensor:
    if tail == "extrapolated":
        return extrapolated_p_values(scores, calibration)
    return conformal_p_values(scores, calibration, seed=seed)


def _warn_of_many(flagged: int, nodes: int, level: float) -> None:
    """A promise about ID nodes among others like them says little where much of the graph is flagged."""
    if nodes >= FEW and flagged > max(MANY, 3 * level) * nodes:
        _warn(
            f"{flagged / nodes:.0%} of {nodes:,} nodes are flagged: if OOD nodes stand beside ID nodes, these are "
            f"scored with them and flagged far more often than stated ({level:.0%}); check it on labelled ID nodes of "
            "this graph (check_calibration, gnnsafe check)"
        )


def warn_of_shared(odd: int, rare: int, nodes: int) -> None:
    """Of a graph in which many nodes are odd by themselves, p-values may tell few, without what all have in common."""
    if nodes >= ENOUGH and odd > max(MANY * nodes, 2 * rare):
        _warn(
            f"{odd / nodes:.0%} of {nodes:,} nodes are odder by their own evidence than {1 - ODD:.0%} of ID nodes are, "
            f"but {rare / nodes:.0%} by p-values: these leave out what the nodes of a graph have in common, and tell "
            "who stands out in it; if much of the graph may be odd, go by scores, or calibrate on ID nodes of it",
            stacklevel=5,
        )


def _warn(message: str, *, stacklevel: int = 6) -> None:
    warnings.warn(message, CalibrationWarning, stacklevel=stacklevel)  # where predict was called


def rare(count: int, level: float) -> int:
    """⌊α(n+1)⌋: how many of n + 1 equally likely p-values are at most α."""
    return int(np.searchsorted(np.arange(1, count + 2) / (count + 1), level, side="right"))


def _threshold(calibration: Tensor, level: float) -> Tensor:
    """The k-th largest score, k ≤ n the number of p-values that are rare enough; ∞ where none is."""
    ordered = torch.cat([calibration.new_tensor([math.inf]), calibration.sort(descending=True).values])
    return ordered[rare(len(calibration), level)]
