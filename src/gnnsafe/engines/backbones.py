"""Our backbones as steps of a plan: each layer a dense product, where edges count a sum over neighbours between two.

The weights, BatchNorm in evaluation and activations are the model's own (`gnnsafe.models`); only the aggregation is an
engine's. A product comes before the sum, so that sums are as narrow as the layer's output.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor

from gnnsafe.engines.engine import Block, Column, Step
from gnnsafe.engines.formulas import convolved, mean, root, total
from gnnsafe.models import APPNP, GCN, GIN, MLP, SGC, GraphSAGE
from gnnsafe.models.base import Backbone
from gnnsafe.models.inputs import product

__all__ = ["ENGINE_BACKBONES", "backbone_steps"]

Kind = Literal["convolution", "mean", "sum", "none"]

ENGINE_BACKBONES = (GCN, GraphSAGE, SGC, APPNP, GIN, MLP)


def backbone_steps(model: Backbone, *, embedding: bool, kept: tuple[str, ...] = ()) -> list[Step]:
    """The steps from features, `value`, to logits, `value` again; with the penultimate embedding where it is wanted.

    Args:
        model: One of `ENGINE_BACKBONES`, in evaluation mode.
        embedding: Whether the last table has a column `embedding` too.
        kept: Further columns of the first table that the last one has too.
    """
    steps: list[Step] = []
    last, beside = len(model.weights) - 1, kept
    for index in range(last + 1):
        if index:
            steps.append(_plain(partial(_activated, model, index - 1), _width(model, index - 1), kept))
        if index == last and index and embedding:
            steps.append(_with_embedding(_width(model, index - 1), kept))
            kept = ("embedding", *beside)
        steps += _layer(model, index, _kind(model, index), kept)
    steps.append(_plain(partial(_biased, model), _width(model, last), kept))
    if isinstance(model, APPNP):
        steps += _spread(model, _width(model, last), kept)
    if embedding and kept == beside:  # of one layer, whose logits are its embedding (SGC)
        steps.append(_with_embedding(_width(model, last), kept))
    return steps


def _kind(model: Backbone, index: int) -> Kind:
    """Which matrix of the edges the layer has."""
    if isinstance(model, GraphSAGE):
        return "mean"
    if isinstance(model, GIN):
        return "none" if index % 2 else "sum"
    return "none" if isinstance(model, MLP | APPNP) else "convolution"


def _layer(model: Backbone, index: int, kind: Kind, kept: tuple[str, ...]) -> list[Step]:
    width = _width(model, index)
    values = {"value": Column(width)}
    if kind == "none":
        return [_plain(partial(_linear, model, index), width, kept)]
    if kind == "mean":
        both = {**values, "own": Column(width)}
        return [Step(partial(_neighbours_and_own, model, index), both, kept), Step(_mean_and_own, values, kept, True)]
    if kind == "sum":
        return [_plain(partial(_linear, model, index), width, kept), _with_sums(_summed, width, kept)]
    hops = model.num_layers if isinstance(model, SGC) else 1
    steps = [_plain(partial(_linear, model, index), width, kept)]
    for _ in range(hops):
        steps += [_plain(_scaled, width, kept), _with_sums(_convolved, width, kept)]
    return steps


def _spread(model: APPNP, width: int, kept: tuple[str, ...]) -> list[Step]:
    """Z ← (1−α) Â Z + α Z₀, over and over."""
    columns, steps = {"value": Column(width)}, []
    if model.steps:
        steps.append(Step(_remembered, {**columns, "first": Column(width)}, kept))
    for step in range(model.steps):
        keeps = kept if step == model.steps - 1 else ("first", *kept)
        steps.append(Step(_scaled, columns, ("first", *kept)))
        steps.append(Step(partial(_teleported, model.alpha), columns, keeps, aggregates=True))
    return steps


def _plain(function: Callable[[Block], dict[str, Tensor]], width: int, kept: tuple[str, ...]) -> Step:
    return Step(function, {"value": Column(width)}, kept)


def _with_sums(function: Callable[[Block], dict[str, Tensor]], width: int, kept: tuple[str, ...]) -> Step:
    return Step(function, {"value": Column(width)}, kept, aggregates=True)


def _with_embedding(width: int, kept: tuple[str, ...]) -> Step:
    return Step(_embedded, {"value": Column(width), "embedding": Column(width)}, kept)


def _width(model: Backbone, index: int) -> int:
    return int(model.weights[index].shape[1])


def _linear(model: Backbone, index: int, block: Block) -> dict[str, Tensor]:
    """H W."""
    return {"value": product(block["value"], model.weights[index])}


def _neighbours_and_own(model: Any, index: int, block: Block) -> dict[str, Tensor]:
    """H W and H R of GraphSAGE."""
    both = product(block["value"], torch.cat(model.weights[index].chunk(2), dim=1))
    neighbours, own = both.chunk(2, dim=1)
    return {"value": neighbours, "own": own}


def _mean_and_own(block: Block) -> dict[str, Tensor]:
    return {"value": mean(block, "decay") + block["own"]}


def _scaled(block: Block) -> dict[str, Tensor]:
    return {"value": block["value"] * root(block)}


def _convolved(block: Block) -> dict[str, Tensor]:
    return {"value": convolved(block)}


def _summed(block: Block) -> dict[str, Tensor]:
    return {"value": total(block)}


def _remembered(block: Block) -> dict[str, Tensor]:
    return {"value": block["value"], "first": block["value"]}


def _teleported(alpha: float, block: Block) -> dict[str, Tensor]:
    return {"value": torch.lerp(convolved(block), block["first"], alpha)}


def _activated(model: Backbone, index: int, block: Block) -> dict[str, Tensor]:
    return {"value": model.activated(block["value"].clone(), index)}  # which works in place


def _biased(model: Backbone, block: Block) -> dict[str, Tensor]:
    return {"value": block["value"] + model.biases[-1]}


def _embedded(block: Block) -> dict[str, Tensor]:
    return {"value": block["value"], "embedding": block["value"]}
