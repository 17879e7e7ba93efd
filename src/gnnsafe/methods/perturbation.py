"""Features moved a little downhill: what ODIN and Mahalanobis share."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from gnnsafe.errors import InputError, is_number, require
from gnnsafe.outputs import Outputs
from gnnsafe.sparse import Matrix, Sparse

__all__ = ["by_products", "check_epsilon", "perturbed"]

ENTRIES = 2**20  # of moved features that are dense at once


def check_epsilon(epsilon: float) -> None:
    """A step is finite and not backwards."""
    require(is_number(epsilon) and 0 <= epsilon < math.inf, "epsilon", "be >= 0", epsilon)


def perturbed(outputs: Outputs, epsilon: float, loss: Callable[[Outputs], Tensor]) -> Outputs:
    """The same model on x − ε sign(∇_x loss): all nodes' features move at once, edges stay.

    The gradient is taken with respect to the features alone; where ε is 0, none is taken.
    """
    if epsilon == 0:
        return outputs
    if by_products(outputs):
        return _moved(outputs, epsilon, loss)
    x = outputs.dense_features().detach().requires_grad_()
    with torch.enable_grad():  # scores may be computed within no_grad
        value = loss(outputs.again(outputs.graph.with_features(x), gradients=True))
    gradient = torch.autograd.grad(value, x, allow_unused=True)[0] if value.requires_grad else None
    if gradient is None:
        raise InputError("'model' must let gradients reach data.x for a step of its features (got none); use epsilon=0")
    limits = torch.finfo(x.dtype)
    # sign, not sign_: the gradient of a sum over nodes is one row, shown many times, and cannot be written to
    moved = gradient.sign().mul_(-epsilon).add_(x.detach()).clamp_(limits.min, limits.max)
    return outputs.again(outputs.graph.with_features(moved))


def by_products(outputs: Outputs) -> bool:
    """Whether features are sparse and the model one of gnnsafe.models, which reads them by products X W alone."""
    asked, graph = outputs.classifier, outputs.graph
    return asked is not None and asked.as_made and not graph.x.requires_grad and isinstance(graph.features, Sparse)


def _moved(outputs: Outputs, epsilon: float, loss: Callable[[Outputs], Tensor]) -> Outputs:
    """The same without a dense X: ∇_x = Σ G Wᵀ over the products Y = X W, G the gradient of Y, some rows at a time."""
    graph = outputs.graph
    assert isinstance(graph.features, Sparse)
    watched = _Watched(graph.features)
    with torch.enable_grad():
        value = loss(outputs.again(graph.read_as(watched), gradients=True))
    found = torch.autograd.grad(value, [product for _, product in watched.seen], allow_unused=True)
    parts = [(weight, slope) for (weight, _), slope in zip(watched.seen, found, strict=True) if slope is not None]
    return outputs.again(graph.read_as(_Moved(graph.features, parts, epsilon)))


class _Watched(Matrix):
    """Features whose products ask for gradients of their own."""

    def __init__(self, matrix: Sparse) -> None:
        self.matrix, self.shape = matrix, matrix.shape
        self.seen: list[tuple[Tensor, Tensor]] = []
        """W and X W."""

    @property
    def T(self) -> Matrix:  # noqa: N802 - as torch and numpy call it
        return self.matrix.T

    def times(self, dense: Tensor) -> Tensor:
        return self.matrix.times(dense)

    def __matmul__(self, dense: Tensor) -> Tensor:
        product = self.matrix.times(dense.detach()).requires_grad_()
        self.seen.append((dense.detach(), product))
        return product


class _Moved(Matrix):
    """X − ε sign(Σ G Wᵀ), of which a block of rows is dense at a time."""

    def __init__(self, matrix: Sparse, parts: list[tuple[Tensor, Tensor]], epsilon: float) -> None:
        self.matrix, self.shape, self.parts, self.epsilon = matrix, matrix.shape, parts, epsilon

    @property
    def T(self) -> Matrix:  # noqa: N802 - as torch and numpy call it
        raise NotImplementedError("moved features are read once, without gradients")

    def times(self, dense: Tensor) -> Tensor:
        product = self.matrix.times(dense)
        size = max(1, ENTRIES // self.shape[1])
        for start in range(0, self.shape[0], size):
            rows = slice(start, start + size)
            slopes = [slope[rows] @ weight.T for weight, slope in self.parts]
            product[rows] -= self.epsilon * (torch.stack(slopes).sum(dim=0).sign_() @ dense)
        return product
