"""The MLflow flavour by a real MLflow, with a store in a folder."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import gnnsafe
import gnnsafe.mlflow
from gnnsafe.errors import InputError, UnknownNameError
from gnnsafe.models import GCN

mlflow = pytest.importorskip("mlflow")
pytestmark = pytest.mark.filterwarnings("ignore")  # MLflow's own


@pytest.fixture
def detector(blocks):
    model = GCN(8, 8, 3)
    gnnsafe.train(model, blocks, objective=gnnsafe.CrossEntropy(), epochs=20)
    return gnnsafe.Detector(model).fit(blocks).calibrate(blocks)


def test_logged_and_loaded_it_says_the_same(detector, blocks, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri((tmp_path / "store").as_uri())
    experiment = mlflow.create_experiment("detectors", artifact_location=(tmp_path / "artifacts").as_uri())
    with mlflow.start_run(experiment_id=experiment):
        info = gnnsafe.mlflow.log_model(detector, "detector")
    scorer = mlflow.pyfunc.load_model(info.model_uri)
    table = scorer.predict({"x": blocks.x.numpy(), "edge_index": blocks.edge_index.numpy()})
    wanted = detector.decide(blocks, false_alarm=0.05).to_pandas()
    assert table.columns.tolist() == wanted.columns.tolist()
    assert table.equals(wanted)
    assert torch.equal(gnnsafe.mlflow.load_model(info.model_uri).score(blocks), detector.score(blocks))


def test_it_is_saved_without_a_pickle_and_takes_a_dict_of_arrays(detector, blocks, tmp_path):
    gnnsafe.mlflow.save_model(detector, str(tmp_path / "model"))
    names = {path.suffix for path in (tmp_path / "model").rglob("*") if path.is_file()}
    assert names <= {"", ".json", ".safetensors", ".txt"}
    scorer = mlflow.pyfunc.load_model(str(tmp_path / "model"))
    given = {"x": blocks.x.tolist(), "edge_index": blocks.edge_index.int().numpy(), "node_id": list(range(7, 127))}
    table = scorer.predict(given, params={"false_alarm": 0.5})
    assert table["id"].tolist() == list(range(7, 127))
    assert table["flag"].mean() > 0.2
    with pytest.raises(InputError, match="be a new folder"):
        gnnsafe.mlflow.save_model(detector, str(tmp_path / "model"))


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"x": np.zeros((2, 8))}, "have 'edge_index'"),
        ({"x": np.zeros((2, 3)), "edge_index": np.zeros((2, 0))}, "8"),
        (np.zeros((2, 8)), "be a dict of arrays"),
    ],
)
def test_what_is_no_graph_is_refused(detector, given, complaint):
    with pytest.raises(InputError, match=complaint):
        gnnsafe.mlflow.PyfuncDetector(detector).predict(given)
    with pytest.raises(UnknownNameError, match="one of x, edge_index"):
        gnnsafe.mlflow.PyfuncDetector(detector).predict({"X": []})
    with pytest.raises(InputError, match="false_alarm"):
        gnnsafe.mlflow.PyfuncDetector(detector).predict({"x": [[0.0] * 8], "edge_index": [[], []]}, {"fdr": 0.1})
