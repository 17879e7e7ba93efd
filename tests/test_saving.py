from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric.nn import GraphSAGE

import gnnsafe
from gnnsafe import Detector
from gnnsafe.errors import InputError, NotFittedError, SavedFileError
from gnnsafe.methods import KNN, METHODS, MSP, Consensus, Degree, GNNSafe, Propagated
from gnnsafe.models import MODELS
from gnnsafe.saving import FORMAT

EVERY = {
    **{name: method() for name, method in METHODS.items()},
    "nested": Propagated(Consensus((Propagated(KNN(k=3), steps=1), METHODS["grasp"](), MSP()))),
}


@pytest.fixture
def model() -> nn.Module:
    torch.manual_seed(0)
    return gnnsafe.models.GCN(8, 16, 3)


@pytest.fixture
def saved(model, blocks, tmp_path) -> Path:
    Detector(model, "gnnsafe").fit(blocks).calibrate(blocks).save(tmp_path / "detector")
    return tmp_path / "detector"


@pytest.mark.parametrize("name", EVERY)
def test_every_method_comes_back_to_the_last_bit(name, model, blocks, tmp_path):
    mask = blocks.test_mask
    detector = Detector(model, EVERY[name]).fit(blocks).calibrate(blocks, mask=mask)
    detector.save(tmp_path)
    again = gnnsafe.load(tmp_path, model)
    assert again.method == detector.method
    del blocks.train_mask, blocks.val_mask  # a new graph
    blocks.x = blocks.x + 0.1
    assert torch.equal(again.score(blocks), detector.score(blocks))
    assert torch.equal(again.p_values(blocks), detector.p_values(blocks))


def test_nothing_is_saved_that_could_not_be_loaded(model, blocks, tmp_path):
    with pytest.raises(InputError, match=r"'method.k' must be at most 10000 \(got 50000\)"):
        Detector(model, KNN(k=50_000)).fit(blocks).save(tmp_path / "detector")
    assert not (tmp_path / "detector").exists()


def test_every_method_is_saved_with_all_that_it_learnt(model, blocks, tmp_path):
    for name, method in EVERY.items():
        detector = Detector(model, method).fit(blocks)
        detector.save(tmp_path)
        learnt = {key for key in vars(detector.method) if key.endswith("_")}
        assert {key for key in vars(gnnsafe.load(tmp_path, model).method) if key.endswith("_")} == learnt, name


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_models_of_ours_come_out_of_the_folder(name, dtype, blocks, tmp_path):
    torch.manual_seed(0)
    own = {"mixhop": {"hops": 3}, "gat": {"heads": 3}, "appnp": {"steps": 3}, "gpn": {"latent_channels": 5}}
    model = MODELS[name](8, 6, 3, **own.get(name, {"num_layers": 3, "dropout": 0.25})).to(dtype)
    blocks.x = blocks.x.to(dtype)
    model.train()(blocks.x, blocks.edge_index)  # BatchNorm's statistics are a part of it
    detector = Detector(model, "entropy" if name == "ensemble" else None).fit(blocks)  # it gives log-probabilities
    detector.save(tmp_path)
    before = torch.get_rng_state()
    again = gnnsafe.load(tmp_path)
    assert torch.equal(torch.get_rng_state(), before)
    assert type(again.classifier.model) is type(model)
    assert again.classifier.model.arguments == model.arguments
    assert not again.classifier.model.training
    assert next(again.classifier.model.parameters()).requires_grad
    assert torch.equal(again.score(blocks), detector.score(blocks))


def test_another_process_gives_the_same_bits(blocks, tmp_path):
    torch.manual_seed(0)
    model = GraphSAGE(8, 16, num_layers=2, out_channels=3)
    detector = Detector(model, "mahalanobis", embedding="convs.0").fit(blocks).calibrate(blocks)
    detector.save(tmp_path / "detector")
    torch.save(model.state_dict(), tmp_path / "model.pt")
    np.savez(tmp_path / "graph.npz", x=blocks.x.numpy(), edge_index=blocks.edge_index.numpy())
    code = """
import sys, numpy as np, torch, gnnsafe
from types import SimpleNamespace
from torch_geometric.nn import GraphSAGE
model = GraphSAGE(8, 16, num_layers=2, out_channels=3)
model.load_state_dict(torch.load("model.pt"))
graph = SimpleNamespace(**{name: torch.from_numpy(value) for name, value in np.load("graph.npz").items()})
detector = gnnsafe.load("detector", model)
np.save("scores.npy", detector.score(graph).numpy())
np.save("p.npy", detector.p_values(graph).numpy())
"""
    source = str(Path(gnnsafe.__file__).parents[1])
    subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, check=True, env={**os.environ, "PYTHONPATH": source}, timeout=120
    )
    assert np.load(tmp_path / "scores.npy").tobytes() == detector.score(blocks).numpy().tobytes()
    assert np.load(tmp_path / "p.npy").tobytes() == detector.p_values(blocks).numpy().tobytes()


