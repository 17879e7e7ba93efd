from __future__ import annotations

import json
import os
import pickle
import re
import shutil
import subprocess
import sys
import warnings
from dataclasses import dataclass, replace
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import torch
from pyarrow import parquet
from tests import their_package
from tests.conftest import block_graph
from tests.second_device import other_devices
from tests.test_cli_own import write_graph
from tests.their_package import Distance, OneHop, Smoothed

import gnnsafe
from gnnsafe import Detector, cli
from gnnsafe.bench.plan import Plan
from gnnsafe.bench.recipes import backbones
from gnnsafe.bench.store import read
from gnnsafe.bench.study import tasks
from gnnsafe.datasets import load_benchmark
from gnnsafe.errors import InputError, RegistrationWarning, SavedFileError, UnknownNameError
from gnnsafe.methods import METHODS, MSP, Method, Propagated
from gnnsafe.methods.base import fitted
from gnnsafe.models import MODELS, Model
from gnnsafe.training import OBJECTIVES, Objective

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.usefixtures("registries")


def register_theirs() -> None:
    METHODS.register("distance")(Distance)
    MODELS.register("one-hop")(OneHop)
    OBJECTIVES.register("smoothed")(Smoothed)


def by_hand(data, train_mask) -> torch.Tensor:
    return 2 * (data.x - data.x[train_mask].mean(dim=0)).norm(dim=1)


def went_through(folder: Path) -> dict[str, object]:
    """What came of a method, a model and an objective of somebody's in the files, the CLI and the bench."""
    data = block_graph()
    graph, detector = str(write_graph(folder / "graph", data)), str(folder / "detector")
    settings = ["--method", "distance", "--backbone", "one-hop", "--epochs", "3", "--scale", "none"]
    codes = [cli.main(["train", graph, "--out", detector, *settings])]
    codes.append(cli.main(["score", detector, graph, "--out", str(folder / "scores.parquet")]))
    bench = ["--datasets", "synthetic", "--shifts", "label", "--epochs", "2", "--seeds", "1", "--jobs", "1"]
    named = ["--methods", "distance", "--backbones", "one-hop", "--protocol", "rigorous"]
    codes.append(cli.main(["bench", *bench, *named, "--out", str(folder / "results")]))
    codes.append(cli.main(["methods"]))
    loaded = gnnsafe.load(detector)
    (record,) = read(folder / "results")[0]
    return {
        "codes": codes,
        "loaded": [repr(loaded.method), repr(loaded.classifier.model.arguments), loaded.notes["objective"]],
        "same": torch.equal(loaded.score(data), by_hand(data, data.train_mask)),
        "scores": parquet.read_table(folder / "scores.parquet")["score"].to_pylist(),
        "record": [record.method, record.model, record.objective_repr, bool(record.code)],
        "auroc": record.metrics["auroc"],
    }


def check_values(found: dict[str, object]) -> None:
    data = block_graph()
    assert found["codes"] == [0, 0, 0, 0]
    arguments = "{'in_channels': 8, 'hidden_channels': 64, 'out_channels': 3, 'scale': 0.5}"
    assert found["loaded"] == ["Distance(factor=2.0)", arguments, "Smoothed(smoothing=0.1)"]
    assert found["same"]
    assert found["scores"] == by_hand(data, data.train_mask).tolist()
    options = {"test_nodes": "id-test", "split": "random", "head": "id"}
    benchmark = load_benchmark("synthetic", shift="label", seed=0, **options)
    ((ood),) = benchmark.ood.values()
    inside = by_hand(benchmark.id, benchmark.id.train_mask)
    outside = 2 * (ood.x - benchmark.id.x[benchmark.id.train_mask].mean(dim=0)).norm(dim=1)[ood.mask]
    expected = gnnsafe.metrics.detection(inside[benchmark.id.test_mask], outside).auroc
    assert found["auroc"] == pytest.approx(expected, abs=1e-12)
    sizes = (benchmark.id.num_features, 64, benchmark.num_classes)
    assert found["record"] == ["Distance", f"OneHop{sizes}", "Smoothed(smoothing=0.1)", True]


