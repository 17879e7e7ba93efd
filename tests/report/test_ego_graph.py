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
    assert chart["title"]["text"] == ["why"]
    without = ego_graph(NODES, EDGES, title="why").to_dict()
    assert without["layer"][2]["encoding"]["color"]["scale"]["domain"] == [-3.0, -1.0, 1.0]


def test_what_is_left_out_is_said_and_what_is_not_there_is_not():
    chart = ego_graph(NODES, EDGES, title="why", boundary=2.0, around=1434).to_dict()
    assert chart["title"]["subtitle"][1:] == [
        "3 of the 1,433 nodes around it are drawn: the nearest that count most.",
        "None scores above 2, as one calibration node in twenty does.",
    ]
    colour = chart["layer"][2]["encoding"]["color"]["scale"]
    assert colour["domain"] == [-3.0, 1.0]  # no orange in the legend
    assert colour["range"] == ["#3b76af", "#b9c5d1"]  # a fifth of the way from grey to blue
    alone = ego_graph(NODES[:1], [], title="why", boundary=-2.0, around=1).to_dict()
    assert alone["layer"][2]["encoding"]["color"] == {"value": "#e1812c"}  # no scale, no legend
    assert alone["title"]["subtitle"] == [
        "No node points to it.",
        "Orange nodes score above -2, as one calibration node in twenty does.",
    ]


def test_names_lie_beside_the_discs():
    """In pixels: further from every disc's middle than its radius."""
    chart = ego_graph([{**node, "name": "a long name of a node"} for node in NODES], EDGES, title="why").to_dict()
    rows = chart["datasets"][chart["layer"][4]["data"]["name"]]
    assert [row["label"] for row in rows[1:]] == ["a long na…"] * 3
    scale = 460 / 2.16
    for name in rows:
        for disc in rows:
            apart = scale * math.hypot(name["label_x"] - disc["x"], name["label_y"] - disc["y"])
            assert apart > math.sqrt(disc["area"] / math.pi)


def test_a_long_title_is_broken_and_the_legend_lies_above_the_names():
    ring = [{"node": 10 + k, "hop": 1, "score": float(k), "weight": 0.01, "name": f"paper-{k}"} for k in range(30)]
    title = "Node paper-1000000 scores -3.214, above 99.9% of 1500 calibration nodes (p = 0.0012)"
    chart = ego_graph([NODES[0], *ring], [(10 + k, 9) for k in range(30)], title=title).to_dict()
    assert max(map(len, chart["title"]["text"])) <= 56
    assert " ".join(chart["title"]["text"]) == title
    few, many = (
        one["layer"][2]["encoding"]["color"]["legend"]["offset"]
        for one in (ego_graph(NODES, EDGES, title="why").to_dict(), chart)
    )
    assert few == 18
    assert many > 18 + 40