def test_nothing_in_the_folder_is_a_pickle(saved):
    files = sorted(path.name for path in saved.iterdir())
    assert files[0] == "detector.json"
    assert len(files) == 2
    assert files[1].startswith("tensors-")
    assert files[1].endswith(".safetensors")
    record = json.loads((saved / "detector.json").read_text())
    assert record["format"] == FORMAT
    assert record["method"] == {"is": "gnnsafe", "steps": 2, "alpha": 0.5, "temperature": 1.0, "isolated": "keep"}


def test_a_detector_without_a_model_by_class_and_multilabel(model, blocks, tmp_path):
    trivial = Detector(None, Degree()).fit(blocks)
    trivial.calibrate(blocks).save(tmp_path / "a")
    assert torch.equal(gnnsafe.load(tmp_path / "a").p_values(blocks), trivial.p_values(blocks))
    by_class = Detector(model).fit(blocks).calibrate(blocks, by_class=True)
    by_class.save(tmp_path / "b")
    assert torch.equal(gnnsafe.load(tmp_path / "b").p_values(blocks), by_class.p_values(blocks))
    blocks.y = nn.functional.one_hot(blocks.y)
    multilabel = Detector(model, "msp", task="multilabel").fit(blocks)
    multilabel.save(tmp_path / "c")
    assert torch.equal(gnnsafe.load(tmp_path / "c").score(blocks), multilabel.score(blocks))


def test_a_forward_is_given_again(blocks, tmp_path):
    def forward(model, data):
        return model(2 * data.x)

    model = nn.Linear(8, 3)
    detector = Detector(model, forward=forward).fit(blocks)
    detector.save(tmp_path)
    with pytest.raises(ValueError, match=r"'forward' must be given again, as the detector was saved with one"):
        gnnsafe.load(tmp_path, model)
    assert torch.equal(gnnsafe.load(tmp_path, model, forward=forward).score(blocks), detector.score(blocks))


def test_a_model_of_ours_is_called_by_a_users_forward(model, blocks, tmp_path):
    """Which may read of a graph what nobody else knows of."""

    def forward(model, data):
        return model(data.x * data.scale, data.edge_index)

    blocks.scale = torch.tensor(2.0)
    detector = Detector(model, "energy", forward=forward).fit(blocks).calibrate(blocks)
    detector.save(tmp_path)
    for given in (model, None):
        assert torch.equal(gnnsafe.load(tmp_path, given, forward=forward).score(blocks), detector.score(blocks))


class Weighted(gnnsafe.models.GCN):
    def forward(self, x, edge_index, edge_weight, edge_attr):
        return super().forward(x, edge_index) + edge_weight.mean() + edge_attr.sum()


@pytest.mark.filterwarnings("ignore:.*is passed on:gnnsafe.errors.ModelWarning")
def test_models_that_take_more_of_a_graph(model, blocks, tmp_path):
    """A class of one's own, and a model of ours whose forward was replaced."""

    def forward(x, edge_index, edge_weight=None, edge_attr=None):
        return original(x, edge_index) + edge_weight.mean() + edge_attr.sum()

    original, model.forward = model.forward, forward
    blocks.edge_weight, blocks.edge_attr = torch.rand(2, blocks.num_edges)
    for taking in (model, Weighted(8, 16, 3)):
        detector = Detector(taking, "energy").fit(blocks).calibrate(blocks)
        detector.save(tmp_path)
        assert torch.equal(gnnsafe.load(tmp_path, taking).score(blocks), detector.score(blocks))


def test_saved_again_leaves_files_of_others_alone(model, saved, blocks):
    (saved / "notes.txt").write_text("mine")
    Detector(model, "knn").fit(blocks).save(saved)
    assert len(list(saved.glob("tensors-*"))) == 1
    assert (saved / "notes.txt").read_text() == "mine"
    assert gnnsafe.load(saved).method == KNN()
    assert gnnsafe.load(saved).calibration_ is None