def test_what_is_registered_by_the_decorator_works_like_ours(tmp_path, capsys):
    register_theirs()
    check_values(went_through(tmp_path))
    out = capsys.readouterr().out
    assert "one-hop trained by Smoothed(smoothing=0.1), 3 epochs" in out
    assert re.search(r"^distance +post-hoc +fitting +Distance from", out, re.M)
    assert next(iter(METHODS)) == "msp"
    assert [list(table)[-1] for table in (METHODS, MODELS, OBJECTIVES)] == ["distance", "one-hop", "smoothed"]


ENTRY_POINTS = """
[gnnsafe.methods]
distance = their_package:Distance
[gnnsafe.models]
one-hop = their_package:OneHop
[gnnsafe.objectives]
smoothed = their_package:Smoothed
"""
BROKEN = """
[gnnsafe.methods]
broken = nowhere_to_be_had:Method
msp = their_package:Distance
exits = exiting:Distance
[gnnsafe.models]
no-model = their_package:Distance
"""


def install(folder: Path, package: str, entry_points: str) -> None:
    """What an installer writes for a package beside its modules."""
    info = folder / f"{package}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(entry_points)


def in_a_new_process(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ, "PYTHONPATH": os.pathsep.join([str(Path(gnnsafe.__file__).parents[1]), str(folder), str(ROOT)])
    }  # fmt: skip
    command = [sys.executable, "-W", "ignore", "-c", code]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200, cwd=folder)


def test_what_an_installed_package_announces_works_like_ours(tmp_path):
    shutil.copy(their_package.__file__, tmp_path / "their_package.py")
    (tmp_path / "exiting.py").write_text("raise SystemExit(3)")
    install(tmp_path, "their-detectors", ENTRY_POINTS)
    install(tmp_path, "broken-detectors", BROKEN)
    code = (
        "import json, sys, gnnsafe\n"
        "from pathlib import Path\n"
        "import gnnsafe.methods, gnnsafe.training\n"
        "gnnsafe.methods.METHODS['msp'], gnnsafe.models.MODELS.get('nobodys')\n"
        "assert 'their_package' not in sys.modules\n"  # what nobody asks for is not imported
        "gnnsafe.methods.METHODS['distance']\n"
        "assert 'exiting' not in sys.modules\n"
        "from tests.test_registry import went_through\n"
        "print(json.dumps(went_through(Path('out'))))"
    )
    done = in_a_new_process(code, tmp_path)
    assert done.returncode == 0, done.stderr
    check_values(json.loads(done.stdout.splitlines()[-1]))
    said = sorted({line for line in done.stderr.splitlines() if "announces" in line})
    lead = "gnnsafe: the package 'broken-detectors' announces the"
    assert said == [
        f"{lead} method 'broken' (nowhere_to_be_had:Method), which is left out (ModuleNotFoundError: No module named "
        "'nowhere_to_be_had'); update or remove 'broken-detectors'",
        f"{lead} method 'exits' (exiting:Distance), which is left out (SystemExit: 3); update or remove "
        "'broken-detectors'",
        f"{lead} method 'msp' (their_package:Distance), which is left out (InputError: 'name' must be free (got 'msp', "
        "which is gnnsafe.methods.msp.MSP)); update or remove 'broken-detectors'",
        f"{lead} model 'no-model' (their_package:Distance), which is left out (InputError: 'model' must be a class "
        "derived from Model (got <class 'their_package.Distance'>)); update or remove 'broken-detectors'",
    ]
    assert "Traceback" not in done.stderr


