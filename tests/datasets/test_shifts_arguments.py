"""Odd arguments of every shift: refused in one line."""

from __future__ import annotations

import itertools
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from gnnsafe.datasets import shifts
from gnnsafe.errors import InputError

ODD = [None, "much", True, math.nan, math.inf, -1, 2.5, [], {}, np.array([1.0, 2.0]), torch.ones(2), object()]
YEAR = torch.arange(12)

GOOD = {
    "structure": {"seed": 0, "test_nodes": "all"},
    "rewire": {"seed": 0, "sweeps": 2, "test_nodes": "all"},
    "perturb_edges": {"seed": 0, "rate": 0.5, "test_nodes": "all"},
    "feature": {"seed": 0, "test_nodes": "all"},
    "feature_noise": {"seed": 0, "kind": "gaussian", "strength": 0.5, "test_nodes": "all"},
    "planted": {"seed": 0, "kind": "feature", "share": 0.2, "clustered": False},
    "label": {"ood": {0}, "exposure": {1}},
    "time": {"year": YEAR, "id": 3, "exposure": (4, 5), "ood": [(6, 7)]},
}
CASES = [(name, argument, odd) for name, good in GOOD.items() for argument, odd in itertools.product(good, ODD)]
ALLOWED = {("planted", "clustered", True), ("feature_noise", "strength", 2.5)}


@pytest.fixture
def data() -> SimpleNamespace:
    torch.manual_seed(0)
    node = torch.arange(12)
    masks = {"train_mask": node < 4, "val_mask": (node >= 4) & (node < 7), "test_mask": node >= 7}
    return SimpleNamespace(x=torch.rand(12, 3), edge_index=torch.randint(12, (2, 30)), y=node % 3, **masks)


@pytest.mark.parametrize(("name", "argument", "odd"), CASES, ids=lambda value: type(value).__name__)
def test_it_is_refused_in_one_line(data, name, argument, odd):
    if isinstance(odd, int | float) and (name, argument, odd) in ALLOWED:
        pytest.skip("that is fine")
    with pytest.raises(InputError) as caught:
        getattr(shifts, name)(data, **{**GOOD[name], argument: odd})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", GOOD)
@pytest.mark.parametrize("odd", ODD, ids=lambda value: type(value).__name__)
def test_what_is_no_graph_is_refused(name, odd):
    with pytest.raises(InputError, match="'data' must have x and edge_index"):
        getattr(shifts, name)(odd, **GOOD[name])


@pytest.mark.parametrize("seed", [True, 2**64, -1, 1.0, "0", None])
def test_bad_seeds(data, seed):
    with pytest.raises(InputError, match="'seed' must be"):
        shifts.feature(data, seed)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("kind", ["gaussian", "bernoulli"])
def test_noise_in_any_precision(data, dtype, kind):
    data.x = (data.x * (data.x > 0.5)).to(dtype)
    noisy = shifts.feature_noise(data, 0, kind=kind).x
    assert noisy.dtype == dtype
    assert torch.isfinite(noisy).all()


def test_noise_that_leaves_the_numbers_is_refused(data):
    data.x *= 3e38
    with pytest.raises(InputError, match="'features with noise' must be finite"):
        shifts.feature_noise(data, 0, strength=10.0)
