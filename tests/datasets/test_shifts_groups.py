"""Nodes told apart by year and by graph: which edges each period sees, and which nodes count."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Data

from gnnsafe.datasets import shifts

MASKS = ("train_mask", "val_mask", "test_mask")


def papers() -> Data:
    """Six papers of 2014 to 2019, directed citations, one of a later paper by an earlier one, a self-loop."""
    edges = torch.tensor([[1, 2, 3, 4, 5, 0, 4], [0, 1, 0, 2, 4, 5, 4]])
    masks = {name: torch.arange(6) % 3 == i for i, name in enumerate(MASKS)}
    masks["test_mask"][0] = masks["test_mask"][1] = masks["val_mask"][0] = True
    return Data(x=torch.eye(6), edge_index=edges, edge_weight=torch.arange(7.0), y=torch.arange(6) % 2, **masks)


YEAR = torch.tensor([2014, 2015, 2016, 2017, 2018, 2019])


def test_each_period_sees_the_edges_up_to_its_end():
    data = papers()
    inside, exposure, ood = shifts.time(data, YEAR, id=2015, exposure=(2016, 2017), ood=[(2018, 2018), (2018, 2019)])
    assert inside.edge_index.tolist() == [[1], [0]]
    assert exposure.edge_index.tolist() == [[1, 2, 3], [0, 1, 0]]
    assert list(ood) == ["2018", "2018-2019"]
    assert ood["2018"].edge_index.tolist() == [[1, 2, 3, 4, 4], [0, 1, 0, 2, 4]]
    assert torch.equal(ood["2018-2019"].edge_index, data.edge_index)
    assert exposure.mask.nonzero().ravel().tolist() == [2, 3]
    assert ood["2018"].mask.nonzero().ravel().tolist() == [4]
    assert ood["2018-2019"].mask.nonzero().ravel().tolist() == [4, 5]
    assert ood["2018"].edge_weight.tolist() == [0, 1, 2, 3, 6]  # what was said of an edge stays with it


def test_time_keeps_node_ids_features_and_the_id_part_of_the_split():
    data = papers()
    before = data.clone()
    inside, exposure, ood = shifts.time(data, YEAR.short(), id=2015, exposure=(2016, 2016), ood={"new": (2018, 2019)})
    for graph in (inside, exposure, ood["new"]):
        assert graph.x is data.x
        assert graph.y is data.y
    for name in MASKS:
        assert torch.equal(inside[name], data[name] & (torch.arange(6) < 2))
        assert name not in exposure
        assert name not in ood["new"]
    assert data.to_dict().keys() == before.to_dict().keys()
    assert all(torch.equal(data[key], before[key]) for key in data.keys())  # noqa: SIM118


def test_time_needs_no_split():
    data = Data(x=torch.eye(6), edge_index=papers().edge_index)
    inside, _, _ = shifts.time(data, YEAR, id=2015, exposure=(2016, 2016), ood=[(2019, 2019)])
    assert inside.edge_index.tolist() == [[1], [0]]


@given(st.lists(st.integers(0, 5), min_size=8, max_size=8), st.integers(0, 2**56 - 1))
def test_no_edge_of_a_period_reaches_into_its_future(years, bits):
    year = torch.tensor([0, 1, 2, *years])  # no period is empty
    pairs = [(bits >> k) % 11 for k in range(0, 56, 4)]
    data = Data(x=torch.zeros(11, 1), edge_index=torch.tensor([pairs[:7], pairs[7:]]))
    graphs = shifts.time(data, year, id=0, exposure=(1, 1), ood=[(2, 5)])
    for graph, last in zip((graphs[0], graphs[1], graphs[2]["2-5"]), (0, 1, 5), strict=True):
        expected = [(a, b) for a, b in data.edge_index.T.tolist() if max(year[a], year[b]) <= last]
        assert list(map(tuple, graph.edge_index.T.tolist())) == expected


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"year": YEAR[:5]}, r"'year' must be an integer tensor of shape \[6\] \(got torch.int64 \[5\]\)"),
        ({"year": YEAR.float()}, r"'year' must be an integer tensor of shape \[6\] \(got torch.float32 \[6\]\)"),
        ({"year": YEAR.tolist()}, r"'year' must be a torch.Tensor \(got list\)"),
        ({"id": 2013}, r"'id' must be at least 2014, the first year there is \(got 2013\)"),
        ({"exposure": (2015, 2016)}, r"'exposure' must begin after the last ID year, 2015 \(got \(2015, 2016\)\)"),
        ({"exposure": (2017, 2016)}, r"'exposure' must begin no later than it ends"),
        ({"exposure": 2016}, r"'exposure' must be a pair of years \(first, last\) \(got 2016\)"),
        ({"exposure": (2030, 2031)}, r"'exposure' must hold at least one node \(got \(2030, 2031\)\)"),
        ({"ood": []}, "'ood' must name at least one period"),
        ({"ood": (2018, 2019)}, r"'ood' must be a pair of years \(first, last\) \(got 2018\)"),
        ({"ood": {"old": (2014, 2018)}}, "'old' must begin after the last ID year, 2015"),
        ({"ood": [(2016, 2018)]}, r"'2016-2018' must share no year with the exposure, 2016 \(got \(2016, 2018\)\)"),
        ({"ood": [(2020, 2020)]}, "'2020' must hold at least one node"),
    ],
)
def test_bad_periods(changes, message):
    arguments = {"year": YEAR, "id": 2015, "exposure": (2016, 2016), "ood": [(2018, 2019)], **changes}
    with pytest.raises(ValueError, match=message) as error:
        shifts.time(papers(), **arguments)
    assert "\n" not in str(error.value)


def test_a_split_without_id_nodes_is_told():
    data = papers()
    data.val_mask = torch.arange(6) == 5
    with pytest.raises(ValueError, match="'val_mask' must hold at least one node"):
        shifts.time(data, YEAR, id=2015, exposure=(2016, 2016), ood=[(2018, 2019)])


def countries() -> tuple[Data, Data, dict[str, Data]]:
    ood = {"ES": Data(x=torch.ones(3, 6), edge_index=torch.tensor([[0], [1]])), "FR": papers()}
    return papers(), Data(x=torch.zeros(2, 6), edge_index=torch.zeros(2, 0, dtype=torch.int64)), ood


def test_domain_counts_all_nodes_of_the_other_graphs():
    given_graphs = countries()
    inside, exposure, ood = shifts.domain(*given_graphs)
    assert inside is not given_graphs[0]
    assert all(inside[name] is given_graphs[0][name] for name in ("x", "edge_index", *MASKS))
    assert "mask" not in inside
    assert list(ood) == ["ES", "FR"]
    for graph, original in ((exposure, given_graphs[1]), *((ood[name], given_graphs[2][name]) for name in ood)):
        assert graph.mask.tolist() == [True] * original.num_nodes
        assert graph.x is original.x
        assert graph.edge_index is original.edge_index
        assert "train_mask" not in graph
        assert "mask" not in original


def test_bad_domains():
    inside, exposure, ood = countries()
    with pytest.raises(ValueError, match="'ood' must name at least one graph"):
        shifts.domain(inside, exposure, {})
    with pytest.raises(ValueError, match="'train_mask' must be given"):
        shifts.domain(exposure, inside, ood)
    wide = Data(x=torch.zeros(2, 7), edge_index=exposure.edge_index)
    with pytest.raises(ValueError, match=r"'exposure' must have 6 features, as the ID graph has \(got 7\)"):
        shifts.domain(inside, wide, ood)
    with pytest.raises(ValueError, match=r"'RU' must have 6 features, as the ID graph has \(got 7\)"):
        shifts.domain(inside, exposure, {**ood, "RU": wide})
