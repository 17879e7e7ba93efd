from __future__ import annotations

import pytest
import torch
from torch.distributions import Normal
from torch.nn.functional import softplus

from gnnsafe.models import radial as module
from gnnsafe.models.radial import RadialFlows


def flows(num_classes: int, dimensions: int, num_layers: int, spread: float = 1.5) -> RadialFlows:
    """Flows far from the identity."""
    torch.manual_seed(0)
    flows = RadialFlows(num_classes, dimensions, num_layers).double()
    for parameter in flows.parameters():
        torch.nn.init.normal_(parameter, std=spread)
    return flows


def transformed(flows: RadialFlows, z: torch.Tensor, label: int) -> torch.Tensor:
    """One point through one class's layers, as the paper writes them."""
    for layer in range(len(flows.centers)):
        center = flows.centers[layer, label, 0]
        alpha = softplus(flows.radii[layer, label, 0, 0])
        beta = -alpha + softplus(flows.strengths[layer, label, 0, 0])
        z = z + beta / (alpha + (z - center).norm()) * (z - center)
    return z


@pytest.mark.parametrize(("dimensions", "num_layers"), [(1, 1), (2, 3), (5, 10)])
def test_equal_to_a_loop_over_classes_and_points_with_autograds_determinant(dimensions, num_layers):
    model = flows(3, dimensions, num_layers)
    points = 2 * torch.randn(6, dimensions, dtype=torch.float64)
    log_q = model(points)
    for point, row in zip(points, log_q, strict=True):
        for label, value in enumerate(row):
            end = transformed(model, point, label)
            jacobian = torch.autograd.functional.jacobian(lambda z, label=label: transformed(model, z, label), point)
            expected = Normal(0.0, 1.0).log_prob(end).sum() + torch.linalg.slogdet(jacobian).logabsdet
            torch.testing.assert_close(value, expected)


def test_one_layer_by_hand():
    """α = β + α = 1, so β = 0: the identity, and the density a standard normal's."""
    model = RadialFlows(1, 2, 1).double()
    with torch.no_grad():
        model.radii.fill_(0.3)
        model.strengths.fill_(0.3)
    torch.testing.assert_close(model(torch.tensor([[3.0, 4.0]]).double()).item(), -12.5 - 1.8378770664093453)


def test_densities_integrate_to_one_in_one_dimension():
    line = torch.linspace(-60, 60, 200_001, dtype=torch.float64)[:, None]
    mass = torch.trapezoid(flows(4, 1, 6)(line).exp(), line, dim=0)
    torch.testing.assert_close(mass, torch.ones(4, dtype=torch.float64), atol=1e-4, rtol=0)


def test_densities_integrate_to_one_in_two_dimensions():
    axis = torch.linspace(-25, 25, 1001, dtype=torch.float64)
    plane = torch.cartesian_prod(axis, axis)
    mass = flows(2, 2, 3, spread=1.0)(plane).exp().sum(dim=0) * (axis[1] - axis[0]) ** 2
    torch.testing.assert_close(mass, torch.ones(2, dtype=torch.float64), atol=5e-3, rtol=0)


def test_gradients():
    model, points = flows(2, 3, 2), torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    names = [name for name, _ in model.named_parameters()]

    def log_q(z, *values):
        return torch.func.functional_call(model, dict(zip(names, values, strict=True)), z)

    assert torch.autograd.gradcheck(log_q, (points, *model.parameters()))


def test_a_point_at_a_center_has_a_finite_gradient():
    model = flows(2, 3, 2)
    point = model.centers[0, 0].detach().clone().requires_grad_()
    model(point).sum().backward()
    assert torch.isfinite(point.grad).all()


@pytest.mark.parametrize("block", [3 * 4 * 7, 2**18])  # seven points at a time, all at once
def test_gradients_are_those_of_finite_differences(monkeypatch, block):
    monkeypatch.setattr(module, "BLOCK", block)
    model, points = flows(3, 4, 5), torch.randn(20, 4, dtype=torch.float64, requires_grad=True)
    names, values = zip(*model.named_parameters(), strict=True)

    def log_q(z, *parameters):
        return torch.func.functional_call(model, dict(zip(names, parameters, strict=True)), (z,))

    assert torch.autograd.gradcheck(log_q, (points, *values))


def test_a_point_at_a_centre_has_a_finite_gradient():
    model = flows(2, 3, 1)
    point = model.centers[0, 0].detach().clone().requires_grad_()
    (gradient,) = torch.autograd.grad(model(point).sum(), point)
    assert gradient.isfinite().all()


def test_a_second_derivative_is_refused():
    model, points = flows(2, 3, 2), torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    with pytest.raises(RuntimeError, match="second derivative"):
        torch.autograd.grad(model(points).sum(), points, create_graph=True)
