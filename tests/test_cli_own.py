from __future__ import annotations

import json
import re
from contextlib import nullcontext
from pathlib import Path

import pyarrow as pa
import pytest
import torch
from pyarrow import csv, parquet
from tests.conftest import block_graph
from tests.test_cli import complaint

import gnnsafe
from gnnsafe import cli
from gnnsafe.errors import CalibrationWarning
from gnnsafe.fitting import fit_detector, known_classes
from gnnsafe.methods import GNNSafe, TwoScale
from gnnsafe.saving import FORMAT
from gnnsafe.scaling import FeatureScaling

COLOURS = ("red", "green", "blue")


def write_graph(folder: Path, data, *, label: bool = True, split: bool = True, names: tuple[str, ...] = ()) -> Path:
    """The graph as tables, its nodes called n0, n1, …, its classes by colours."""
    folder.mkdir(parents=True)
    columns = {"id": [f"n{i}" for i in range(data.num_nodes)]}
    names = names or tuple(f"f{i}" for i in range(data.num_features))
    columns |= dict(zip(names, data.x.T.numpy(), strict=True))
    if label:
        columns["label"] = [COLOURS[y] for y in data.y.tolist()]
    if split:
        parts = torch.stack([data.train_mask, data.val_mask, data.test_mask]).long().argmax(dim=0)
        columns["split"] = [("train", "val", "test")[part] for part in parts.tolist()]
    parquet.write_table(pa.table(columns), folder / "nodes.parquet")
    source, target = ([f"n{i}" for i in end.tolist()] for end in data.edge_index)
    parquet.write_table(pa.table({"source": source, "target": target}), folder / "edges.parquet")
    return folder


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> Path:
    """A training graph, a new one without labels, and one of OOD nodes."""
    folder = tmp_path_factory.mktemp("own")
    write_graph(folder / "graph", block_graph())
    new = block_graph(seed=1)
    new.x[:10] = 0.5
    write_graph(folder / "new", new, label=False, split=False)
    return folder


@pytest.fixture(scope="module")
def detector(files) -> Path:
    assert cli.main(["train", str(files / "graph"), "--out", str(files / "detector"), "--epochs", "30"]) == 0
    return files / "detector"


@pytest.fixture(scope="module")
def propagated(files, detector) -> Path:
    """The paper's method on the same model."""
    out = files / "propagated"
    assert cli.main(["refit", str(detector), str(files / "graph"), "--method", "gnnsafe", "--out", str(out)]) == 0
    return out


