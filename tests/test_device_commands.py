"""Commands and benchmarks on another device: the same tables."""

from __future__ import annotations

import csv

import pytest
import torch
from tests.conftest import block_graph
from tests.second_device import other_devices
from tests.test_cli_own import write_graph
from tests.test_devices import moved

from gnnsafe import CrossEntropy, EnergyMargin
from gnnsafe.bench.recipes import Recipe
from gnnsafe.bench.run import run
from gnnsafe.cli import main
from gnnsafe.datasets import Benchmark
from gnnsafe.devices import chosen_device
from gnnsafe.errors import InputError
from gnnsafe.methods import METHODS, Propagated


@other_devices
def test_train_and_score(device, tmp_path, capsys):
    if device != "second":
        pytest.skip("a GPU draws other weights")
    graph = str(write_graph(tmp_path / "graph", block_graph()))
    tables, printed = [], []
    for place in ("cpu", device):
        detector, table = str(tmp_path / place), tmp_path / f"{place}.csv"
        assert main(["train", graph, "--out", detector, "--epochs", "5", "--device", place]) == 0
        assert main(["score", detector, graph, "--out", str(table), "--device", place]) == 0
        printed.append(capsys.readouterr().out.replace(f"{tmp_path}/{place}", ""))
        tables.append(list(csv.DictReader(table.read_text(encoding="utf-8").splitlines())))
    assert printed[0] == printed[1]
    for expected, row in zip(*tables, strict=True):
        for name in ("probability", "score", "p_value"):
            assert float(row[name]) == pytest.approx(float(expected[name]), rel=1e-4)
        assert (row["predicted"], row["flag"]) == (expected["predicted"], expected["flag"])


@other_devices
def test_a_benchmark(device, blocks, exposure):
    if device != "second":
        pytest.skip("a GPU draws other weights")
    planted = moved(blocks, "cpu")
    planted.mask, planted.test_mask = blocks.val_mask, blocks.test_mask
    benchmark = Benchmark("cora", "feature", 3, blocks, exposure, {"a": exposure, "b": planted}, 3, "toy")
    plan = [
        Recipe("GNNSafe++", EnergyMargin(-5.0, -1.0, 0.1), METHODS["gnnsafe"]()),
        Recipe("Mahalanobis, propagated", CrossEntropy(), Propagated(METHODS["mahalanobis"]())),
    ]
    for ours, expected in zip(run(benchmark.to(device), plan, epochs=4), run(benchmark, plan, epochs=4), strict=True):
        assert ours.detection == pytest.approx(expected.detection)
        assert ours.accuracy == pytest.approx(expected.accuracy)
        assert ours.ood_scores == pytest.approx(expected.ood_scores, rel=1e-4)


def test_a_device_that_is_not_there(tmp_path, capsys):
    assert chosen_device("auto").type in ("cpu", "cuda")
    with pytest.raises(InputError, match=r"^'device' must be auto, cpu or one that torch has here \(got 'abacus'"):
        chosen_device("abacus")
    graph = str(write_graph(tmp_path / "graph", block_graph()))
    assert main(["train", graph, "--out", str(tmp_path / "detector"), "--device", "abacus"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("device", ["mps", "hpu", "xla", 2**70])
def test_what_backends_say_of_themselves_is_one_line(device):
    """One that is not compiled in answers with pages on 50 others; one that is a package of its own is not found."""
    if isinstance(device, str) and hasattr(torch, device) and getattr(torch, device).is_available():
        pytest.skip("it is here")
    with pytest.raises(InputError, match=rf"^'device' must be .* \(got '?{device}'?: [^\n]{{10,100}}\)$"):
        chosen_device(device)
