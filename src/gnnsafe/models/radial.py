"""Normalising flows of radial layers, one density per class, all classes at once."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - torch's own idiom

__all__ = ["RadialFlows"]

BLOCK = 2**18  # coordinates, of points in all classes, that are worked on at a time


class RadialFlows(nn.Module):
    """Densities of K radial layers z ← z + β (z − c) / (α + ‖z − c‖) on a standard normal (Rezende & Mohamed, 2015).

    β = −α + softplus(b) > −α keeps each layer one-to-one, so a density integrates to one whatever the parameters.

    >>> RadialFlows(2, 3, 4)(torch.zeros(5, 3)).shape  # log q(z | class)
    torch.Size([5, 2])
    """

    def __init__(self, num_classes: int, dimensions: int, num_layers: int) -> None:
        super().__init__()
        self.centers = nn.Parameter(torch.empty(num_layers, num_classes, 1, dimensions))
        self.radii = nn.Parameter(torch.empty(num_layers, num_classes, 1, 1))
        self.strengths = nn.Parameter(torch.empty(num_layers, num_classes, 1, 1))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Reset the layers, uniformly within 1/√dimensions."""
        bound = self.centers.shape[-1] ** -0.5
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -bound, bound)

    def forward(self, z: Tensor) -> Tensor:
        """log q(z | class), [points, classes]."""
        alpha = F.softplus(self.radii)
        # Carried from layer to layer is z − c, [classes, points, dimensions]: the next centre is one shift away.
        shifts = self.centers - torch.cat([self.centers[1:], torch.zeros_like(self.centers[:1])])
        log_q: Tensor = _LogDensity.apply(z, self.centers[0], shifts, alpha, F.softplus(self.strengths) - alpha)  # type: ignore[no-untyped-call]
        return log_q


class _LogDensity(torch.autograd.Function):
    """log q by blocks of points; the backward pass goes through a block's layers again, so that no layer is stored.

    A gradient by autograd keeps some thirty tensors of the size of all coordinates: gigabytes for 10⁵ points.
    """

    @staticmethod
    def forward(ctx: Any, z: Tensor, first: Tensor, shifts: Tensor, alpha: Tensor, beta: Tensor) -> Tensor:
        ctx.save_for_backward(z, first, shifts, alpha, beta)
        log_q = z.new_empty(len(z), shifts.shape[1])
        for rows in _blocks(z, shifts):
            log_q[rows] = _through(z[rows] - first, shifts, alpha, beta)[2].squeeze(-1).T
        return log_q

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, ...]:
        if torch.is_grad_enabled():
            raise RuntimeError("the flows have no second derivative")
        z, first, shifts, alpha, beta = ctx.saved_tensors
        gradients = tuple(torch.zeros_like(each) for each in ctx.saved_tensors)
        for rows in _blocks(z, shifts):
            away, norms, _ = _through(z[rows] - first, shifts, alpha, beta)
            _back(away, norms, gradient[rows].T.unsqueeze(-1), alpha, beta, gradients, rows)
        return gradients


def _blocks(z: Tensor, shifts: Tensor) -> Iterator[slice]:
    size = max(1, BLOCK // (shifts.shape[1] * z.shape[1]))
    return (slice(start, start + size) for start in range(0, len(z), size))


def _through(away: Tensor, shifts: Tensor, alpha: Tensor, beta: Tensor) -> tuple[list[Tensor], list[Tensor], Tensor]:
    """z − c before each layer and after the last, its length before each, and log q, [classes, points, 1]."""
    layers, norms, dimensions = [away], [], away.shape[-1]
    log_q = torch.zeros_like(away[..., :1])
    for shift, a, b in zip(shifts, alpha, beta, strict=True):
        norms.append(torch.linalg.vector_norm(away, dim=-1, keepdim=True))
        reach = a + norms[-1]
        stretch = b / reach
        along = stretch * (a / reach)  # 1 + it: the stretch in the direction of z − c
        log_q += torch.log1p(stretch).mul_(dimensions - 1).add_(torch.log1p(along))
        away = torch.addcmul(shift, away, 1 + stretch)
        layers.append(away)
    squares = away.square().sum(dim=-1, keepdim=True)
    return layers, norms, log_q.sub_(squares.add_(dimensions * math.log(2 * math.pi)), alpha=0.5)


def _back(
    layers: list[Tensor],
    norms: list[Tensor],
    g: Tensor,
    alpha: Tensor,
    beta: Tensor,
    gradients: tuple[Tensor, ...],
    rows: slice,
) -> None:
    """Add one block's gradients of z, the first centre, the shifts, α and β, by the gradient g of its log q."""
    of_z, of_first, of_shifts, of_alpha, of_beta = gradients
    dimensions, carried = layers[0].shape[-1], layers[-1] * -g  # by z − c after the last layer, then before it, …
    for layer in reversed(range(len(alpha))):
        away, norm, reach = layers[layer], norms[layer], alpha[layer] + norms[layer]
        stretch, ratio = beta[layer] / reach, alpha[layer] / reach
        along = stretch * ratio
        of_shifts[layer] += carried.sum(dim=1, keepdim=True)
        by_along = g / (1 + along)
        by_stretch = torch.linalg.vecdot(carried, away).unsqueeze(-1)
        by_stretch += g * (dimensions - 1) / (1 + stretch) + by_along * ratio
        by_reach = -(by_stretch * stretch + by_along * along) / reach
        of_beta[layer] += (by_stretch / reach).sum(dim=1, keepdim=True)
        of_alpha[layer] += (by_along * stretch / reach + by_reach).sum(dim=1, keepdim=True)
        carried.mul_(1 + stretch).addcmul_(away, torch.where(norm > 0, by_reach / norm, 0))
    of_first -= carried.sum(dim=1, keepdim=True)
    of_z[rows] = carried.sum(dim=0)