class TestTrain:
    @pytest.mark.parametrize(
        ("method", "line"),
        [("gkde", r"^gcn trained by KernelDirichlet\("), ("gpn", r"^gpn trained by UncertainCrossEntropy\(")],
    )
    def test_a_method_says_which_objective_and_model_it_needs(self, files, tmp_path, capsys, method, line):
        command = ["train", str(files / "graph"), "--out", str(tmp_path), "--epochs", "2", "--method", method]
        assert cli.main(command) == 0
        assert re.search(line, capsys.readouterr().out, re.M)
        assert cli.main(["score", str(tmp_path), str(files / "new"), "--out", str(tmp_path / "s.csv")]) == 0
        capsys.readouterr()
        for option, value in (("objective", "cross-entropy"), ("backbone", "auto")):
            expected = f"gnnsafe: '{option}' must be .* for {method} \\(got {value}\\); leave it out\n"
            if method == "gpn" or option == "objective":
                assert cli.main([*command, f"--{option}", value]) == 2
                assert re.fullmatch(expected, capsys.readouterr().err)

    def test_says_what_it_did_and_saves_a_calibrated_detector(self, files, tmp_path, capsys):
        arguments = ["train", str(files / "graph"), "--out", str(tmp_path / "d"), "--epochs", "5", "--method", "energy"]
        assert cli.main([*arguments, "--backbone", "mlp", "--seed", "3"]) == 0
        out, err = capsys.readouterr()
        assert err == (
            "gnnsafe: the best epoch is the last of 5: the model was still learning; try --epochs 10\n"
            "gnnsafe: 40 calibration nodes are too few to ever flag a node at 1% of false alarms (99 are needed); "
            "label more nodes, or give more of them to val\n"
        )
        assert (
            "split: 30 train, 40 val, 50 test\nfeatures: columns standardised by the training nodes' mean and standard "
            "deviation\nmlp trained by CrossEntropy(), 5 epochs, best after 5\nright on " in out
        )
        assert re.search(
            r"right on [\d.]+% of test nodes \(balanced over classes [\d.]+%; the largest class alone [\d.]+%\)\n", out
        )
        assert "Detector(MLP, Energy(temperature=1.0)), calibrated on 40 validation nodes\n50 held-out ID nodes" in out
        assert out.endswith(f"Detector: {tmp_path / 'd'}\n")
        detector = gnnsafe.load(tmp_path / "d")
        assert detector.class_names_ == ("blue", "green", "red")
        assert detector.feature_names_ == tuple(f"f{i}" for i in range(8))
        assert len(detector.calibration_.scores) == 40
        assert (detector.notes["epochs"], detector.notes["seed"], detector.undirected) == (5, 3, False)
        data = gnnsafe.read_graph(files / "graph")
        scaled = data.clone()
        scaled.x = FeatureScaling.fit(data.x, data.train_mask)(data.x)
        model = gnnsafe.models.MLP(8, 64, 3)
        gnnsafe.train(model, scaled, objective=gnnsafe.CrossEntropy(), epochs=5, seed=3)
        assert torch.equal(detector.score(data), gnnsafe.Detector(model, "energy").fit(scaled).score(scaled))

    def test_a_split_is_drawn_where_there_is_none(self, tmp_path, capsys):
        graph = write_graph(tmp_path / "graph", block_graph(), split=False)
        assert cli.main(["train", str(graph), "--out", str(tmp_path / "d"), "--epochs", "1", "--seed", "7"]) == 0
        out = capsys.readouterr().out
        assert "split: 72 train, 24 val, 24 test\nno split was given: this one is drawn from seed 7\n" in out

    def test_the_default_is_calibrated_on_validation_nodes_and_checked_on_others(self, files, tmp_path, capsys):
        assert cli.main(["train", str(files / "graph"), "--out", str(tmp_path), "--epochs", "30"]) == 0
        out, err = capsys.readouterr()
        assert f"Detector(GCN, {TwoScale()!r}), calibrated on 40 validation nodes\n50 held-out ID nodes" in out
        assert "has learnt from" not in err
        assert gnnsafe.load(tmp_path).method == TwoScale()

    def test_the_papers_where_validation_nodes_are_few(self, tmp_path, capsys):
        data = block_graph()
        data.val_mask = data.val_mask & (data.val_mask.cumsum(0) <= 12)
        torch.save(data.to_dict(), tmp_path / "graph.pt")
        assert cli.main(["train", str(tmp_path / "graph.pt"), "--out", str(tmp_path / "d"), "--epochs", "30"]) == 0
        (said,) = [line for line in capsys.readouterr().err.splitlines() if "default method" in line]
        assert said.startswith("gnnsafe: TwoScale, the default method, cannot be fitted ('val_mask' must hold at least")
        assert gnnsafe.load(tmp_path / "d").method == GNNSafe()

    def test_without_validation_nodes_it_is_one_line(self, tmp_path, capsys):
        data = block_graph()
        del data.val_mask
        torch.save(data.to_dict(), tmp_path / "graph.pt")
        error = complaint(capsys, "train", str(tmp_path / "graph.pt"), "--out", str(tmp_path / "d"), "--epochs", "1")
        assert "'val_mask' must " in error

    def test_exposure_brings_the_margin_along(self, files, tmp_path, capsys):
        arguments = ["train", str(files / "graph"), "--out", str(tmp_path), "--epochs", "2"]
        assert cli.main([*arguments, "--exposure", str(files / "new"), "--undirected"]) == 0
        assert "gcn trained by EnergyMargin(t_in=-5.0, t_out=-1.0, weight=0.1, steps=2" in capsys.readouterr().out
        detector = gnnsafe.load(tmp_path)
        assert detector.undirected is True
        assert detector.method == gnnsafe.methods.GNNSafe()  # with the margin it is GNNSafe++

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            (["--objective", "energy-margin"], "'exposure' must be given for EnergyMargin"),
            (["--objective", "cross-entropy", "--exposure", "new"], "'exposure' must be left out for cross-entropy"),
            (["--backbone", "gnc"], "invalid choice: 'gnc'"),
            (["--epochs", "0"], "--epochs: must be a whole number >= 1"),
            (["--seed", "-1"], "--seed: "),
            (["--exposure", "nowhere"], "nowhere: must be a file or folder that is there"),
        ],
    )
    def test_mistakes(self, files, tmp_path, capsys, monkeypatch, options, message):
        monkeypatch.chdir(files)
        assert message in complaint(capsys, "train", "graph", "--out", str(tmp_path / "d"), *options)
        assert not list(tmp_path.iterdir())

    def test_exposure_has_the_same_features(self, files, tmp_path, capsys):
        names = ("f1", "f0", *(f"f{i}" for i in range(2, 8)))
        other = write_graph(tmp_path / "other", block_graph(seed=2), names=names)
        arguments = ["train", str(files / "graph"), "--out", str(tmp_path / "d"), "--exposure", str(other)]
        assert "in their order (got another order, 'f1' where 'f0' was); put them in that order" in complaint(
            capsys, *arguments
        )
        assert not (tmp_path / "d").exists()

    def test_labels_are_needed(self, files, tmp_path, capsys):
        error = complaint(capsys, "train", str(files / "new"), "--out", str(tmp_path / "d"))
        for part in ("'label'", "(got a graph without labels)", "add a column 'label'"):
            assert part in error

    def test_a_file_in_the_way_costs_no_training(self, files, tmp_path, capsys):
        (tmp_path / "d").write_text("")
        assert "'--out' must be" in complaint(capsys, "train", str(files / "graph"), "--out", str(tmp_path / "d"))


