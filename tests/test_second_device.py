"""The emulated device of `second_device.py`: it refuses what a GPU refuses, and computes what the CPU does."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from tests.second_device import SECOND, other_devices
from torch import nn


def here(*shape: int) -> torch.Tensor:
    return torch.arange(float(np.prod(shape))).view(shape)


@other_devices
@pytest.mark.parametrize(
    "mix",
    [
        lambda ours, cpu: ours + cpu,
        lambda ours, cpu: cpu * ours.sum(),
        lambda ours, cpu: ours @ cpu.T,
        lambda ours, cpu: cpu.add_(ours),
        lambda ours, cpu: torch.cat([ours, cpu]),
        lambda ours, cpu: torch.stack([ours.sum(), cpu.sum()]),
        lambda ours, cpu: cpu[ours > 2],
        lambda ours, cpu: cpu[ours[0].long()],
        lambda ours, cpu: ours.index_add(0, torch.tensor([0, 1]), ours),
        lambda ours, cpu: ours.__setitem__(torch.tensor([0]), cpu[:1]),
        lambda ours, cpu: torch.where(cpu > 2, ours, ours),
        lambda ours, cpu: ours.normal_(generator=torch.Generator()),
        lambda ours, cpu: torch.randperm(3, device=ours.device, generator=torch.Generator()),
    ],
)
def test_two_devices_do_not_mix(mix, device):
    with pytest.raises(RuntimeError, match="device"):
        mix(here(2, 3).to(device), here(2, 3))


@other_devices
@pytest.mark.parametrize("into", [lambda t: t.numpy(), np.asarray, lambda t: np.concatenate([t])])
def test_numpy_is_refused(into, device):
    with pytest.raises((RuntimeError, TypeError), match="numpy"):
        into(torch.ones(2, device=device))


@other_devices
def test_what_gpus_allow_is_allowed(device):
    ours = here(2, 3).to(device)
    assert (ours + torch.tensor(1.0)).tolist() == [[1, 2, 3], [4, 5, 6]]
    assert ours[torch.tensor([False, True])].tolist() == [[3, 4, 5]]
    assert ours.cpu().device.type == "cpu"
    assert here(2, 3).copy_(ours).sum() == ours.sum().item() == 15
    assert torch.tensor([1, 2], device=device).device == ours.device


@other_devices
def test_a_view_shares_memory_and_versions(device):
    base = torch.zeros(2, 3, device=device)
    view, version = base[:, 1:], base._version
    view.add_(1)
    base[0] = 5.0
    base[base == 1] = 2.0
    assert view.tolist() == [[5, 5], [2, 2]]
    assert base._version == view._version == version + 3
    torch.mul(base, 2, out=base)
    assert view.tolist() == [[10, 10], [4, 4]]
    assert view[:1].squeeze_(0).shape == (2,)


def test_training_gives_the_weights_of_the_cpu():
    torch.manual_seed(0)
    first = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Dropout(), nn.Linear(4, 2))
    second = copy.deepcopy(first).to("second")
    for model in (first, second):
        x, y = here(4, 3).to(model[0].weight.device), torch.tensor([0, 1, 1, 0], device=model[0].weight.device)
        optimizer = torch.optim.Adam(model.parameters(), weight_decay=0.1)
        torch.manual_seed(1)
        for _ in range(3):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
    for name, value in first.state_dict().items():
        assert second.state_dict()[name].device == SECOND
        assert torch.equal(second.state_dict()[name].cpu(), value), name


@other_devices
def test_products_of_csr_tensors_and_in_less_precision(device):
    dense = torch.tensor([[0.0, 1.0], [2.0, 0.0]])
    csr = dense.to_sparse_csr().to(device)
    assert csr.layout == torch.sparse_csr
    assert (csr @ dense.to(device)).tolist() == [[2, 0], [0, 2]]
    with torch.autocast(torch.device(device).type, dtype=torch.bfloat16):
        assert (dense.to(device) @ dense.to(device)).dtype == torch.bfloat16
