"""Nodes compared within regions: uniform ranks in whatever order regions come, and a stream that stays what it is."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
import torch
from tests.monitoring.conftest import unmasked
from torch_geometric.data import Data

import gnnsafe
from gnnsafe.errors import InputError
from gnnsafe.monitoring import Alarm, History, observe
from gnnsafe.monitoring.cells import NOWHERE, cells, nearest
from gnnsafe.monitoring.ranks import ALL

pytestmark = pytest.mark.filterwarnings("ignore:.*nodes are flagged:gnnsafe.errors.CalibrationWarning")


@pytest.fixture
def local(trained, known_graph):
    """Calibrated with validation nodes of the graph that it was fitted on."""
    return gnnsafe.Detector(trained.classifier.model, "gnnsafe").fit(known_graph).calibrate(known_graph)


def test_a_cell_is_that_of_the_nearest_anchor():
    path = np.array([[0, 2, 2, 3, 5], [1, 1, 3, 4, 5]])  # 0 → 1 ← 2 → 3 → 4, and 5 with a loop
    assert nearest(path, 6, np.array([4, 0])).tolist() == [1, 1, 0, 0, 0, -1]  # 2 is as far from both
    assert nearest(np.empty((2, 0), np.int64), 2, np.array([1])).tolist() == [-1, 0]


def test_distances_to_anchors_are_those_of_networkx():
    graph = nx.gnm_random_graph(60, 80, seed=3)
    edges, anchors = np.array(list(graph.edges)).T, np.array([50, 3, 17])
    lengths = [nx.single_source_shortest_path_length(graph, anchor) for anchor in anchors.tolist()]
    for node, place in enumerate(nearest(edges, 60, anchors).tolist()):
        away = [one.get(node, 99) for one in lengths]
        assert place == (-1 if min(away) == 99 else away.index(min(away)))


def test_cells_keep_their_names_as_the_graph_grows_and_calibration_nodes_have_theirs(local, known_graph):
    whole = cells(local, known_graph)
    assert whole.nodes[known_graph.val_mask.numpy()].tolist() == whole.known.tolist()
    assert len(np.unique(whole.nodes)) > 5
    order = torch.randperm(600, generator=torch.Generator().manual_seed(0))
    place = torch.empty(600, dtype=torch.long)
    place[order] = torch.arange(600)
    moved = Data(x=known_graph.x[order], edge_index=place[known_graph.edge_index])
    again = cells(local, moved)
    assert again.nodes.tolist() == whole.nodes[order.numpy()].tolist()
    assert again.known.tolist() == whole.known.tolist()
    other = cells(local, Data(x=known_graph.x + 1, edge_index=known_graph.edge_index))
    assert (other.nodes.tolist(), other.known) == ([ALL] * 600, None)
    lonely = cells(local, Data(x=known_graph.x, edge_index=torch.empty(2, 0, dtype=torch.long)))
    assert (lonely.nodes == NOWHERE).mean() > 0.8


def test_ranks_within_cells_are_uniform_in_whatever_order_regions_come():
    """Regions with levels of their own, one after another: 5 % of 200 streams; compared with all, every one alarms."""
    rng, raised = np.random.default_rng(0), np.zeros(2)
    for seed in range(200):
        level = rng.normal(0, 3, 12)
        at, known_at = np.repeat(np.arange(12), 25), np.repeat(np.arange(12), 10)
        known = (level[known_at] + rng.standard_normal(120))[:, None]
        local = Alarm.watching(["score"], known, cells=known_at, seed=seed)
        plain = Alarm.watching(["score"], known, seed=seed)
        for region in range(12):
            scores = (level[region] + rng.standard_normal(25))[:, None]
            local, plain = local.after(scores, at[at == region]), plain.after(scores)
        raised += local.raised(0.05), plain.raised(0.05)
    assert raised[0] <= 0.05 * 200 + 2 * (0.05 * 0.95 * 200) ** 0.5
    assert raised[1] > 190


def test_a_node_that_is_odd_within_its_region_is_found():
    rng = np.random.default_rng(1)
    level = rng.normal(0, 3, 12)
    at, known_at = np.repeat(np.arange(12), 10), np.repeat(np.arange(12), 10)
    alarm = Alarm.watching(["score"], (level[known_at] + rng.standard_normal(120))[:, None], cells=known_at)
    assert alarm.local
    assert alarm.compares(np.array([3, 12, ALL])).tolist() == [True, False, True]
    assert alarm.after((level[at] + 3 + rng.standard_normal(120))[:, None], at).raised(0.01)
    again = Alarm.from_dict(alarm.to_dict())
    assert again.to_dict() == alarm.to_dict()


def test_a_stream_is_by_region_in_all_its_runs_or_in_none(local, known_graph, graphs, place):
    graph = unmasked(known_graph)
    with History.open(place) as history:
        with pytest.raises(InputError, match="'regions' must be as in the runs before"):
            history.append(observe(local, graphs(5), regions=True))  # no training node to begin with
        first = history.append(observe(local, graph, regions=True))
        used = int((known_graph.train_mask | known_graph.val_mask).sum())
        assert 0.8 * (600 - used) < first.counted <= 600 - used  # but in cells without a calibration node
        assert not first.raised(0.01)
        with pytest.raises(InputError, match="got without"):
            history.append(observe(local, graph))
        odd = history.append(observe(local, graphs(7, odd=True), regions=True))  # of another graph: with all
        assert (odd.counted, odd.raised(0.01)) == (150, True)


def test_a_detector_of_several_graphs_cannot_tell_regions(local, known_graph):
    local.used_ = gnnsafe.held_out.UsedNodes(local.used_.taught)
    with pytest.raises(InputError, match="be calibrated with nodes of one graph"):
        cells(local, known_graph)
