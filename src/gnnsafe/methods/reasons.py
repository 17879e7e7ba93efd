"""What speaks for a score: the evidence that a method weighs, each as an addend, and the graph as a whole in words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from torch import Tensor

__all__ = ["Addend", "Reasons", "centred_addends", "graph_in_words"]

ALONE = "no in-neighbours"
ALIKE = "ID nodes are all alike in it (edges both ways, or none)"
LOW, HIGH = 1 / 3, 2 / 3  # of regions and openness
MILLION = 1e6
TOLD = 0.005  # a shift or lift that shows in figures of this size


class Addend(NamedTuple):
    """What one part says of a node: weight · (E − Ē), E = −log p, Ē what is usual among ID nodes."""

    p_value: float | None
    """How rare its score is among ID nodes; None where it says nothing of the node."""
    weight: float
    addend: float
    silent: str = ""
    """Why it says nothing."""


class Reasons(NamedTuple):
    """Why a node has its score: by default there is no more to say than what propagation does."""

    addends: tuple[Addend, ...] = ()
    """One for each of the method's parts, in their order."""
    graph: tuple[str, ...] = ()
    """What the graph as a whole did to the score: sentences."""
    figures: Mapping[str, float] = {}
    """The same as numbers, by name."""


def centred_addends(row: Tensor, known: Tensor, weights: Tensor) -> tuple[Addend, ...]:
    """weight · (E − Ē) of each E in a node's row, Ē the mean of the ID nodes' `known`; silent where either is NaN.

    >>> import torch
    >>> row, known = torch.tensor([2.0, torch.nan]), torch.tensor([[0.5, 1.0], [1.5, torch.nan]])
    >>> counted, silent = centred_addends(row, known, torch.tensor([3.0, 1.0]))
    >>> counted
    Addend(p_value=0.1353..., weight=3.0, addend=3.0, silent='')
    >>> silent
    Addend(p_value=None, weight=1.0, addend=0.0, silent='no in-neighbours')
    """
    usual = known.nanmean(dim=0)
    columns = (-row).exp(), weights, weights * (row - usual), usual.isnan(), row.isnan()
    return tuple(
        Addend(None, weight, 0.0, ALIKE if alike else ALONE) if alike or alone else Addend(p, weight, addend)
        for p, weight, addend, alike, alone in zip(*(column.tolist() for column in columns), strict=True)
    )


def graph_in_words(
    *,
    regions: float,
    surroundings: float,
    openness: float,
    lift: float,
    shift: float,
    around: float,
    explained: float,
    rarity: float,
    compared: float,
    silencing: float,
) -> tuple[str, ...]:
    """How rare a node's evidence is, where odd nodes stand, how odd the graph is, and what p-values leave out of it.

    That is what surroundings added (`around`), the lift, the shift δ, and what odder in-neighbours may explain. Nodes
    that are far off may not be heard.
    """
    together = (
        "Odd nodes are unlike their neighbours",
        "It does not show whether odd nodes stand together",
        "Odd nodes stand together",
    )
    much = _by(max(regions, openness), ("little", "in part", "much"))
    rarer = rarity > math.log(MILLION)  # beyond what validation nodes show
    how_rare = (
        "rarer than one ID node in a million"
        if rarer
        else f"as rare as one ID node in {math.exp(max(rarity, 0.0)):,.0f}"
    )
    without = [f"what its surroundings say ({around:+.2f})"] * (abs(around) >= TOLD)
    without += [f"the {lift:.2f} that the graph adds to every score"] * (lift >= TOLD)
    without += [f"{shift:.2f} of its evidence, by which usual nodes of this graph lie above ID nodes"] * (shift >= TOLD)
    may = "which in-neighbours that are odd themselves may explain"
    without += [f"{explained:.2f} of its evidence, {may}"] * (explained >= TOLD)
    return (
        f"Together that is {how_rare} (-log p = {rarity:.4g}).",
        f"{_by(regions, together)} in this graph (t = {regions:.2f}), "
        f"which as a whole is {_by(openness, ('usual', 'half odd', 'odd'))} (openness {openness:.2f}): "
        f"surroundings count {much} (w = {surroundings:.2f} of 2).",
        *(["Some nodes have features that are far off: their neighbours are judged without them."] * (silencing > 0)),
        *([f"p-values compare {compared:.4g}: without {' and without '.join(without)}."] if without else []),
    )


def _by(value: float, words: tuple[str, str, str]) -> str:
    return words[0] if value < LOW else words[2] if value > HIGH else words[1]