class TestSaved:
    def test_comes_back_to_the_last_bit_with_all_that_is_within(self, blocks, tmp_path):
        register_theirs()
        torch.manual_seed(0)
        model = OneHop(8, 4, 3, scale=0.25)
        detector = Detector(model, Propagated(Distance(factor=3.0))).fit(blocks).calibrate(blocks)
        detector.save(tmp_path)
        before = torch.get_rng_state()
        again = gnnsafe.load(tmp_path)
        assert torch.equal(torch.get_rng_state(), before)
        assert again.classifier.model.arguments["scale"] == 0.25
        assert torch.equal(again.outputs(blocks).logits, detector.outputs(blocks).logits)
        assert torch.equal(again.p_values(blocks), detector.p_values(blocks))
        assert torch.equal(again.method.method.mean_, blocks.x[blocks.train_mask].mean(dim=0))

    def test_the_receptive_field_of_a_registered_model_is_known(self, blocks):
        register_theirs()
        detector = Detector(OneHop(8, 4, 3), "msp").fit(blocks)
        found = detector.score_new(blocks, [3], touched=False)
        assert found.scores.tolist() == pytest.approx([float(detector.score(blocks)[3])], abs=1e-6)

    @other_devices
    def test_it_goes_to_another_device(self, device, blocks, tmp_path):
        """With its buffers that are in no file, and with what the method learnt; each edge is read both ways there."""
        register_theirs()
        torch.manual_seed(0)
        detector = Detector(OneHop(8, 4, 3, scale=0.25), "distance", undirected=True).fit(blocks)
        detector.save(tmp_path)
        again = gnnsafe.load(tmp_path, device=device)
        outputs = again.outputs(block_graph().to(device))
        torch.testing.assert_close(outputs.logits.cpu(), detector.outputs(blocks).logits)
        scores = again.method.score(outputs)
        assert scores.device.type == device
        torch.testing.assert_close(scores.cpu(), by_hand(blocks, blocks.train_mask))

    def test_what_is_registered_no_longer_is_named(self, blocks, tmp_path, monkeypatch):
        register_theirs()
        Detector(OneHop(8, 4, 3), "distance").fit(blocks).save(tmp_path)
        monkeypatch.delitem(MODELS._classes, "one-hop")
        with pytest.raises(SavedFileError, match=r"^'model' must be a registered one \(got 'one-hop', a OneHop\); imp"):
            gnnsafe.load(tmp_path)
        monkeypatch.delitem(METHODS._classes, "distance")
        with pytest.raises(SavedFileError, match=r"^'method' must be a registered method \(got 'distance'\); import"):
            gnnsafe.load(tmp_path)

    def test_what_it_learns_is_in_its_fields(self, blocks, tmp_path):
        @METHODS.register("forgetful")
        @dataclass
        class Forgetful(MSP):
            def fit(self, outputs, y, mask):
                self.mean = 1.0
                return self

        with pytest.raises(InputError, match=r"'Forgetful' must hold what it learns in fields.*\(got mean, which is"):
            Detector(OneHop(8, 4, 3), "forgetful").fit(blocks).save(tmp_path / "d")

    def test_what_no_file_can_hold_is_refused(self, blocks, tmp_path):
        @METHODS.register("odd")
        @dataclass
        class Odd(MSP):
            names_: set[str] = fitted()

            def fit(self, outputs, y, mask):
                self.names_ = {"a"}
                return self

        with pytest.raises(InputError, match=r"'method.names_' must be a tensor, a number, .* \(got set\)"):
            Detector(OneHop(8, 4, 3), "odd").fit(blocks).save(tmp_path / "d")


class Argumented(Model):
    def __init__(self, in_channels: int, hidden_channels: int, num_layers: int, out_channels: int = 2) -> None: ...


class Undeclared(Model):
    def __init__(self, in_channels: int, hidden_channels: int, out_channels: int, scale=1.0) -> None: ...


class Collecting(Model):
    def __init__(self, in_channels: int, hidden_channels: int, out_channels: int, **options: float) -> None: ...


@dataclass
class Needy(MSP):
    k: int = fitted()

    def __init__(self, k: int) -> None: ...


@dataclass
class Thawed(Objective):
    def loss(self, outputs, exposure=None, *, epoch=0): ...


class Plain(Method):
    def base_scores(self, outputs): ...


@pytest.mark.parametrize(
    ("table", "name", "kind", "message"),
    [
        (METHODS, "msp", Distance, r"'name' must be free \(got 'msp', which is gnnsafe.methods.msp.MSP\)"),
        (METHODS, "My Method", Distance, r"'name' must be lower-case words joined by hyphens, .* \(got 'My Method'\)"),
        (METHODS, Distance, Distance, r"'name' must be lower-case words"),
        (METHODS, "own", OneHop, r"'method' must be a class derived from Method \(got <class .*OneHop'>\)"),
        (METHODS, "own", MSP(), r"'method' must be a class derived from Method"),
        (METHODS, "own", Method, r"'method' must define .* \(got Method, which does not\)"),
        (METHODS, "own", Plain, r"'Plain' must be a dataclass \(got another class\); put @dataclass between"),
        (METHODS, "own", Needy, r"'Needy' must be made without arguments too \(got TypeError: .*'k'\)"),
        (MODELS, "own", Argumented, r"'model' must have a constructor .*\(got Argumented: missing a required argument"),
        (MODELS, "own", Undeclared, r"'model' must declare each argument and its type \(got 'scale=1.0' of Undeclared"),
        (MODELS, "own", Collecting, r"'model' must declare each argument and its type \(got '\*\*options: "),
        (MODELS, "own", torch.nn.Linear, r"'model' must be a class derived from Model"),
        (OBJECTIVES, "own", Thawed, r"'Thawed' must be a frozen dataclass"),
    ],
)
def test_what_could_not_be_used_is_refused_in_one_line(table, name, kind, message):
    with pytest.raises(InputError, match=message) as error:
        table.register(name)(kind)
    assert "\n" not in str(error.value)
    assert "own" not in table


