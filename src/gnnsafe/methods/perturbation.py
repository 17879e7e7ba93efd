"""Features moved a little downhill: what ODIN and Mahalanobis share."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from gnnsafe.errors import InputError, is_number, require
from gnnsafe.outputs import Outputs

__all__ = ["check_epsilon", "perturbed"]


def check_epsilon(epsilon: float) -> None:
    """A step is finite and not backwards."""
    require(is_number(epsilon) and 0 <= epsilon < math.inf, "epsilon", "be >= 0", epsilon)


def perturbed(outputs: Outputs, epsilon: float, loss: Callable[[Outputs], Tensor]) -> Outputs:
    """The same model on x − ε sign(∇_x loss): all nodes' features move at once, edges stay.

    The gradient is taken with respect to the features alone; where ε is 0, none is taken.
    """
    if epsilon == 0:
        return outputs
    x = outputs.dense_features().detach().requires_grad_()
    with torch.enable_grad():  # whoever asks for scores may do so within no_grad
        value = loss(outputs.again(outputs.graph.with_features(x), gradients=True))
    gradient = torch.autograd.grad(value, x, allow_unused=True)[0] if value.requires_grad else None
    if gradient is None:
        raise InputError("'model' must let gradients reach data.x for a step of its features (got none); use epsilon=0")
    limits = torch.finfo(x.dtype)
    moved = gradient.sign_().mul_(-epsilon).add_(x.detach()).clamp_(limits.min, limits.max)
    return outputs.again(outputs.graph.with_features(moved))
