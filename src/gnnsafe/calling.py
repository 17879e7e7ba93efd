"""How a model is called: which attributes of a graph its forward takes, and what it gives back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from inspect import Parameter, Signature, ismethod, signature
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn

from gnnsafe.checks import check_tensor
from gnnsafe.errors import InputError, require
from gnnsafe.graph import Graph, stored
from gnnsafe.prepared import PreparedGraph

__all__ = [
    "PLAIN_CALL",
    "WRITTEN",
    "check_device",
    "check_edges",
    "check_unwritten",
    "forward_signature",
    "passed",
    "single_tensor",
    "takes",
    "unnamed",
]

EDGE_ATTRIBUTES = {"edge_weight", "edge_attr", "edge_type"}  # as PyG calls them
OF_PYG = {*EDGE_ATTRIBUTES, "batch", "batch_size", "num_sampled_nodes_per_hop", "num_sampled_edges_per_hop"}
ANY = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
PLAIN_CALL = "forward=lambda model, data: model(data.x, data.edge_index"
WRITTEN = ("a forward that writes into it", "work on a copy in forward, such as x = x.clone()")


def passed(model: nn.Module, graph: Graph) -> dict[str, Any]:
    """What the graph holds under names that the forward takes beyond (x, edge_index), such as `edge_weight`.

    Labels and masks are never passed.
    """
    extra = [one for one in _further(model) if not _told_to_methods_only(one.name)]
    held = stored(graph)
    weighted = "adj_t" in held and "edge_weight" in held and all(one.name != "edge_weight" for one in extra)
    require(not weighted, "model", "take edge_weight, since data.adj_t has weights", "a forward that does not")
    lacking = [one.name for one in extra if one.default is Parameter.empty and one.name not in held]
    if lacking:
        raise InputError(
            f"'data' must hold {' and '.join(lacking)}, which {type(model).__name__}'s forward takes (got none); set "
            f"data.{lacking[0]}, or say how to call the model, such as {PLAIN_CALL}, …)"
        )
    taken = {one.name: held[one.name] for one in extra if one.name in held}
    edges = graph.edge_index.shape[1]
    for name in EDGE_ATTRIBUTES & taken.keys():
        value = taken[name]
        fits = isinstance(value, Tensor) and value.dim() > 0 and len(value) == edges
        require(fits, f"data.{name}", f"have a row for each of {edges} edges", _size(value))
    return taken


def _size(value: object) -> object:
    return list(value.shape) if isinstance(value, Tensor) else type(value).__name__


def unnamed(model: nn.Module, graph: Graph) -> list[str]:
    """What the graph holds of its edges and is not passed on, though the forward may take it under another name.

    It may if it takes anything, says nothing of what it takes, or has arguments left that the graph does not fill.
    """
    parameters, taken = _parameters(model), passed(model, graph)
    left = {one.name for one in _further(model)} - taken.keys() - OF_PYG
    named = parameters and not left and all(one.kind not in ANY for one in parameters)
    return [] if named else sorted(EDGE_ATTRIBUTES & stored(graph).keys() - taken.keys())


def _further(model: nn.Module) -> list[Parameter]:
    parameters = _parameters(model)
    by_place = [one for one in parameters if one.kind in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)]
    by_name = [one for one in parameters if one.kind is Parameter.KEYWORD_ONLY]
    return [one for one in by_place[2:] if one.kind is not Parameter.POSITIONAL_ONLY] + by_name


def _parameters(model: nn.Module) -> list[Parameter]:
    try:
        return list(forward_signature(model).parameters.values())
    except ValueError:  # TorchScript's has none
        return []


def forward_signature(model: nn.Module) -> Signature:
    """What the forward takes; one that hands on whatever it is given, such as DataParallel's, takes what `module` does.

    Raises:
        ValueError: For a model of TorchScript that does not say.
    """
    own = _signature(model.forward)
    hands_on = tuple(one.kind for one in own.parameters.values()) == ANY
    inner = getattr(model, "module", None) if hands_on else None
    return forward_signature(inner) if isinstance(inner, nn.Module) else own


def _signature(function: Any) -> Signature:
    return _of_a_class(function.__func__) if ismethod(function) else signature(function)


@lru_cache
def _of_a_class(function: Any) -> Signature:
    """The signature of a class's function as its objects have it."""
    return signature(MethodType(function, object()))


def _told_to_methods_only(name: str) -> bool:
    return name in ("y", "mask") or name.endswith("_mask")


def takes(model: nn.Module, *arguments: object, **named: object) -> bool:
    """Whether the forward can be called with these."""
    try:
        forward_signature(model).bind(*arguments, **named)
    except TypeError:
        return False
    return True


def check_device(modules: Iterable[nn.Module], graph: Graph) -> None:
    """The graph is where the model of these modules is, or part of it."""
    here, held = graph.x.device, (values for one in modules for values in (one._parameters, one._buffers))
    devices = {tensor.device for values in held for tensor in values.values() if tensor is not None}
    fill = f"call model.to_empty(device='{here}'), and load its weights"
    require(torch.device("meta") not in devices, "model", "have weights", "one on the meta device, without any", fill)
    if devices and here not in devices:
        there = min(map(str, devices))
        remedy = f"call data.to('{there}'), or model.to('{here}')"
        require(False, "data", f"be on the model's device, {there}", here, remedy)


def check_edges(graph: Graph) -> None:
    """What the graph holds of its edges is where its features are; asked where a forward has failed."""
    here, held = graph.x.device, stored(graph)
    for name in sorted(EDGE_ATTRIBUTES & held.keys()):
        there = getattr(held[name], "device", here)
        require(there == here, f"data.{name}", f"be on {here}, as x is", there, "call data.to(...)")


def single_tensor(call: str, given: object) -> Tensor:
    """What a model gave, checked to be one tensor; where it is several, the message says how to choose."""
    if isinstance(given, tuple | list | Mapping):
        key = f"[{next(iter(given), 'logits')!r}]" if isinstance(given, Mapping) else "[0]"
        raise InputError(
            f"'{call}' must be a torch.Tensor (got a {type(given).__name__} of {len(given)}); choose the logits, such "
            f"as {PLAIN_CALL}){key}"
        )
    return check_tensor(call, given)


def check_unwritten(graph: PreparedGraph, before: list[int]) -> None:
    """Says so where a forward wrote into the graph's tensors, as `x.relu_()` does: the next reader would be misled."""
    if (now := graph.versions()) != before:
        name = next(name for name, *counts in zip(graph.tensors, now, before, strict=True) if counts[0] != counts[1])
        require(False, "model", f"leave data.{name} as it is", *WRITTEN)