class TestScore:
    def test_a_row_per_node(self, files, detector, tmp_path, capsys):
        out = tmp_path / "deep" / "scores.parquet"
        assert cli.main(["score", str(detector), str(files / "new"), "--out", str(out), "--false-alarm", "0.1"]) == 0
        table = parquet.read_table(out)
        assert table.column_names == ["id", "predicted", "probability", "score", "p_value", "flag"]
        data, loaded = gnnsafe.read_graph(files / "new"), gnnsafe.load(detector)
        logits = loaded.outputs(data).logits
        columns = {name: table[name].to_pylist() for name in table.column_names}
        assert columns["id"] == data.node_id
        assert columns["predicted"] == [("blue", "green", "red")[c] for c in logits.argmax(dim=1).tolist()]
        assert columns["probability"] == pytest.approx(torch.softmax(logits, dim=1).amax(dim=1).tolist(), abs=1e-6)
        assert columns["score"] == loaded.score(data).tolist()
        assert columns["p_value"] == loaded.p_values(data).tolist()
        assert columns["flag"] == loaded.predict(data, false_alarm=0.1).tolist()
        flagged = sum(columns["flag"])
        text = capsys.readouterr().out
        assert text.startswith(
            f"120 nodes, {flagged} flagged ({flagged / 120:.1%})\n"
            "expected false alarms: at most 0.1 of the ID nodes, 12 if all are ID\n"
        )
        bars = re.findall(r"^ *-?[\d.e+-]+ +(\d+) ([█▒]*) *$", text, re.M)
        assert sum(int(count) for count, _ in bars) == 120
        assert text.endswith(f"Table: {out}\n")
        assert [path.name for path in out.parent.iterdir()] == ["scores.parquet"]

    @pytest.mark.parametrize("ending", ["parquet", "csv"])
    def test_sets_of_classes(self, files, detector, tmp_path, capsys, ending):
        out = tmp_path / f"scores.{ending}"
        arguments = ["score", str(detector), str(files / "new"), "--out", str(out)]
        assert cli.main([*arguments, "--sets", "0.2"]) == 0
        table = parquet.read_table(out) if ending == "parquet" else csv.read_csv(out)
        assert table.column_names == ["id", "predicted", "probability", "score", "p_value", "flag", "set"]
        sets = gnnsafe.load(detector).predict_sets(gnnsafe.read_graph(files / "new"), error=0.2)
        found = table["set"].to_pylist()
        found = [json.loads(text) for text in found] if ending == "csv" else found
        assert found == [list(sets.names(node)) for node in range(120)]
        empty = int(sets.empty.sum())
        sure = int((sets.sizes == 1).sum())
        assert f"sets at error 0.2: {empty} empty ({empty / 120:.1%}), {sure} of one class\n" in capsys.readouterr().out
        assert "--sets: must lie in (0, 1)" in complaint(capsys, *arguments, "--sets", "1")

    def test_csv_and_false_discoveries(self, detector, tmp_path, capsys):
        odd = block_graph(seed=1)
        odd.x[::4] += 9.0
        out, graph = tmp_path / "scores.csv", write_graph(tmp_path / "odd", odd, label=False, split=False)
        assert cli.main(["score", str(detector), str(graph), "--out", str(out), "--fdr", "0.8"]) == 0
        flags = csv.read_csv(out)["flag"].to_pylist()
        assert sum(flags) >= 30
        assert flags == gnnsafe.load(detector).predict(gnnsafe.read_graph(graph), fdr=0.8).tolist()
        assert f"at most 0.8 of those flagged, {0.8 * sum(flags):,.0f}\n" in capsys.readouterr().out

    def test_edges_are_read_as_in_training(self, files, tmp_path):
        directed = block_graph(seed=1)
        directed.edge_index = directed.edge_index[:, directed.edge_index[0] < directed.edge_index[1]]
        graph = write_graph(tmp_path / "graph", directed)
        assert cli.main(["train", str(graph), "--out", str(tmp_path / "d"), "--epochs", "2", "--undirected"]) == 0
        assert cli.main(["score", str(tmp_path / "d"), str(graph), "--out", str(tmp_path / "s.parquet")]) == 0
        scores = gnnsafe.load(tmp_path / "d").score(gnnsafe.read_graph(graph, undirected=True))
        assert parquet.read_table(tmp_path / "s.parquet")["score"].to_pylist() == scores.tolist()

    def test_too_few_calibration_nodes_are_told_on_one_line(self, files, detector, tmp_path, capsys):
        arguments = ["score", str(detector), str(files / "new"), "--out", str(tmp_path / "s.csv")]
        assert cli.main([*arguments, "--false-alarm", "0.01"]) == 0
        out, err = capsys.readouterr()
        assert err == (
            "gnnsafe: 40 calibration nodes are too few to flag any node at false_alarm=0.01: at least 99 are needed\n"
        )
        assert out.startswith("120 nodes, 0 flagged (0.0%)\n")

    def test_a_subset_is_decided_about_alone(self, files, detector, tmp_path, capsys):
        (tmp_path / "ids.txt").write_text("n7\nn3\n\nn5\n")
        arguments = ["score", str(detector), str(files / "new"), "--out", str(tmp_path / "s.csv")]
        assert cli.main([*arguments, "--nodes", str(tmp_path / "ids.txt"), "--fdr", "0.6"]) == 0
        table = csv.read_csv(tmp_path / "s.csv")
        assert table["id"].to_pylist() == ["n3", "n5", "n7"]
        data, mask = gnnsafe.read_graph(files / "new"), torch.zeros(120, dtype=torch.bool)
        mask[[3, 5, 7]] = True
        assert table["flag"].to_pylist() == gnnsafe.load(detector).predict(data, fdr=0.6, mask=mask)[mask].tolist()
        assert capsys.readouterr().out.startswith("3 nodes, ")
        (tmp_path / "ids.txt").write_text("n7\nx\n")
        error = complaint(capsys, *arguments, "--nodes", str(tmp_path / "ids.txt"))
        assert error == (
            "gnnsafe: '--nodes' must hold ids of the graph, one per line (got 'x'); they are such as n0, n1, n2\n"
        )
        (tmp_path / "ids.txt").write_bytes(b"n7\n\xe9\n")
        assert "must be a text in UTF-8" in complaint(capsys, *arguments, "--nodes", str(tmp_path / "ids.txt"))

        for path, reason in ((tmp_path, "Is a directory"), (tmp_path / "none", "No such file or directory")):
            error = complaint(capsys, *arguments, "--nodes", str(path))
            assert error == f"gnnsafe: '--nodes' must be a text file (got '{path}': {reason})\n"

    def test_ids_are_taken_as_they_stand(self, files, detector, tmp_path):
        data = block_graph(seed=1)
        graph = write_graph(tmp_path / "graph", data)
        table = parquet.read_table(graph / "nodes.parquet")
        ids = [" a", "a", "a ", "b\u2028c", *(f"n{number}" for number in range(4, 120))]
        parquet.write_table(table.set_column(0, table.column_names[0], pa.array(ids)), graph / "nodes.parquet")
        numbers = data.edge_index.tolist()
        ends = {name: [ids[number] for number in row] for name, row in zip(("source", "target"), numbers, strict=True)}
        parquet.write_table(pa.table(ends), graph / "edges.parquet")
        (tmp_path / "ids.txt").write_bytes("a \r\n a\r\nb\u2028c\r\n".encode())
        out = tmp_path / "s.parquet"
        arguments = ["score", str(detector), str(graph), "--out", str(out), "--nodes", str(tmp_path / "ids.txt")]
        assert cli.main(arguments) == 0
        assert parquet.read_table(out)["id"].to_pylist() == [" a", "a ", "b\u2028c"]

    @pytest.mark.parametrize("kind", ["exact", "randomized", "extrapolated"])
    def test_kinds_of_p_values(self, files, detector, tmp_path, kind):
        out = tmp_path / "s.parquet"
        arguments = ["score", str(detector), str(files / "new"), "--out", str(out), "--seed", "3"]
        assert cli.main([*arguments, "--p-values", kind]) == 0
        settings = {"exact": {}, "randomized": {"seed": 3}, "extrapolated": {"tail": "extrapolated"}}[kind]
        few = pytest.warns(CalibrationWarning, match="40 calibration nodes are too few to extend a tail from")
        with few if kind == "extrapolated" else nullcontext():
            right = gnnsafe.load(detector).p_values(gnnsafe.read_graph(files / "new"), **settings)
        assert parquet.read_table(out)["p_value"].to_pylist() == right.tolist()

    def test_several_graphs_in_one_call(self, files, detector, tmp_path, capsys):
        graphs = [str(files / "graph"), str(files / "new")]
        assert cli.main(["score", str(detector), *graphs, "--out", str(tmp_path / "tables")]) == 0
        out = capsys.readouterr().out.splitlines()
        assert [line.split(":")[0] for line in out] == [*graphs, "Table", "Table"]
        for name in ("graph", "new"):
            scores = gnnsafe.load(detector).score(gnnsafe.read_graph(files / name))
            assert parquet.read_table(tmp_path / "tables" / f"{name}.parquet")["score"].to_pylist() == scores.tolist()
        error = complaint(capsys, "score", str(detector), graphs[0], graphs[0], "--out", str(tmp_path / "again"))
        assert "'GRAPH' must have names of their own, as their tables do (got graph, graph)" in error

    def test_drift_over_time_is_told(self, detector, tmp_path, capsys):
        data = block_graph(seed=1)
        data.timestamp = torch.arange(120) // 20 + 2015
        data.x[100:] += 2
        record = {"x": data.x, "edge_index": data.edge_index, "timestamp": data.timestamp}
        torch.save(record, tmp_path / "graph.pt")
        assert cli.main(["score", str(detector), str(tmp_path / "graph.pt"), "--out", str(tmp_path / "s.csv")]) == 0
        rows = re.findall(r"^ *(20\d\d) +(20\d\d) +(\d+) +([\d.]+)% +([\d.]+) *$", capsys.readouterr().out, re.M)
        assert [row[:3] for row in rows] == [(str(year), str(year), "20") for year in range(2015, 2021)]
        p = gnnsafe.load(detector).p_values(data)
        assert [float(row[4]) for row in rows] == pytest.approx(p.view(6, 20).mean(dim=1).tolist(), abs=0.006)

    @pytest.mark.parametrize("name", ["nodes.csv", "edges.csv"])
    def test_no_input_is_written_over(self, detector, tmp_path, capsys, name):
        graph = tmp_path / "graph"
        write_graph(graph, block_graph(seed=1))
        for kind in ("nodes", "edges"):
            csv.write_csv(parquet.read_table(graph / f"{kind}.parquet"), graph / f"{kind}.csv")
            (graph / f"{kind}.parquet").unlink()
        before = (graph / name).read_bytes()
        error = complaint(capsys, "score", str(detector), str(graph), "--out", str(graph / name))
        assert "'--out' must be no file that is read" in error
        assert (graph / name).read_bytes() == before

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            (["--out", "s.csv", "--storey"], "'--storey' must be given with --fdr"),
            (["--out", "s.txt"], r"'--out' must end in \.parquet or \.csv \(got 's\.txt'\)"),
            (["--out", "s.csv", "--fdr", "0.1", "--false-alarm", "0.1"], "not allowed with argument"),
            (["--out", "s.csv", "--fdr", "1"], r"--fdr: must lie in \(0, 1\) \(got '1'\)"),
            (["--out", "s.csv", "--fdr", "few"], r"must lie in \(0, 1\) \(got 'few'\)"),
            ([], "required: --out"),
        ],
    )
    def test_mistakes(self, files, detector, tmp_path, capsys, monkeypatch, options, message):
        monkeypatch.chdir(tmp_path)
        assert re.search(message, complaint(capsys, "score", str(detector), str(files / "new"), *options))
        assert not list(tmp_path.iterdir())

    def test_other_features(self, detector, tmp_path, capsys):
        data = block_graph(seed=1)
        arguments = ["--out", str(tmp_path / "s.csv")]
        order = [f"f{i}" for i in range(8)]
        for names, message in (
            (["f1", "f0", *order[2:]], "got another order, 'f1' where 'f0' was"),
            ([*order[:7], "g"], "got no 'f7' and 'g', which it does not know"),
        ):
            graph = write_graph(tmp_path / names[-1] / names[0], data, names=tuple(names))
            error = complaint(capsys, "score", str(detector), str(graph), *arguments)
            assert f"'x' must have the 8 features of the training graph in their order ({message})" in error
        data.x = data.x[:, :5]
        graph = write_graph(tmp_path / "few", data)
        assert "(got no 'f5')" in complaint(capsys, "score", str(detector), str(graph), *arguments)
        torch.save({"x": data.x, "edge_index": data.edge_index}, tmp_path / "few.pt")
        error = complaint(capsys, "score", str(detector), str(tmp_path / "few.pt"), *arguments)
        assert error == "gnnsafe: 'x' must have 8 features (got 5)\n"
        assert not (tmp_path / "s.csv").exists()

    def test_what_is_no_detector(self, files, tmp_path, capsys):
        arguments = [str(files / "new"), "--out", str(tmp_path / "s.csv")]
        assert "must hold a saved detector" in complaint(capsys, "score", str(tmp_path), *arguments)
        (tmp_path / "detector.json").write_text("{")
        assert "damaged" in complaint(capsys, "score", str(tmp_path), *arguments)

    def test_a_detector_that_decides_nothing(self, files, blocks, tmp_path, capsys):
        gnnsafe.Detector(gnnsafe.models.GCN(8, 4, 3)).fit(blocks).save(tmp_path / "d")
        error = complaint(capsys, "score", str(tmp_path / "d"), str(files / "new"), "--out", str(tmp_path / "s.csv"))
        assert "is not calibrated" in error

    def test_a_detector_without_names_or_without_a_model(self, files, blocks, tmp_path):
        out, data = tmp_path / "s.parquet", gnnsafe.read_graph(files / "new")
        torch.manual_seed(0)
        own = gnnsafe.Detector(gnnsafe.models.GCN(8, 4, 3)).fit(blocks).calibrate(blocks, by_class=True)
        own.save(tmp_path / "own")
        assert cli.main(["score", str(tmp_path / "own"), str(files / "new"), "--out", str(out)]) == 0
        table = parquet.read_table(out)
        assert table["predicted"].to_pylist() == own.outputs(data).logits.argmax(dim=1).tolist()
        assert table["p_value"].to_pylist() == own.p_values(data).tolist()
        trivial = gnnsafe.Detector(None, "degree").fit(blocks).calibrate(blocks)
        trivial.save(tmp_path / "trivial")
        assert cli.main(["score", str(tmp_path / "trivial"), str(files / "new"), "--out", str(out)]) == 0
        assert parquet.read_table(out).column_names == ["id", "score", "p_value", "flag"]

    def test_a_run_that_fails_leaves_what_was_there(self, files, detector, tmp_path, capsys, monkeypatch):
        out = tmp_path / "s.parquet"
        out.write_text("before")

        def full(*_: object) -> None:
            raise OSError("No space left on device")

        monkeypatch.setattr(parquet, "write_table", full)
        error = complaint(capsys, "score", str(detector), str(files / "new"), "--out", str(out))
        assert error == "gnnsafe: No space left on device\n"
        assert out.read_text() == "before"
        assert list(tmp_path.iterdir()) == [out]


