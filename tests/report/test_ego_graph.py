from __future__ import annotations

import math

import pytest

from gnnsafe.report.ego_graph import _arrows, ego_graph, places

NODES = [
    {"node": 9, "hop": 0, "score": -1.0, "weight": 0.5},
    {"node": 4, "hop": 1, "score": -3.0, "weight": 0.3},
    {"node": 5, "hop": 1, "score": 1.0, "weight": 0.1},
    {"node": 6, "hop": 2, "score": 0.0, "weight": 0.1},
]
EDGES = [(4, 9), (9, 4), (5, 9), (6, 5)]


def test_rings():
    place = places(NODES, EDGES)
    assert place[9] == (0.0, 0.0)
    assert [math.hypot(*place[node]) for node in (4, 5, 6)] == pytest.approx([0.5, 0.5, 1.0])
    assert len(set(place.values())) == 4
    assert places(NODES[:1], []) == {9: (0.0, 0.0)}


def test_arrows_stand_on_edges_of_one_direction():
    arrows = _arrows([(0, 1), (1, 2), (2, 1)], {0: (0.0, 0.0), 1: (1.0, 0.0), 2: (1.0, 1.0)})
    assert arrows == [{"x": 0.6, "y": 0.0, "angle": pytest.approx(90.0)}]  # to the right: a quarter turn from up


def test_the_chart():
    chart = ego_graph(NODES, EDGES, title="why", boundary=-2.0).to_dict()
    lines, arrows, circles = (chart["datasets"][layer["data"]["name"]] for layer in chart["layer"][:3])
    assert len(lines) == 3  # both ways are one line
    assert len(arrows) == 2
    assert [row["node"] for row in circles] == [9, 4, 5, 6]
    assert chart["layer"][2]["encoding"]["color"]["scale"]["domain"] == [-3.0, -2.0, 1.0]
    assert chart["title"]["text"] == "why"
    without = ego_graph(NODES, EDGES, title="why").to_dict()
    assert without["layer"][2]["encoding"]["color"]["scale"]["domain"] == [-3.0, -1.0, 1.0]
