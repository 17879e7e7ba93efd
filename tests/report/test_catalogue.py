from __future__ import annotations

import re

import pytest
import torch

from gnnsafe import cli
from gnnsafe.datasets import DATASETS
from gnnsafe.datasets.catalogue import CONTROLS
from gnnsafe.report.catalogue import edge_counts, edge_figures, graph_figures, graph_lines


def test_the_list_of_data_sets(data_root, capsys):
    assert cli.main(["datasets", "--data", str(data_root)]) == 0
    text = capsys.readouterr().out
    available = dict(re.findall(r"^(\S+) .*? (yes|no) ", text, re.M))
    expected = {"cora", "pubmed", "amazon-photo", "coauthor-cs", "twitch", "pubmed-years", "synthetic",
                "arxiv-stand-in"}  # fmt: skip
    expected |= {"arxiv-topics"} & {name for name in DATASETS if DATASETS[name].available(data_root)}
    assert {name for name, answer in available.items() if answer == "yes"} == expected
    assert re.search(r"^coauthor-cs\s+18,333\s+163,788\s+6805\s+15\s+yes", text, re.M)
    assert max(map(len, text.splitlines())) <= 80
    assert len(available) == 14
    shifts = {shift for dataset in DATASETS.values() for shift in dataset.shifts if shift not in CONTROLS}
    assert all(re.search(rf"(?<![\w-]){shift}(?![\w-])", text) for shift in shifts)  # none is cut


@pytest.fixture
def graph(tmp_path):
    (tmp_path / "nodes.csv").write_text("id,a,b,label,split\nx,1,2,cat,train\ny,3,4,dog,val\nz,5,6,,\n")
    (tmp_path / "edges.csv").write_text("source,target\nx,y\ny,z\nz,nobody\n")
    return str(tmp_path)


def test_a_graph_of_ones_own(graph, capsys):
    assert cli.main(["datasets", graph, "--drop-unknown-edges"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "3 nodes, 1 without incoming edges",
        "2 directed edges, 1 left out for want of a node",
        "2 features",
        "2 classes, 1 nodes without a label",
        "split: 1 train, 1 val, 0 test",
    ]
    assert cli.main(["datasets", graph, "--drop-unknown-edges", "--undirected"]) == 0
    assert "2 undirected edges (4 entries of edge_index), 1 left out" in capsys.readouterr().out


def test_edges_are_counted_as_what_they_are(directed):
    """Worked out by hand: 0→1 twice, 1→2, 2→0, 3→2, 2→2 twice; then both directions of all, loops standing once."""
    edges = directed.edge_index
    assert edge_counts(edge_figures(edges, 5)) == "7 directed edges, 2 self-loops, 2 repeated"
    both = torch.cat([edges, edges[:, :5].flip(0)], dim=1)  # 0–1 twice, 1–2, 0–2, 2–3, 2–2 twice
    found = edge_figures(both, 5)
    assert found == {"edges": 7, "undirected": True, "entries": 12, "self_loops": 2, "repeated": 2}
    assert edge_counts(found) == "7 undirected edges (12 entries of edge_index), 2 self-loops, 2 repeated"
    assert edge_counts(edge_figures(edges[:, :0], 5)) == "0 directed edges"


def test_edges_of_cora(data_root):
    data, _ = DATASETS["cora"].graph(data_root, 0)
    assert graph_lines(graph_figures(data))[1] == "5,278 undirected edges (10,556 entries of edge_index)"


def test_a_graph_that_breaks_a_rule(graph, capsys):
    assert cli.main(["datasets", graph]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert re.fullmatch(r"gnnsafe: .*edges\.csv.*target.*row 3.*nobody.*\n", err)


def test_a_graph_that_is_not_there(tmp_path, capsys):
    assert cli.main(["datasets", str(tmp_path / "nothere")]) == 2
    assert "nothere: must be a file or folder that is there (found none); check the path" in capsys.readouterr().err
