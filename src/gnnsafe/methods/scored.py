"""What a method says about a graph or a part of it: its scores, propagated and checked."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from gnnsafe.checks import check_finite, check_tensor
from gnnsafe.devices import on_device
from gnnsafe.edges import Edges
from gnnsafe.errors import require
from gnnsafe.modes import without_modes
from gnnsafe.outputs import Outputs
from gnnsafe.propagation import Propagation, diffused

if TYPE_CHECKING:
    from gnnsafe.methods.base import Method

__all__ = ["Scored", "base_scores_of", "part_scores", "rows_of", "scored_part", "scored_rows"]

FLOATS = (torch.float32, torch.float64)


class Scored(NamedTuple):
    """What a method says about a graph."""

    scores: Tensor
    compared: Tensor
    """What p-values compare: the scores, or these on a scale on which ID nodes of any graph are alike."""
    method: Method
    """As it has read the graph as a whole: parts of it are scored alike."""
    rows: Tensor
    """What it knows of each node."""
    watched: Tensor
    """What is watched over many graphs, [nodes, scores]: see `Method.watched`."""
    around: Tensor | None = None
    """The mean of what each node's in-neighbours told, where they told anything: see `Method.told`."""


def scored_rows(method: Method, rows: Tensor, edges: Edges, num_nodes: int) -> Scored:
    """The scores of a graph, or of a part of the one that was seen last, by what the method knows of each node."""
    compared = scores = _propagated(method, method.weighed(rows), edges, num_nodes)
    told, watched = method.told(rows), method.watched(rows)
    around = None if told is None else diffused(told.float(), edges, steps=1, alpha=0.0, isolated="decay")
    comparable = method.comparable(rows, around)
    if comparable is not None:
        compared = _propagated(method, comparable, edges, num_nodes)
    return Scored(scores, compared, method, rows, compared[:, None] if watched is None else watched, around)


def rows_of(method: Method, outputs: Outputs) -> Tensor:
    """What the method knows of each node; what it learnt is brought to the outputs' device."""
    with without_modes():
        rows: Tensor = on_device(method, outputs.logits.device).rows(outputs)
        return rows


def scored_part(method: Method, outputs: Outputs) -> Scored:
    """The scores of a part of the graph that was seen last, by the weights of that graph."""
    method = on_device(method, outputs.logits.device)
    return scored_rows(method, rows_of(method, outputs), outputs.graph.edges, len(outputs.logits))


def part_scores(method: Method, outputs: Outputs) -> Tensor:
    """The same, and what p-values compare, [nodes, 2]."""
    scored = scored_part(method, outputs)
    return torch.stack([scored.scores, scored.compared], dim=1)


def base_scores_of(method: Method, outputs: Outputs) -> Tensor:
    """The method's scores before propagation, checked to be float32, one per node and finite.

    What it learnt may be on another device than the outputs, as after `model.to`; it is brought there.
    """
    with without_modes():
        scores = on_device(method, outputs.logits.device).base_scores(outputs)
    return _checked(method, scores, len(outputs.logits))


def _propagated(method: Method, scores: Tensor, edges: Edges, num_nodes: int) -> Tensor:
    how = method.propagation
    rule = "be a Propagation such as Propagation(steps=2)"
    require(isinstance(how, Propagation), f"{type(method).__name__}.propagation", rule, repr(how))
    return how(_checked(method, scores, num_nodes), edges)


def _checked(method: Method, scores: object, num_nodes: int) -> Tensor:
    if isinstance(scores, Tensor) and scores.layout == torch.strided and scores.dtype in FLOATS:
        numbers: Tensor = scores.detach().float().contiguous()
        if numbers.shape == (num_nodes,) and math.isfinite(float(numbers.sum())):
            return numbers
    name = f"{method!r}.base_scores(outputs)"  # in words only where they are needed: they cost more than the check
    given = check_tensor(name, scores)
    fits = given.shape == (num_nodes,) and given.dtype in FLOATS
    require(fits, name, f"be float32 numbers of shape [{num_nodes}]", f"{given.dtype} {list(given.shape)}")
    check_finite(name, given.float())
    return given.detach().float().contiguous()
