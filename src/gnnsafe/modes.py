"""Calls that torch's modes around them, autocast and inference mode, do not change."""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any

import torch
from torch import Tensor

__all__ = ["version", "without_autocast", "without_modes"]

NONE = nullcontext()  # of no mode, made once: most calls meet none


def without_autocast(kind: str) -> AbstractContextManager[Any]:
    """No autocast on this kind of device."""
    return torch.autocast(kind, enabled=False) if torch.is_autocast_enabled(kind) else NONE


def without_modes() -> AbstractContextManager[Any]:
    """Neither autocast on any device nor inference mode; a model's forward may still ask for them by itself."""
    accelerator = torch.accelerator.current_accelerator()
    kinds = ("cpu",) if accelerator is None else ("cpu", accelerator.type)
    cast = [kind for kind in kinds if torch.is_autocast_enabled(kind)]
    if not cast and not torch.is_inference_mode_enabled():
        return NONE
    stack = ExitStack()
    for kind in cast:
        stack.enter_context(torch.autocast(kind, enabled=False))
    if torch.is_inference_mode_enabled():  # to leave it turns gradients on
        stack.enter_context(torch.inference_mode(False))
    return stack


def version(tensor: Tensor) -> int | None:
    """How often torch saw the tensor written to; None for one made in inference mode, where it does not count."""
    return None if tensor.is_inference() else tensor._version
