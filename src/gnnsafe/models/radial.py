"""Normalising flows of radial layers, one density per class, all classes at once."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - torch's own idiom
from torch.utils.checkpoint import checkpoint

__all__ = ["RadialFlows"]

BLOCK = 2**20  # coordinates, of points in all classes, that are worked on at a time where there are more than WHOLE
WHOLE = 2**24


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
        """log q(z | class), [points, classes]; of many points in blocks, which are computed again for the gradient.

        A gradient needs some thirty tensors of the size of all coordinates: gigabytes for 10⁵ points in 40 classes.
        """
        each = self.centers.shape[1] * z.shape[1]
        if len(z) * each <= WHOLE:
            return self._log_density(z)
        blocks = torch.split(z, max(1, BLOCK // each))
        if not torch.is_grad_enabled():
            return torch.cat([self._log_density(block) for block in blocks])
        settings: dict[str, Any] = {"use_reentrant": False, "preserve_rng_state": False}
        return torch.cat([checkpoint(self._log_density, block, **settings) for block in blocks])

    def _log_density(self, z: Tensor) -> Tensor:
        dimensions, alpha = z.shape[1], F.softplus(self.radii)
        beta = F.softplus(self.strengths) - alpha
        # Carried from layer to layer is z − c, [classes, points, dimensions]: the next centre is one shift away.
        shifts = self.centers - torch.cat([self.centers[1:], torch.zeros_like(self.centers[:1])])
        away, log_volume = z - self.centers[0], z.new_zeros(())
        for layer in range(len(shifts)):
            reach = alpha[layer] + torch.linalg.vector_norm(away, dim=-1, keepdim=True)
            stretch = beta[layer] / reach
            along = stretch * (alpha[layer] / reach)  # 1 + it: the stretch in the direction of z − c
            log_volume = log_volume + (dimensions - 1) * torch.log1p(stretch) + torch.log1p(along)
            away = torch.addcmul(shifts[layer], away, 1 + stretch)
        log_normal = -0.5 * (away.square().sum(dim=-1) + dimensions * math.log(2 * math.pi))
        return (log_normal + log_volume.squeeze(-1)).T