class TestExplain:
    def test_in_the_users_own_words(self, files, propagated, tmp_path, capsys):
        out = tmp_path / "why.svg"
        capsys.readouterr()  # what made it
        assert cli.main(["explain", str(propagated), str(files / "new"), "--node", "n3", "--out", str(out)]) == 0
        text = capsys.readouterr().out
        assert re.match(r"Node n3 scores -?[\d.]+, above [\d.]+% of 40 calibration nodes", text)
        assert re.search(r"most by nodes? n\d+ \(", text)
        assert re.search(r"Predicted class (red|green|blue) \(", text)
        assert re.search(r"Nearest training classes (red|green|blue) \(", text)
        assert text.endswith(f"Picture: {out}\n")
        assert ">n3<" in out.read_text(encoding="utf-8")

    def test_without_a_picture(self, files, propagated, capsys):
        assert cli.main(["explain", str(propagated), str(files / "new"), "--node", "n0"]) == 0
        text = capsys.readouterr().out
        data = gnnsafe.read_graph(files / "new")
        why = gnnsafe.load(propagated).explain(data, node=0)
        assert text == f"{why}\n"
        record = json.loads(json.dumps(why.to_dict()))
        assert record["class_names"] == ["blue", "green", "red"]
        assert record["node_ids"] == {str(s.node): f"n{s.node}" for s in sorted(why.shares)}
        chart = why.chart().to_dict()
        assert {row["name"] for row in chart["datasets"][chart["layer"][2]["data"]["name"]]} >= {"n0"}

    def test_mistakes(self, files, detector, tmp_path, capsys):
        arguments = ["explain", str(detector), str(files / "new"), "--node"]
        assert complaint(capsys, *arguments, "17") == (
            "gnnsafe: '--node' must be the id of a node of the graph (got '17'); its ids are such as n0, n1, n2\n"
        )
        error = complaint(capsys, *arguments, "n3", "--out", str(tmp_path / "why.gif"))
        assert "'--out' must end in .png, .svg, .html" in error
        assert not list(tmp_path.iterdir())


