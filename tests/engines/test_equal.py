"""One plan, the same scores: memory and DuckDB, over methods, backbones and kinds of graphs (Spark: test_spark.py)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.conftest import block_graph
from tests.engines.conftest import KINDS, by_id, detector, new_graph, tables, write

import gnnsafe
from gnnsafe import engines
from gnnsafe.engines import Asked
from gnnsafe.errors import CalibrationWarning, InputError
from gnnsafe.methods import (
    GEN,
    GKDE,
    KNN,
    MSP,
    CentredCosine,
    DegreeBalance,
    DiffusedKNN,
    Energy,
    Entropy,
    FeatureDistance,
    GNNSafe,
    InDegree,
    Mahalanobis,
    MaxLogit,
    OutDegree,
    OutOfPlace,
    Propagated,
    TwoScale,
    ViM,
)  # fmt: skip
from gnnsafe.report.decisions import ENDS, bin_edges

METHODS = [
    TwoScale(),
    GNNSafe(), Energy(temperature=2.0), MSP(), MaxLogit(), Entropy(), GEN(), GKDE(), KNN(), Mahalanobis(), ViM(),
    DiffusedKNN(diffusion=2, steps=1), Propagated(Propagated(MSP(), steps=1), steps=3, alpha=0.3, isolated="decay"),
]  # fmt: skip
PARTS = (
    CentredCosine(), FeatureDistance(), Propagated(FeatureDistance(), steps=2), DegreeBalance(), InDegree(),
    Propagated(OutOfPlace("embedding"), steps=1), OutDegree("low"),
)  # fmt: skip
NEAR = TwoScale(  # with fewer steps: each of them is a job of Spark's
    surroundings=(Propagated(Energy(), 2), Propagated(Mahalanobis(), 2), DiffusedKNN(3, steps=2, bank=1000))
)
BACKBONES = ("GraphSAGE", "SGC", "APPNP", "GIN", "MLP")

pytestmark = pytest.mark.filterwarnings("ignore::gnnsafe.errors.CalibrationWarning")  # small graphs


@pytest.fixture
def name() -> str:
    """The engine of these tests; test_spark.py asks some of them of its own."""
    return "duckdb"


def check(found, summary, decided, *, names=None):
    """Equal scores (1e-5 of their size), flags, classes and summary."""
    scores = torch.from_numpy(found["score"].to_numpy().copy())
    torch.testing.assert_close(scores, decided.scores, rtol=1e-5, atol=1e-5)
    assert found["flag"].to_pylist() == decided.flags.tolist()
    np.testing.assert_allclose(found["p_value"].to_numpy(), decided.p_values.numpy(), rtol=1e-12)
    predicted = decided.predicted.tolist()
    assert found["predicted"].to_pylist() == (predicted if names is None else [names[one] for one in predicted])
    np.testing.assert_allclose(found["probability"].to_numpy(), decided.probabilities.numpy(), rtol=1e-5)
    assert found.column_names == decided.to_arrow().column_names
    assert found.schema.types == decided.to_arrow().schema.types
    assert (summary.nodes, summary.flagged) == (len(decided), int(decided.flags.sum()))
    edges = bin_edges(*np.quantile(decided.scores.numpy(), ENDS).astype(np.float64))
    np.testing.assert_allclose(summary.edges, edges, rtol=1e-4, atol=1e-5)
    assert (summary.every.sum(), summary.marked.sum()) == (summary.nodes, summary.flagged)


def run(name, opened, folder, made, graph, asked=None, **options):
    given = tables(graph)
    with opened(name, folder / "temp") as engine:
        said = engines.score(
            engine, made, given.nodes, given.edges, out=folder / "out", asked=asked or Asked(false_alarm=0.1), **options
        )
    assert not [*(folder / "temp").iterdir()]
    return by_id(folder / "out", graph.node_id), said


@pytest.mark.parametrize("method", METHODS, ids=repr)
@pytest.mark.parametrize("kind", KINDS)
def test_duckdb_scores_as_memory_does(kind, method, opened, tmp_path):
    made, graph = detector(method), new_graph(kind)
    check(*run("duckdb", opened, tmp_path, made, graph), made.decide(graph, false_alarm=0.1))


@pytest.mark.parametrize("method", PARTS, ids=repr)
def test_parts_of_two_scale_by_themselves(method, opened, tmp_path):
    made, graph = detector(method), new_graph("all")
    check(*run("duckdb", opened, tmp_path, made, graph), made.decide(graph, false_alarm=0.1))


@pytest.mark.parametrize("trouble", ["scattered", "region", "all"])
def test_two_scale_reads_the_graph_as_a_whole(trouble, opened, tmp_path):
    """Odd features here and there, of one class, or everywhere: other weights, the same decisions."""
    made, graph = detector(TwoScale()), new_graph("all")
    chosen = {"scattered": torch.arange(90) % 6 == 0, "region": graph.y == 0, "all": torch.ones(90, dtype=torch.bool)}
    graph.x[chosen[trouble]] = -2.5 * graph.x[chosen[trouble]].flip(1)
    check(*run("duckdb", opened, tmp_path, made, graph), made.decide(graph, false_alarm=0.1))
    calm, seen = (made.method.for_graph(made.method.rows(made.outputs(one))) for one in (new_graph("all"), graph))
    assert not torch.allclose(calm.weights_, seen.weights_, rtol=0.05)


def test_a_graph_that_is_odd_as_a_whole_is_warned_of_as_in_memory(opened, tmp_path):
    made, graph = detector(TwoScale()), block_graph()
    graph.node_id = list(range(120))
    known = made.calibration_
    made.calibration_ = replace(known, watched=known.watched - 100)  # as if calibration nodes had been calmer
    with pytest.warns(CalibrationWarning, match=r"of 120 nodes are odder by their own evidence") as in_memory:
        decided = made.decide(graph, false_alarm=0.1)
    with pytest.warns(CalibrationWarning) as there:
        check(*run("duckdb", opened, tmp_path, made, graph), decided)
    assert {str(one.message) for one in there} == {str(one.message) for one in in_memory}


def test_what_odder_in_neighbours_explain_is_left_out_in_an_engine_too(opened, tmp_path):
    made, graph = detector(TwoScale()), block_graph()
    graph.node_id = list(range(120))
    graph.x[0:120:5] = graph.x[1:120:5]  # which are of another class
    decided = made.decide(graph, false_alarm=0.1)
    assert float(made.method.explaining_) > 0
    assert made.method.scored(made.outputs(graph)).around is not None
    check(*run("duckdb", opened, tmp_path, made, graph), decided)


def check_far_off(name, opened, folder, *, undirected, method=NEAR):
    """Messages of nodes that are far off are left out of all but classes and degrees, in an engine as in memory."""
    made, graph = detector(method, undirected=undirected), new_graph("all")
    graph.x[torch.arange(90) % 4 == 0] += 40.0
    decided = made.decide(graph, false_alarm=0.1)
    assert bool(made.method.silencing_)
    check(*run(name, opened, folder, made, graph), decided)


def test_two_scale_beside_one_node_that_is_absurdly_far_off(opened, tmp_path):
    made, graph = detector(NEAR), block_graph()
    graph.node_id = list(range(120))
    graph.x[7] += 1e5
    decided = made.decide(graph, false_alarm=0.1)
    assert int(made.method.silent_from_) == 2
    check(*run("duckdb", opened, tmp_path, made, graph), decided)


@pytest.mark.parametrize("undirected", [False, True])
def test_two_scale_beside_nodes_that_are_far_off(undirected, opened, tmp_path):
    check_far_off("duckdb", opened, tmp_path, undirected=undirected)


@pytest.mark.parametrize("degree", [InDegree(), OutDegree()], ids=repr)
def test_degrees_are_those_of_the_graph_whoever_is_heard(degree, opened, tmp_path):
    method = replace(NEAR, unlike=(OutOfPlace(), degree, FeatureDistance()))
    check_far_off("duckdb", opened, tmp_path, undirected=False, method=method)


@pytest.mark.parametrize("backbone", BACKBONES)
@pytest.mark.parametrize("undirected", [False, True])
def test_every_backbone(undirected, backbone, opened, tmp_path):
    made, graph = detector(TwoScale(), backbone, undirected=undirected), new_graph("all")
    check(*run("duckdb", opened, tmp_path, made, graph), made.decide(graph, false_alarm=0.1))


def test_false_discoveries_by_class_of_scaled_features_in_files(name, opened, tmp_path):
    """All of it at once: features scaled, calibration by class, Benjamini-Hochberg, named classes, parts in folders."""
    from tests.conftest import block_graph
    from tests.engines.conftest import trained

    from gnnsafe.scaling import FeatureScaling

    known, graph = block_graph(300), new_graph("all")
    known.class_names = ["a", "b", "c"]
    scaling = FeatureScaling.fit(known.x, known.train_mask, "standard")
    made = gnnsafe.Detector(trained(), GNNSafe(steps=1), scaling=scaling).fit(known).calibrate(known, by_class=True)
    graph.x[:40, :3] *= -3.0
    folder = write(graph, tmp_path / "graph")
    with opened(name, tmp_path / "temp") as engine:
        asked = Asked(fdr=0.3, storey=True)
        said = engines.score(
            engine, made, str(folder / "nodes"), str(folder / "edges" / "*.parquet"), out=tmp_path / "out", asked=asked
        )
    decided = made.decide(graph, fdr=0.3, storey=True)
    assert 0 < int(decided.flags.sum()) < 90
    check(by_id(tmp_path / "out", graph.node_id), said, decided, names=known.class_names)


def test_small_blocks_and_many_files_change_nothing(opened, tmp_path, monkeypatch):
    """Ranges of a few nodes: edges lie in a grid of many cells."""
    from gnnsafe.engines import duckdb, grid

    original = grid.GridWriter.__init__

    def small(self, folder, nodes, *, targets, sources, both_ways):
        original(self, folder, nodes, targets=7, sources=11, both_ways=both_ways)

    monkeypatch.setattr(grid.GridWriter, "__init__", small)
    monkeypatch.setattr(grid, "CHUNK", 5)
    monkeypatch.setattr(duckdb, "BATCH", 4)
    monkeypatch.setattr(duckdb, "EDGES", 2048)
    for undirected in (False, True):
        made, graph = detector(GNNSafe(), undirected=undirected), new_graph("all")
        folder = tmp_path / str(undirected)
        check(*run("duckdb", opened, folder, made, graph), made.decide(graph, false_alarm=0.1))


def test_a_value_worked_out_by_hand(name, opened, tmp_path):
    """0 → 1 twice, 2 → 1, a loop at 1: energies −log 2, −log 4, −log 8; (2·e0 + e2 + e1) / 4 and e1, half each."""
    import pyarrow as pa
    from pyarrow import parquet

    from gnnsafe.calibration import Calibration
    from gnnsafe.engines.plan import logits_plan
    from gnnsafe.engines.scoring import _carried_out

    e0, e1, e2 = (-float(np.log(size)) for size in (2, 4, 8))
    logits = pa.table({"id": [0, 1, 2], "a": np.log([1.0, 2.0, 4.0]), "b": np.log([1.0, 2.0, 4.0])})
    edges = pa.table({"source": [0, 0, 2, 1], "target": [1, 1, 1, 1]})
    calibration = Calibration(torch.tensor([-1.0, -2.0, -3.0]))
    plan = logits_plan(GNNSafe(steps=1), calibration)
    with opened(name, tmp_path / "temp") as engine:
        _carried_out(engine, plan, calibration, logits, edges, str(tmp_path / "out"), Asked(false_alarm=0.4), None, {})
    found = parquet.read_table(tmp_path / "out").sort_by("id")
    heard = (2 * e0 + e2 + e1) / 4
    np.testing.assert_allclose(found["score"].to_numpy(), [e0, (heard + e1) / 2, e2], rtol=1e-6)
    assert found["p_value"].to_pylist() == [0.25, 0.5, 0.75]
    assert found["flag"].to_pylist() == [True, False, False]


def test_logits_of_anybodys_model(name, opened, tmp_path):
    import pyarrow as pa

    from gnnsafe.saving import read

    made, graph = detector(GNNSafe()), new_graph("all")
    made.save(tmp_path / "detector")
    logits = made.outputs(graph).logits
    saved, _ = read(tmp_path / "detector")
    rows = pa.table({"id": graph.node_id, "logits": logits.tolist()})
    with opened(name, tmp_path / "temp") as engine:
        said = engines.score_logits(
            engine, saved, rows, tables(graph).edges, out=tmp_path / "out",
            asked=Asked(false_alarm=0.1, nodes=graph.node_id[:40]),
        )  # fmt: skip
    decided = made.decide(graph, false_alarm=0.1, mask=torch.arange(90) < 40).of(torch.arange(90) < 40)
    check(by_id(tmp_path / "out", graph.node_id[:40]), said, decided)


def test_probabilities_are_no_logits(name, opened, tmp_path):
    import pyarrow as pa

    from gnnsafe.saving import read

    made, graph = detector(Energy()), new_graph("all")
    made.save(tmp_path / "detector")
    rows = pa.table({"id": graph.node_id, "logits": made.outputs(graph).logits.softmax(dim=1).tolist()})
    with opened(name, tmp_path / "temp") as engine, pytest.raises(InputError, match="'logits' must be unnormalised"):
        engines.score_logits(engine, read(tmp_path / "detector")[0], rows, tables(graph).edges, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_one_engine_for_several_graphs(opened, tmp_path):
    """Tables in memory, then in files: nothing of the first graph is in the way of the second, or read for it."""
    made, chosen = detector(GNNSafe(), undirected=True), torch.arange(90) < 40
    with opened("duckdb", tmp_path / "temp") as engine:
        for kind in ("repeated", "loops"):
            graph, out = new_graph(kind), tmp_path / kind
            given = tables(graph) if kind == "repeated" else None
            folder = None if given else write(graph, tmp_path / "files")
            nodes, edges = (getattr(given, t) if given else str(folder / t) for t in ("nodes", "edges"))
            asked = Asked(false_alarm=0.1, nodes=[str(node) for node in graph.node_id[:40]])
            said = engines.score(engine, made, nodes, edges, out=out, asked=asked)
            decided = made.decide(graph, false_alarm=0.1, mask=chosen).of(chosen)
            check(by_id(out, graph.node_id[:40]), said, decided)
