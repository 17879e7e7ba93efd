"""Devices: the one that is asked for, and what was fitted brought to it."""

from __future__ import annotations

import copy
from dataclasses import is_dataclass
from typing import Any

import torch
from torch import Tensor

from gnnsafe.errors import InputError

__all__ = ["check_precision", "chosen_device", "on_device"]


def chosen_device(device: torch.device | str) -> torch.device:
    """The device that is asked for, once torch is known to have it here; "auto" is a GPU of CUDA's, else the CPU.

    >>> chosen_device("cpu")
    device(type='cpu')
    """
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        return torch.empty(0, device=device).device
    except (AssertionError, ImportError, RuntimeError, TypeError, ValueError) as error:  # each backend has its own
        reason = str(error).partition("\n")[0].partition(". ")[0]  # of pages, where a backend was not compiled in
        raise InputError(f"'device' must be auto, cpu or one that torch has here (got {device!r}: {reason})") from error


def check_precision(device: torch.device) -> None:
    """The device has float64, which degrees, distances and p-values are computed in; Apple's MPS has not."""
    if device.type in ("cpu", "cuda"):
        return
    try:
        torch.empty(0, dtype=torch.float64, device=device)
    except (RuntimeError, TypeError) as error:
        rule, place = "be on a device that has float64", device.type
        forward = f"forward=lambda model, data: model(data.x.to('{place}'), data.edge_index.to('{place}')).cpu()"
        raise InputError(
            f"'data' must {rule} (got {device}); call data.to('cpu') and model.to('cpu'), or leave a model that is not "
            f"one of gnnsafe.models there, with {forward}"
        ) from error


def on_device(value: Any, device: torch.device) -> Any:
    """The value with all its tensors on the device: itself where they are there, else a copy.

    Tensors are looked for in tuples, lists, dictionaries and dataclasses, such as a fitted method.
    """
    if isinstance(value, Tensor):
        return value.to(device)
    if is_dataclass(value) and not isinstance(value, type):
        return _changed(value, {name: on_device(part, device) for name, part in vars(value).items()})
    if isinstance(value, list | tuple):
        parts = [on_device(part, device) for part in value]
        if all(part is before for part, before in zip(parts, value, strict=True)):
            return value
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    if isinstance(value, dict):
        named = {name: on_device(part, device) for name, part in value.items()}
        return value if all(part is value[name] for name, part in named.items()) else named
    return value


def _changed(value: Any, parts: dict[str, object]) -> Any:
    if all(part is vars(value)[name] for name, part in parts.items()):
        return value
    new = copy.copy(value)
    vars(new).update(parts)
    return new