class TestRefit:
    def test_another_method_on_the_same_model_and_split(self, tmp_path, capsys):
        graph = write_graph(tmp_path / "graph", block_graph(), split=False)
        assert cli.main(["train", str(graph), "--out", str(tmp_path / "d"), "--epochs", "5", "--seed", "4"]) == 0
        first = gnnsafe.load(tmp_path / "d")
        data = gnnsafe.read_graph(graph)
        for method in ("energy", "consensus"):
            capsys.readouterr()
            arguments = ["refit", str(tmp_path / "d"), str(graph), "--method", method, "--out", str(tmp_path / method)]
            assert cli.main(arguments) == 0
            out = capsys.readouterr().out
            other = gnnsafe.load(tmp_path / method)
            assert torch.equal(other.outputs(data).logits, first.outputs(data).logits)
            assert torch.equal(other.used_.masks["train_mask"], first.used_.masks["train_mask"])
            assert other.class_names_ == first.class_names_
            assert other.notes["epochs"] == 5
            assert f"calibrated on 24 {'test' if method == 'consensus' else 'validation'} nodes" in out
        energy = gnnsafe.load(tmp_path / "energy")
        right = gnnsafe.energy(first.outputs(data).logits)
        assert torch.allclose(energy.score(data), right)
        # the kept split checks it later, though the files hold none
        check = energy.check_calibration(data)
        assert (check.nodes, check.calibration_nodes) == (24, 24)
        assert "24 held-out ID nodes against 24 calibration nodes" in str(check)

    def test_the_default_where_no_method_is_named(self, files, propagated, detector, tmp_path):
        assert cli.main(["refit", str(propagated), str(files / "graph"), "--out", str(tmp_path)]) == 0
        again, data = gnnsafe.load(tmp_path), gnnsafe.read_graph(files / "new")
        assert again.method == TwoScale()
        assert torch.equal(again.p_values(data), gnnsafe.load(detector).p_values(data))

    def test_mistakes(self, files, detector, tmp_path, capsys):
        arguments = ["--method", "energy", "--out", str(tmp_path / "other")]
        assert "'label' must be given to fit" in complaint(
            capsys, "refit", str(detector), str(files / "new"), *arguments
        )
        graph = write_graph(tmp_path / "graph", block_graph(seed=3), split=False)
        error = complaint(capsys, "refit", str(detector), str(graph), *arguments)
        assert "'split' must be given for another graph than the one trained on (got none)" in error
        assert not (tmp_path / "other").exists()


