"""Hashes of what tensors hold: they tell one graph, or one set of weights, from another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import xxhash
from torch import Tensor, nn

__all__ = ["content", "digest", "weights_digest"]


def content(tensor: Tensor) -> Any:
    """The bytes of a dense tensor as a numpy array, without a copy where it lies in main memory and in one piece."""
    whole = tensor.detach().cpu().contiguous()
    # A tensor of one entry counts as contiguous whatever its stride, and is then no view of bytes.
    return whole.as_strided((whole.numel(),), (1,)).view(torch.uint8).numpy()


def digest(tensors: Mapping[str, Tensor]) -> str:
    """128 bits that tell these tensors and their names from others."""
    hashed = xxhash.xxh3_128()
    for name, tensor in sorted(tensors.items()):
        hashed.update(name.encode())
        hashed.update(content(tensor))
    return hashed.hexdigest()


def weights_digest(model: nn.Module) -> str:
    """The digest of a model's parameters and buffers."""
    return digest({name: value for name, value in model.state_dict().items() if isinstance(value, Tensor)})
