"""Hashes of what tensors hold: they tell one graph, or one set of weights, from another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import xxhash
from torch import Tensor, nn

__all__ = ["CACHED", "content", "digest", "edges_digest", "entries", "row_digests", "weights_digest"]

CACHED = "_cached_"  # how PyG's layers call what they keep of the first graph that they saw
MIX = (0x2545F4914F6CDD1D, 0x1B873593CC9E2D51, 0x369DEA0F31A53F85)  # odd numbers that stir bits
NUMPY_TYPES = {torch.float32, torch.float64, torch.int64, torch.int32, torch.bool}  # that numpy has, too
ENTRIES = 2**20  # of features that are hashed at once


def entries(tensor: Tensor) -> dict[str, Tensor]:
    """The dense tensors that a tensor of any layout is stored in, by name; those of a dense one are itself."""
    if tensor.layout == torch.strided:
        return {"": tensor}
    if tensor.layout == torch.sparse_coo:  # by its own names: others refuse one that is not coalesced
        return {"values": tensor._values(), "places": tensor._indices()}
    by_row = tensor.layout in (torch.sparse_csr, torch.sparse_bsr)
    starts = tensor.crow_indices() if by_row else tensor.ccol_indices()
    places = tensor.col_indices() if by_row else tensor.row_indices()
    return {"values": tensor.values(), "places": places, "starts": starts}


def content(tensor: Tensor) -> Any:
    """What a dense tensor holds, in one piece, as a numpy array: without a copy where it lies so in main memory."""
    if tensor.dtype in NUMPY_TYPES and tensor.device.type == "cpu" and tensor.is_contiguous():
        return tensor.detach().numpy()
    whole = tensor.detach().cpu().contiguous()
    # A tensor of one entry counts as contiguous whatever its stride, and is then no view of bytes.
    return whole.as_strided((whole.numel(),), (1,)).view(torch.uint8).numpy()


def digest(tensors: Mapping[str, Tensor]) -> str:
    """128 bits that tell these tensors and their names from others."""
    hashed = xxhash.xxh3_128()
    for name in sorted(tensors):
        for part, stored in entries(tensors[name]).items():
            hashed.update(f"{name}{part}".encode())
            hashed.update(content(stored))
    return hashed.hexdigest()


def weights_digest(model: nn.Module) -> str:
    """The digest of a model's parameters and buffers, also of those that are not saved; of no graph that it cached."""
    return digest(
        {
            f"{path}.{name}" if path else name: value
            for path, module in model.named_modules(remove_duplicate=False)
            for held in (module._parameters, module._buffers)
            for name, value in held.items()
            if isinstance(value, Tensor) and not name.startswith(CACHED)
        }
    )


def row_digests(x: Tensor) -> Tensor:
    """A hash of each row of features, Σ_c w_c · bits(x_c) modulo 2⁶⁴: dense and CSR features have the same.

    >>> dense = torch.tensor([[0.0, 1.5], [-0.0, 0.0]])
    >>> bool((row_digests(dense) == row_digests(dense.double().to_sparse_csr())).all())
    True
    """
    seed = torch.Generator().manual_seed(0)
    weights = torch.randint(2**62, (x.shape[1],), generator=seed, device="cpu") * 2 + 1
    if x.layout == torch.strided:
        rows = max(1, ENTRIES // max(1, x.shape[1]))
        return torch.cat([_bits(x[start : start + rows]) @ weights for start in range(0, len(x), rows)])
    places = torch.repeat_interleave(torch.arange(x.shape[0], device="cpu"), x.crow_indices().diff().cpu())
    hashes = _bits(x.values()) * weights[x.col_indices().cpu()]
    return torch.zeros(x.shape[0], dtype=torch.int64, device="cpu").index_add(0, places, hashes)


def edges_digest(edge_index: Tensor) -> str:
    """A hash of the edges in whatever order, each as often as it is given.

    >>> edges_digest(torch.tensor([[0, 1], [1, 2]])) == edges_digest(torch.tensor([[1, 0], [2, 1]]))
    True
    """
    source, target = edge_index.detach().cpu().long()
    mixed = (source * MIX[0] + target * MIX[1]) ^ (source * MIX[2] - target)
    return f"{len(source)}-{int((mixed * mixed * MIX[0]).sum())}"


def _bits(values: Tensor) -> Tensor:
    """The bits of numbers in float32; those of zero are zero, whatever its sign."""
    return (values.detach().cpu().float() + 0.0).view(torch.int32).long()