class TestInspect:
    def test_what_is_in_the_folder(self, detector, capsys):
        assert cli.main(["inspect", str(detector)]) == 0
        lines = dict(re.split(r"  +", line, maxsplit=1) for line in capsys.readouterr().out.splitlines())
        assert lines["method"] == repr(TwoScale())
        assert lines["model"].startswith("GCN(in_channels=8, hidden_channels=64, out_channels=3, num_layers=2")
        assert lines["features"] == "8: f0, f1, f2, f3, f4, f5, f6, f7"
        assert lines["classes"] == "3: blue, green, red"
        thresholds = gnnsafe.load(detector).calibration_.thresholds(0.05)
        assert lines["calibration"].startswith("40 nodes; flagged above ")
        assert f"above {float(thresholds):.4g} at 5%" in lines["calibration"]
        assert lines["calibration"].endswith(", by own evidence, which is not the score")
        assert "at 1%" not in lines["calibration"]  # too few nodes for it
        assert (lines["nodes"], lines["epochs"], lines["seed"]) == ("120", "30", "0")
        for name in ("accuracy", "balanced accuracy", "majority class"):
            assert re.fullmatch(r"train [\d.]+%, val [\d.]+%, test [\d.]+%", lines[name])
        assert lines["scaling"] == "columns standardised by the training nodes' mean and standard deviation"
        assert lines["saved by"] == f"gnnsafe {gnnsafe.__version__}, format {FORMAT}"
        assert "exposure" not in lines

    def test_somebody_elses_model_is_not_asked_for(self, blocks, tmp_path, capsys):
        model = torch.nn.Linear(8, 3)
        own = gnnsafe.Detector(model, "msp", forward=lambda model, data: model(data.x)).fit(blocks)
        own.save(tmp_path)
        assert cli.main(["inspect", str(tmp_path)]) == 0
        out = capsys.readouterr().out
        assert "Linear, not in this folder: gnnsafe.load(folder, model)" in out
        assert "none: it gives scores, and decides nothing" in out
        (tmp_path / "detector.json").write_text(json.dumps({"format": FORMAT + 1}))
        assert f"must hold a detector of format {FORMAT} (got format {FORMAT + 1}" in complaint(
            capsys, "inspect", str(tmp_path)
        )


