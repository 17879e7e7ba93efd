"""Shifts that tell nodes apart: by their class, by their year, by the graph they come from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from numbers import Integral

import torch
from torch import Tensor

from gnnsafe.checks import check_tensor
from gnnsafe.datasets.shifts.graphs import MASKS, Data, changed, narrowed, shifted
from gnnsafe.errors import require
from gnnsafe.graph import edge_attributes, node_labels, node_mask
from gnnsafe.prepared import check_graph

__all__ = ["domain", "label", "time"]

Period = tuple[int, int]


def label(data: Data, *, ood: set[int], exposure: set[int]) -> tuple[Data, Data, Data]:
    """The same graph three times: ID nodes, exposure nodes and OOD nodes told apart by their class.

    The ID graph's training, validation and test masks lose the nodes of left-out classes. Features, edges and labels
    are shared by the three.

    Args:
        data: The graph, with `y`.
        ood: The classes of OOD nodes.
        exposure: The classes of exposure nodes.

    Returns:
        The ID graph, and the exposure and the OOD graph, whose `mask` holds the nodes that count.

    Raises:
        InputError: The graph breaks a rule.

    >>> from types import SimpleNamespace
    >>> data = SimpleNamespace(x=torch.eye(3), edge_index=torch.tensor([[0], [1]]), y=torch.tensor([0, 1, 2]))
    >>> _, exposure_graph, ood_graph = label(data, ood={0}, exposure={1})
    >>> ood_graph.mask.tolist(), exposure_graph.mask.tolist()
    ([True, False, False], [False, True, False])
    """
    check_graph(data)
    y = node_labels(data)
    for name, group in {"ood": ood, "exposure": exposure}.items():
        whole = isinstance(group, AbstractSet) and all(isinstance(one, Integral) for one in group)
        require(whole, name, "be a set of classes", repr(group))
    classes = set(y.tolist())
    left_out = ood | exposure
    require(bool(ood), "ood", "name at least one class", "none")
    require(not ood & exposure, "exposure", f"share no class with ood = {sorted(ood)}", sorted(exposure))
    require(left_out < classes, "ood and exposure", f"leave at least one of {sorted(classes)}", sorted(left_out))
    outside, seen, unseen = (_of_class(y, group) for group in (left_out, exposure, ood))
    return narrowed(data, ~outside), shifted(data, seen), shifted(data, unseen)


def domain(
    id: Data,  # noqa: A002
    exposure: Data,
    ood: Mapping[str, Data],
) -> tuple[Data, Data, dict[str, Data]]:
    """Several graphs with the same features: all nodes of the exposure graph and of each OOD graph count.

    The ID graph keeps its training, validation and test masks.

    Args:
        id: The in-distribution graph.
        exposure: The graph of exposure nodes.
        ood: OOD graphs by name.

    Returns:
        The three, where `mask` holds the nodes that count.

    Raises:
        InputError: A graph breaks a rule.
    """
    require(isinstance(ood, Mapping), "ood", "be graphs by name", type(ood).__name__)
    require(bool(ood), "ood", "name at least one graph", "none")
    num_features = _num_features(id)
    for name in MASKS:
        node_mask(id, name)
    for name, graph in [("exposure", exposure), *ood.items()]:
        found = _num_features(graph)
        require(found == num_features, name, f"have {num_features} features, as the ID graph has", found)
    return changed(id), _whole(exposure), {name: _whole(graph) for name, graph in ood.items()}


def time(
    data: Data,
    year: Tensor,
    *,
    id: int,  # noqa: A002
    exposure: Period,
    ood: Mapping[str, Period] | Sequence[Period],
) -> tuple[Data, Data, dict[str, Data]]:
    """One graph as it was at the end of each period: ID up to the year `id`, then exposure, then each OOD period.

    Inductive: the graph of a period that ends in year Y has the edges i→j with year_i ≤ Y and year_j ≤ Y, directed as
    given, and counts the nodes of first ≤ year ≤ last. All nodes keep their ids and features. The ID graph's split
    masks, where there are any, keep the nodes of year ≤ `id`. OOD periods are named "2018" or "2001-2005" unless
    names are given.

    Args:
        data: The graph.
        year: The year of each node.
        id: The last year of ID nodes.
        exposure: First and last year of exposure nodes.
        ood: First and last year of each OOD period, by name or in a list.

    Returns:
        The ID graph, and the exposure graph and OOD graphs, whose `mask` holds the nodes that count.

    Raises:
        InputError: The graph, the years or a period breaks a rule.

    >>> from types import SimpleNamespace
    >>> papers = SimpleNamespace(x=torch.zeros(3, 1), edge_index=torch.tensor([[1, 2], [0, 1]]))
    >>> year = torch.tensor([2015, 2016, 2018])
    >>> _, exposure, ood = time(papers, year, id=2015, exposure=(2016, 2017), ood=[(2018, 2018)])
    >>> exposure.edge_index.tolist(), ood["2018"].edge_index.tolist(), ood["2018"].mask.tolist()
    ([[1], [0]], [[1, 2], [0, 1]], [False, False, True])
    """
    check_graph(data)
    _check_year(year, data.x.shape[0])
    require(isinstance(id, Integral) and not isinstance(id, bool), "id", "be a year", repr(id))
    require(isinstance(ood, Mapping | Sequence), "ood", "be pairs of years (first, last)", repr(ood))
    exposure = _period("exposure", exposure)
    named = ood.items() if isinstance(ood, Mapping) else [(_name(_period("ood", period)), period) for period in ood]
    periods = {name: _period(name, period) for name, period in named}
    require(bool(periods), "ood", "name at least one period", "none")
    early = year <= id
    require(bool(early.any()), "id", f"be at least {int(year.min())}, the first year there is", id)
    seen = _nodes_of("exposure", year, exposure, after=id)
    unseen = {name: _nodes_of(name, year, period, after=id) for name, period in periods.items()}
    for name, mask in unseen.items():
        require(not (mask & seen).any(), name, f"share no year with the exposure, {_name(exposure)}", periods[name])
    return (
        narrowed(data, early, **_edges_until(data, year, id)),
        shifted(data, seen, **_edges_until(data, year, exposure[1])),
        {name: shifted(data, mask, **_edges_until(data, year, periods[name][1])) for name, mask in unseen.items()},
    )


def _of_class(y: Tensor, classes: set[int]) -> Tensor:
    return torch.isin(y, torch.tensor(sorted(classes), dtype=y.dtype, device=y.device))


def _num_features(graph: Data) -> int:
    check_graph(graph)
    return int(graph.x.shape[1])


def _whole(graph: Data) -> Data:
    return shifted(graph, torch.ones(graph.x.shape[0], dtype=torch.bool, device=graph.x.device))


def _check_year(year: Tensor, num_nodes: int) -> None:
    check_tensor("year", year)
    whole = not (year.is_floating_point() or year.is_complex() or year.dtype == torch.bool)
    require(
        whole and year.shape == (num_nodes,),
        "year", f"be an integer tensor of shape [{num_nodes}]", f"{year.dtype} {list(year.shape)}",
    )  # fmt: skip


def _period(name: str, period: Period) -> Period:
    pair = isinstance(period, Sequence) and len(period) == 2 and all(isinstance(end, Integral) for end in period)
    require(pair, name, "be a pair of years (first, last)", period)
    first, last = period
    require(first <= last, name, "begin no later than it ends", period)
    return first, last


def _name(period: Period) -> str:
    first, last = period
    return str(first) if first == last else f"{first}-{last}"


def _nodes_of(name: str, year: Tensor, period: Period, *, after: int) -> Tensor:
    """The nodes of a period, once it is known to lie after the ID years and to have nodes."""
    first, last = period
    require(first > after, name, f"begin after the last ID year, {after}", period)
    mask = (year >= first) & (year <= last)
    require(bool(mask.any()), name, "hold at least one node", period)
    return mask


def _edges_until(data: Data, year: Tensor, last: int) -> dict[str, Tensor]:
    """The edges that join nodes up to that year, with their attributes."""
    kept = (year <= last)[data.edge_index].all(dim=0)
    attributes = {name: getattr(data, name)[kept] for name in edge_attributes(data)}
    return {**attributes, "edge_index": data.edge_index[:, kept]}
