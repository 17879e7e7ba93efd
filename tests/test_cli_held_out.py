"""`gnnsafe diagnose` and `gnnsafe check`: the split that a detector was trained with, from a graph in files."""

from __future__ import annotations

import json

import pytest
import torch
from tests.conftest import block_graph
from tests.test_cli import complaint
from tests.test_cli_own import write_graph

import gnnsafe
from gnnsafe import cli
from gnnsafe.fitting import fit_detector
from gnnsafe.fitting.known_graph import held_out_nodes, with_known_split


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A graph without a split, a detector that drew one, and a later graph whose features say little."""
    folder = tmp_path_factory.mktemp("held-out")
    write_graph(folder / "graph", block_graph(), split=False)
    later = block_graph(seed=1)
    later.x = later.x.mean(dim=0) + 0.1 * later.x  # hardly any class left in them
    write_graph(folder / "later", later, split=False)
    write_graph(folder / "unlabelled", later, label=False, split=False)
    assert cli.main(["train", str(folder / "graph"), "--out", str(folder / "detector"), "--epochs", "30"]) == 0
    return folder


@pytest.fixture
def call(folder, capsys):
    def run(command: str, graph: str, *options: str) -> tuple[int, str]:
        capsys.readouterr()
        code = cli.main([command, str(folder / "detector"), str(folder / graph), *options])
        return code, capsys.readouterr().out

    return run


class TestSplit:
    def test_the_drawn_split_comes_back_with_the_detector(self, folder):
        data = gnnsafe.read_graph(folder / "graph")
        drawn = fit_detector(data, epochs=1).data
        known = with_known_split(gnnsafe.load(folder / "detector"), data)
        for name in ("y", "train_mask", "val_mask", "test_mask"):
            assert torch.equal(known[name], drawn[name])

    def test_held_out_nodes_have_neither_taught_nor_calibrated(self, folder):
        detector, data = gnnsafe.load(folder / "detector"), gnnsafe.read_graph(folder / "graph")
        _, nodes = held_out_nodes(detector, data)
        assert int(nodes.sum()) == 24  # a fifth of 120
        assert not (nodes & (detector.used_.taught.mask | detector.used_.calibrated.mask)).any()
        later, others = held_out_nodes(detector, gnnsafe.read_graph(folder / "later"))
        assert bool(others.all())
        assert later.class_names == list(detector.class_names_)

    def test_a_class_that_training_never_saw_is_not_held_out(self, folder):
        detector, data = gnnsafe.load(folder / "detector"), gnnsafe.read_graph(folder / "later")
        data.class_names = ["yellow", *data.class_names[1:]]
        _, nodes = held_out_nodes(detector, data)
        assert torch.equal(nodes, data.y != 0)


class TestCheck:
    def test_rates_hold_on_held_out_nodes(self, call):
        code, out = call("check", "graph")
        assert code == 0
        assert out.startswith("24 held-out ID nodes against 24 calibration nodes\n")
        assert out.endswith("all rates hold\n")

    def test_a_rate_that_does_not_hold_is_exit_code_1(self, call):
        code, out = call("check", "later", "--json")
        found = json.loads(out)
        assert (code, found["holds"], found["nodes"]) == (1, False, 120)
        assert "more frequent than stated" in call("check", "later")[1]


class TestDiagnose:
    def test_a_verdict_for_each_trouble(self, call):
        code, out = call("diagnose", "graph", "--draws", "1")
        assert code == 0
        for kind in ("scattered nodes", "regions", "whole graph"):
            assert f"  {kind}: " in out
        assert "If you do not know which: " in out

    def test_as_json(self, call, folder):
        found = json.loads(call("diagnose", "graph", "--draws", "1", "--seed", "2", "--json")[1])
        detector = gnnsafe.load(folder / "detector")
        data = with_known_split(detector, gnnsafe.read_graph(folder / "graph"))
        assert found == detector.diagnose(data, draws=1, seed=2).to_dict()


@pytest.mark.parametrize(("command", "graph", "message"), [
    ("diagnose", "later", "'GRAPH' must be the graph that the detector was trained on (got another)"),
    ("diagnose", "unlabelled", "'label' must be given (got a graph without labels); add a column 'label'"),
    ("check", "unlabelled", "'label' must be given (got a graph without labels); add a column 'label'"),
])  # fmt: skip
def test_mistakes_are_one_line(folder, capsys, command, graph, message):
    capsys.readouterr()
    assert message in complaint(capsys, command, str(folder / "detector"), str(folder / graph))