class TestFitting:
    def test_classes_are_those_of_training_nodes(self):
        data = block_graph()
        data.y = 10 * data.y + 5  # 5, 15, 25
        data.y[data.val_mask.nonzero()[0]] = 99
        data.y[0] = -1
        data.train_mask[0] = False
        known = known_classes(data, 0)
        assert known.class_names == [5, 15, 25]
        assert known.y.tolist() == [{5: 0, 15: 1, 25: 2}.get(y, -1) for y in data.y.tolist()]
        assert int(known.val_mask.sum()) == int(data.val_mask.sum()) - 1
        assert 99 in data.y  # the graph given is left alone

    def test_one_class_is_none(self):
        data = block_graph()
        data.y = torch.zeros_like(data.y)
        with pytest.raises(
            ValueError, match=r"'label' must name at least two classes of training nodes \(got 1 of them"
        ):
            fit_detector(data)

    def test_a_method_that_learns_from_validation_nodes_is_calibrated_on_others(self, blocks):
        fitted = fit_detector(blocks, method="consensus", epochs=2)
        assert fitted.calibrated_on == "test_mask"
        assert fitted.check is None
        assert len(fitted.detector.calibration_.scores) == 50

    def test_the_split_is_drawn_from_labelled_nodes_by_the_seed(self):
        data = block_graph()
        del data.train_mask, data.val_mask, data.test_mask
        data.y[:20] = -1
        first, again, other = known_classes(data, 0), known_classes(data, 0), known_classes(data, 1)
        masks = torch.stack([first.train_mask, first.val_mask, first.test_mask])
        assert masks.sum(dim=1).tolist() == [60, 20, 20]
        assert masks.sum(dim=0).tolist() == [0] * 20 + [1] * 100
        assert torch.equal(first.train_mask, again.train_mask)
        assert not torch.equal(first.train_mask, other.train_mask)
        assert "train_mask" not in data

    def test_every_epoch_is_told(self, blocks):
        told = []
        fitted = fit_detector(blocks, epochs=3, each_epoch=lambda history: told.append(len(history.loss)))
        assert told == [1, 2, 3]
        assert fitted.rates["train"].accuracy == pytest.approx(
            float((fitted.detector.outputs(blocks).logits.argmax(dim=1) == blocks.y)[blocks.train_mask].float().mean())
        )