def test_a_method_of_somebodys_has_none_of_our_models_for_itself():
    @METHODS.register("gcn-reader")
    @dataclass
    class GCNReader(MSP):
        model = "gcn"

    @METHODS.register("one-hop-reader")
    @dataclass
    class OneHopReader(MSP):
        model = "one-hop"

    MODELS.register("one-hop")(OneHop)
    assert "gcn" in backbones()
    assert not {"one-hop", "gpn", "ensemble"} & {*backbones()}


def test_a_class_defined_again_takes_its_own_place():
    def cell():
        @METHODS.register("mine")
        @dataclass
        class Mine(MSP):
            """As in a notebook."""

        return Mine

    first, second = cell(), cell()
    assert first is not second
    assert METHODS["mine"] is second
    assert (METHODS.name_of(second), METHODS.name_of(first), METHODS.name_of(torch.nn.Linear)) == ("mine", None, None)


def test_a_broken_package_costs_only_its_own_names(monkeypatch):
    entry = EntryPoint("broken", "nowhere_to_be_had:Broken", "gnnsafe.methods")
    monkeypatch.setattr(METHODS, "_announced", {entry: None})
    monkeypatch.setattr(METHODS, "_failed", {})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert METHODS["msp"] is MSP
    with pytest.warns(RegistrationWarning, match="announces the method 'broken' .*ModuleNotFoundError: No module"):
        names = list(METHODS)
    assert (names[0], "broken" in names) == ("msp", False)
    assert list(METHODS) == names  # it is told once, and whenever it is asked for
    with pytest.warns(RegistrationWarning, match="announces the method 'broken'"):
        assert "broken" not in METHODS
    with pytest.raises(UnknownNameError):
        Detector(None, "broken")


OWN_FILE = """
import torch
from dataclasses import dataclass, replace
from gnnsafe.methods import METHODS, MSP
from gnnsafe.models import MODELS, GCN

@METHODS.register("half-msp")
@dataclass
class HalfMSP(MSP):
    pass

@MODELS.register("wide")
class Wide(GCN):
    pass
"""


def test_a_file_of_ones_own_may_register_what_workers_need(tmp_path, monkeypatch):
    """Methods of ours on a model of the file's: a worker gets the model's class, so the file is imported there."""
    monkeypatch.setattr(sys, "path", sys.path[:])
    (tmp_path / "wide_own.py").write_text(OWN_FILE)
    bench = ["bench", "--datasets", "synthetic", "--shifts", "label", "--epochs", "1", "--seeds", "1", "--jobs", "1"]
    file = str(tmp_path / "wide_own.py")
    assert cli.main([*bench, "--methods", f"msp,{file}", "--backbones", "wide", "--out", str(tmp_path / "out")]) == 0
    records, _ = read(tmp_path / "out")
    assert {(record.method, record.error) for record in records} == {("MSP", ""), ("HalfMSP", ""), ("HalfMSP K=2", "")}
    assert {record.model.split("(")[0] for record in records} == {"Wide"}
    assert all(record.code for record in records)
    plan = Plan(("synthetic",), ("label",), ("msp", file), ("wide",), seeds=1)
    (task,) = tasks(plan.cells(), root=None, version="", folder=tmp_path)
    task = pickle.dumps(replace(task, recipes=[recipe for recipe in task.recipes if recipe.name == "MSP"]))
    del sys.modules["wide_own"], MODELS._classes["wide"], METHODS._classes["half-msp"]  # as a new process is
    assert pickle.loads(task).models == (MODELS["wide"],)
    del sys.modules["wide_own"]