def test_links_in_the_folder_are_replaced_and_not_written_through(model, saved, blocks, tmp_path):
    """Such as those of a versioned store, or planted ones."""
    detector = Detector(model, "energy").fit(blocks)
    for path in list(saved.iterdir()):
        path.rename(tmp_path / f"stored-{path.name}")
        path.symlink_to(tmp_path / f"stored-{path.name}")
    stored = {path: path.read_bytes() for path in tmp_path.glob("stored-*")}
    detector.save(saved)
    assert len(stored) == 2
    assert stored == {path: path.read_bytes() for path in stored}
    assert not any(path.is_symlink() for path in saved.iterdir())
    assert torch.equal(gnnsafe.load(saved).score(blocks), detector.score(blocks))


def test_a_save_that_fails_leaves_what_was_there(model, saved, blocks, monkeypatch):
    def full(self, *_, **__):
        raise OSError("No space left on device")

    before = {path.name for path in saved.iterdir()}
    detector = Detector(model, "knn").fit(blocks)
    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(OSError, match="No space"):
        detector.save(saved)
    monkeypatch.undo()
    assert gnnsafe.load(saved).method == GNNSafe()
    assert {path.name for path in saved.iterdir()} == before


def one_line(call, message):
    with pytest.raises(SavedFileError, match=message) as error:
        call()
    assert "\n" not in str(error.value)


class TestRefused:
    def test_no_detector(self, tmp_path):
        one_line(
            lambda: gnnsafe.load(tmp_path), r"'folder' must hold a saved detector, detector.json \(got '.*', which"
        )
        (tmp_path / "file").write_text("")
        one_line(lambda: gnnsafe.load(tmp_path / "file"), "'folder' must hold a saved detector")

    def test_another_class(self, saved):
        message = r"'model' must be the GCN that the detector was saved with \(got a MLP\)"
        one_line(lambda: gnnsafe.load(saved, gnnsafe.models.MLP(8, 16, 3)), message)

    def test_another_shape(self, saved):
        one_line(
            lambda: gnnsafe.load(saved, gnnsafe.models.GCN(8, 17, 3)),
            r"GCN .*\(got one whose norms.0.bias is torch.float32 \[17\], not torch.float32 \[16\]\)",
        )
        deeper = gnnsafe.models.GCN(8, 16, 3, num_layers=3)
        one_line(lambda: gnnsafe.load(saved, deeper), r"one whose norms.1.bias is torch.float32 \[16\], not none")

    def test_other_arguments(self, blocks, tmp_path):
        torch.manual_seed(0)
        model = gnnsafe.models.APPNP(8, 16, 3, steps=5)
        Detector(model).fit(blocks).save(tmp_path)
        other = gnnsafe.models.APPNP(8, 16, 3, steps=4)
        other.load_state_dict(model.state_dict())
        one_line(lambda: gnnsafe.load(tmp_path, other), r"got one whose steps is 4, not 5")

    def test_other_weights(self, model, saved):
        with torch.no_grad():
            model.weights[0][0, 0] += 1e-6
        one_line(lambda: gnnsafe.load(saved, model), "got one with other weights")

    @pytest.mark.parametrize("columns", [-1, 8])
    def test_a_model_without_weights(self, columns, blocks, tmp_path):
        """Its layers have not found their sizes yet, or it is on the meta device."""
        Detector(GraphSAGE(-1, 16, 2, 3), "gnnsafe").fit(blocks).save(tmp_path)
        empty = GraphSAGE(columns, 16, 2, 3).to("cpu" if columns < 0 else "meta")
        with pytest.raises(InputError, match=r"'model' must have weights \(got one without\); load them first"):
            gnnsafe.load(tmp_path, empty)

    def test_no_model(self, blocks, tmp_path):
        Detector(GraphSAGE(8, 16, num_layers=2, out_channels=3)).fit(blocks).save(tmp_path)
        with pytest.raises(ValueError, match=r"'model' must be given: the detector was saved with a GraphSAGE"):
            gnnsafe.load(tmp_path)
        with pytest.raises(ValueError, match=r"'model' must be a torch.nn.Module"):
            gnnsafe.load(tmp_path, "model.pt")

    def test_other_features(self, saved, blocks):
        blocks.x = blocks.x[:, :5]
        with pytest.raises(ValueError, match=r"'x' must have 8 features \(got 5\)"):
            gnnsafe.load(saved).score(blocks)

    def test_another_format(self, saved):
        record = json.loads((saved / "detector.json").read_text())
        (saved / "detector.json").write_text(json.dumps({**record, "format": FORMAT + 1, "gnnsafe": "9.0"}))
        one_line(
            lambda: gnnsafe.load(saved),
            rf"must hold a detector of format {FORMAT} \(got format {FORMAT + 1}, saved by gnnsafe 9.0\)",
        )

    def test_damaged_tensors(self, saved):
        path = next(saved.glob("tensors-*"))
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.write_bytes(content)
        one_line(lambda: gnnsafe.load(saved), r"damaged '.*safetensors': its content is not what was written")
        path.write_bytes(content[:100])
        one_line(lambda: gnnsafe.load(saved), "its content is not what was written")
        path.unlink()
        one_line(lambda: gnnsafe.load(saved), r"'folder' must hold tensors-.*, which detector.json names")

    @pytest.mark.parametrize("text", ["", "{", "[]", '"a"', "{}", '{"format": "1"}', "[" * 100000])
    def test_damaged_json(self, saved, text):
        (saved / "detector.json").write_text(text)
        one_line(lambda: gnnsafe.load(saved), "damaged '.*detector.json'")

    def test_a_changed_value(self, saved):
        path = saved / "detector.json"
        path.write_text(path.read_text().replace('"alpha": 0.5', '"alpha": 0.7'))
        one_line(lambda: gnnsafe.load(saved), "its checksum differs")

    def test_what_is_no_text(self, saved):
        (saved / "detector.json").write_bytes(b"\xff\xfe\x00")
        one_line(lambda: gnnsafe.load(saved), "damaged")

    def test_not_fitted(self, model, tmp_path):
        with pytest.raises(NotFittedError, match="is not fitted; call fit"):
            Detector(model).save(tmp_path / "detector")
        assert not (tmp_path / "detector").exists()

    def test_a_method_of_ones_own(self, model, blocks, tmp_path):
        class Energy(MSP):
            pass

        with pytest.raises(
            ValueError, match=r"'method' must be registered to be saved \(got .*Energy\(\)\); put @METHODS.reg"
        ):
            Detector(model, Energy()).fit(blocks).save(tmp_path / "detector")

    def test_a_file_in_its_place(self, model, blocks, tmp_path):
        (tmp_path / "file").write_text("")
        with pytest.raises(ValueError, match="'folder' must be a folder"):
            Detector(model).fit(blocks).save(tmp_path / "file")