def test_names_must_be_as_many_as_there_are(blocks):
    blocks.class_names = ["a", "b"]
    with pytest.raises(ValueError, match=r"'class_names' must have 3 names \(got 2\); correct data.class_names"):
        gnnsafe.Detector(gnnsafe.models.GCN(8, 4, 3)).fit(blocks)


@pytest.mark.parametrize(
    "arguments",
    [
        ("score", "d", "", "--out", "s.csv"), ("score", "", "g", "--out", "s.csv"), ("score", "d", "g", "--out", ""),
        ("score", "d", "g", "--out", "s.csv", "--nodes", ""), ("score", "d", "g", "--out", "s.csv", "--edges", ""),
        ("train", "", "--out", "d"), ("train", "g", "--out", ""), ("train", "g", "--out", "d", "--exposure", ""),
        ("check", "", "g"), ("check", "d", ""), ("diagnose", "d", ""), ("inspect", ""),
        ("explain", "d", "", "--node", "1"), ("explain", "d", "g", "--node", "1", "--out", ""),
        ("refit", "d", "", "--method", "msp", "--out", "o"), ("refit", "d", "g", "--method", "msp", "--out", ""),
        ("datasets", ""), ("datasets", "--data", ""), ("demo", "--out", ""), ("report", ""), ("bench", "--plan", ""),
    ],
)  # fmt: skip
def test_an_empty_path(arguments, capsys):
    assert "must be a path (got '')" in complaint(capsys, *arguments)
