"""Controls: nothing is OOD in them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.utils import is_undirected

from gnnsafe import load_benchmark, shifts
from gnnsafe.bench.recipes import recipes
from gnnsafe.bench.run import run
from gnnsafe.datasets import DATASETS


def graph(*, directed: bool = False) -> Data:
    generator = torch.Generator().manual_seed(0)
    edges = torch.randint(60, (2, 200), generator=generator)
    edges = edges[:, edges[0] != edges[1]]
    loops = torch.tensor([[3, 4], [3, 4]])
    edges = torch.cat([edges, loops] if directed else [edges, edges.flip(0), loops], dim=1)
    node = torch.arange(60)
    masks = {"train_mask": node % 3 == 0, "val_mask": node % 3 == 1, "test_mask": node % 3 == 2}
    return Data(x=torch.rand(60, 4, generator=generator), edge_index=edges, y=node % 2, **masks)


@pytest.mark.parametrize("directed", [True, False])
def test_nothing_happened_but_for_a_few_edges(directed):
    data = graph(directed=directed)
    control = shifts.nothing(data, 1, rate=0.1)
    assert torch.equal(control.mask, data.test_mask)
    assert "test_mask" not in control
    assert torch.equal(control.x, data.x)
    before, after = ({*map(tuple, one.edge_index.T.tolist())} for one in (data, control))
    assert after < before
    lost = (data.edge_index.shape[1] - control.edge_index.shape[1]) // (1 if directed else 2)
    whole = (data.edge_index.shape[1] - 2) // (1 if directed else 2)
    assert lost == round(0.1 * whole)
    assert {(3, 3), (4, 4)} <= after
    assert is_undirected(control.edge_index) != directed
    assert torch.equal(shifts.nothing(data, 1, rate=0.1).edge_index, control.edge_index)
    assert not torch.equal(shifts.nothing(data, 2, rate=0.1).edge_index, control.edge_index)


def test_one_edge_goes_even_where_a_hundredth_is_less_and_none_where_there_is_none():
    data = graph()
    data.edge_index = torch.tensor([[0, 1], [1, 0]])
    assert shifts.nothing(data, 0).edge_index.shape == (2, 0)
    data.edge_index = data.edge_index[:, :0]
    assert shifts.nothing(data, 0).edge_index.shape == (2, 0)


def test_the_other_half():
    data = graph(directed=True)
    data.x[:, 0] = torch.arange(60.0)  # who is who
    here, there = shifts.other_half(data, 0)
    ours, theirs = (one.x[:, 0].long().tolist() for one in (here, there))
    assert len(ours) == len(theirs) == 30
    assert sorted(ours + theirs) == list(range(60))
    for one, ids in ((here, ours), (there, theirs)):
        kept = {(ids[a], ids[b]) for a, b in one.edge_index.T.tolist()}
        assert kept == {(a, b) for a, b in data.edge_index.T.tolist() if a in ids and b in ids}
        assert one.y.tolist() == [i % 2 for i in ids]
    assert here.test_mask.tolist() == [i % 3 == 2 for i in ours]
    assert there.mask.tolist() == [i % 3 == 2 for i in theirs]
    assert "test_mask" not in there


def test_a_half_without_training_nodes_is_refused():
    data = graph()
    data.train_mask = torch.arange(60) == 0
    there = next(seed for seed in range(20) if 0 not in np.random.default_rng(seed).permutation(60)[:30])
    with pytest.raises(ValueError, match="'data' must have nodes of its train_mask in either half"):
        shifts.other_half(data, there)


@pytest.mark.parametrize("rate", [0.0, 1.0, "all"])
def test_no_rate(rate):
    with pytest.raises(ValueError, match=r"'rate' must lie in \(0, 1\)"):
        shifts.nothing(graph(), 0, rate=rate)


@pytest.mark.parametrize("shift", ["control-nothing", "control-half"])
@pytest.mark.parametrize("own", [False, True])
def test_any_data_set_has_them(shift, own, monkeypatch):
    """One whose shifts are all its own has them on its ID graph."""
    if own:
        bare = replace(DATASETS["synthetic"], graph=None, own={"time": DATASETS["synthetic"].own["time"]})
        monkeypatch.setitem(DATASETS, "synthetic", bare)
    benchmark = load_benchmark("synthetic", shift=shift)
    assert benchmark.exposure is None
    table = {recipe.name: recipe for recipe in recipes("synthetic", shift)}
    assert "GNNSafe++" not in table
    (result,) = run(benchmark, [table["Energy"]], epochs=3)
    assert 0.35 < result.detection.auroc < 0.65