SIDE_BY_SIDE = """
import os, sys, torch, gnnsafe
from types import SimpleNamespace
torch.manual_seed(0)
graph = SimpleNamespace(x=torch.rand(20, 4), edge_index=torch.randint(20, (2, 60)), y=torch.arange(20) % 2,
                        train_mask=torch.arange(20) < 10)
model = gnnsafe.models.GCN(4, 8, 2)
detectors = [gnnsafe.Detector(model, name).fit(graph) for name in ("energy", "knn", "mahalanobis")]
detectors[0].save("detector")
writers = []
for detector in detectors:
    writers.append(os.fork())
    if writers[-1] == 0:
        for _ in range(100):
            detector.save("detector")
        os._exit(0)
seen = set()
while writers := [writer for writer in writers if os.waitpid(writer, os.WNOHANG)[0] == 0]:
    loaded = gnnsafe.load("detector")
    seen.add(type(loaded.method).__name__)
    loaded.score(graph)
gnnsafe.load("detector").score(graph)
print(*sorted(seen), len(os.listdir("detector")))
"""


def test_processes_that_save_to_one_folder_leave_one_detector_and_readers_get_one(tmp_path):
    """Three writers and a reader, the real thing: without the lock about one round in twenty ended without tensors."""
    source = str(Path(gnnsafe.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": source, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", SIDE_BY_SIDE]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split()[-1] == "2"
    assert len(done.stdout.split()) > 2  # more than one of them was read


def test_a_reader_between_writers_finds_what_one_took_away_and_another_put_back(model, blocks, tmp_path, monkeypatch):
    detector = Detector(model, "energy").fit(blocks)
    detector.save(tmp_path)
    read_bytes, gone = Path.read_bytes, []

    def once_gone(path: Path) -> bytes:
        if path.suffix == ".safetensors" and not gone:
            gone.append(path)
            raise FileNotFoundError(2, "No such file or directory", str(path))
        return read_bytes(path)

    monkeypatch.setattr(Path, "read_bytes", once_gone)
    assert torch.equal(gnnsafe.load(tmp_path).score(blocks), detector.score(blocks))
    assert gone
