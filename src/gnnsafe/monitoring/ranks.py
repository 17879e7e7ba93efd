"""Online conformal p-values: each node's rank among the calibration nodes and all nodes that came before it.

p-values among one fixed calibration set share its chance: they are uniform on average over calibration sets, but given
the set they are not, and a martingale that bets on them for long enough finds the set's own sampling error and calls it
drift. So a node that was counted joins those that later ones are compared with. If calibration nodes and stream are
exchangeable, ranks among all that came before are independent and uniform, for all time (Vovk et al., 2005), and
Ville's inequality holds exactly. The other side: nodes that have shifted join, too, and p-values become uniform again
once most nodes have; by then the alarm has been raised, or the change was too small for so many calibration nodes.

What is kept are counts, not scores. The calibration scores in their order leave gaps; all but every k-th of them are
forgotten, so that there are at most 500 slots between those kept. Slot j holds g_j gaps at first: k, or fewer in the
last. A node is equally likely to fall in each gap between those that came before it, whatever the scores'
distribution, so it falls in slot j with probability g_j / Σ g, and

    p = (Σ_{i > j} g_i + U g_j) / Σ g,  U ~ U(0, 1),  then g_j ← g_j + 1,

is uniform given all that was seen before: exactly, also with few slots (an urn; Hoppe, 1984). Small = high score. Equal
scores are put in order at random, calibration nodes' once for all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnsafe.errors import require

__all__ = ["SLOTS", "Ranks"]

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]
SLOTS = 500
BLOCK = 512  # nodes that are compared with each other at once


@dataclass(frozen=True, eq=False)
class Ranks:
    """Where scores fall among those that came before; `after` says it of a batch and counts it in."""

    separators: Floats
    """The calibration scores that are kept, in their order."""
    ties: Floats
    """In (0, 1), for separators that are equal: the order between them and nodes with the same score."""
    gaps: Whole
    """How many gaps each slot has by now: one more than separators."""

    @classmethod
    def among(cls, calibration: Floats, rng: np.random.Generator) -> Ranks:
        """Before any node came; NaN, where a score says nothing, is left out."""
        known = np.asarray(calibration, dtype=np.float64)
        known = known[~np.isnan(known)]
        require(len(known) > 0, "calibration", "hold at least one score", "none")
        ties = 1 - rng.random(len(known))
        order = np.lexsort([ties, known])
        step = -(-(len(known) + 1) // SLOTS)
        kept = order[step - 1 :: step]
        gaps = np.diff(np.concatenate([[0], np.arange(step, len(known) + 1, step), [len(known) + 1]]))
        return cls(known[kept], ties[kept], gaps.astype(np.int64))

    def after(self, scores: Floats, rng: np.random.Generator, *, block: bool = False) -> tuple[Floats, Ranks]:
        """The p-values of a batch of scores, in their order, and the ranks for those to come.

        The nodes of a `block` are not compared with each other, and the first of them joins for all: a block of nodes
        that are alike says little more than one of them about what is usual.
        """
        slots = self._slots(np.asarray(scores, dtype=np.float64), rng)
        gaps, found = self.gaps.copy(), np.empty(len(slots))
        if block and len(slots):
            above = gaps[::-1].cumsum()[::-1][slots] - gaps[slots]
            gaps[slots[0]] += 1
            return (above + (1 - rng.random(len(slots))) * self.gaps[slots]) / self.gaps.sum(), Ranks(
                self.separators, self.ties, gaps
            )
        for start in range(0, len(slots), BLOCK):
            part = slots[start : start + BLOCK]
            earlier = np.tri(len(part), k=-1, dtype=bool)
            above = gaps[::-1].cumsum()[::-1][part] - gaps[part] + ((part[None] > part[:, None]) & earlier).sum(axis=1)
            same = gaps[part] + ((part[None] == part[:, None]) & earlier).sum(axis=1)
            total = gaps.sum() + np.arange(len(part))
            found[start : start + BLOCK] = (above + (1 - rng.random(len(part))) * same) / total
            gaps += np.bincount(part, minlength=len(gaps))
        return found, Ranks(self.separators, self.ties, gaps)

    def _slots(self, scores: Floats, rng: np.random.Generator) -> Whole:
        low = np.searchsorted(self.separators, scores, side="left")
        high = np.searchsorted(self.separators, scores, side="right")
        first = np.searchsorted(self.separators, self.separators, side="left")
        tied = np.searchsorted(first + self.ties, low + 1 - rng.random(len(scores)))  # a place among equal separators
        return np.where(high > low, tied, low).astype(np.int64)

    def to_dict(self) -> dict[str, Any]:
        """The state, as JSON has it."""
        return {"separators": self.separators.tolist(), "ties": self.ties.tolist(), "gaps": self.gaps.tolist()}

    @classmethod
    def from_dict(cls, state: dict[str, Any]) -> Ranks:
        """The same again."""
        separators, ties = np.array(state["separators"]), np.array(state["ties"])
        return cls(separators.astype(np.float64), ties.astype(np.float64), np.array(state["gaps"], dtype=np.int64))
