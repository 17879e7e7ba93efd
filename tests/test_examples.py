"""The examples run as they are."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch
from tests.conftest import block_graph

import gnnsafe
from gnnsafe.models import GCN

ROOT = Path(__file__).parents[1]


def test_the_lightning_example(tmp_path):
    pytest.importorskip("lightning")
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "ignore", str(ROOT / "examples" / "lightning_module.py")]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "an ordinary day: calm, " in done.stdout
    assert "a day of other features: ALARM, 1500 nodes counted" in done.stdout


def like_mlserver(monkeypatch):
    """As much of MLServer as the example asks for; it was tried with MLServer itself, which wants older packages."""
    names = ("mlserver", "mlserver.codecs", "mlserver.types", "mlserver.utils")
    modules = {name: ModuleType(name) for name in names}
    modules["mlserver"].MLModel = type("MLModel", (), {"name": "gnnsafe", "version": "1"})
    modules["mlserver.codecs"].NumpyCodec = SimpleNamespace(
        decode_input=lambda one: one.data, encode_output=lambda name, values: (name, values)
    )
    modules["mlserver.types"].InferenceRequest = SimpleNamespace
    modules["mlserver.types"].InferenceResponse = SimpleNamespace

    async def uri(settings):
        return settings.parameters.uri

    modules["mlserver.utils"].get_model_uri = uri
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)


@pytest.mark.filterwarnings("ignore::gnnsafe.errors.CalibrationWarning")
def test_the_mlserver_example(monkeypatch, tmp_path):
    like_mlserver(monkeypatch)
    folder, data = ROOT / "examples" / "mlserver", block_graph()
    torch.manual_seed(0)
    model = GCN(8, 16, 3)
    gnnsafe.train(model, data, objective=gnnsafe.CrossEntropy(), epochs=5)
    detector = gnnsafe.Detector(model, "gnnsafe").fit(data).calibrate(data)
    detector.save(tmp_path / "detector")
    settings = json.loads((folder / "model-settings.json").read_text(encoding="utf-8"))
    module, name = settings["implementation"].split(".")
    spec = importlib.util.spec_from_file_location(module, folder / f"{module}.py")
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    runtime = getattr(loaded, name)()
    parameters = {**settings["parameters"], "uri": str(tmp_path / "detector")}
    runtime._settings = SimpleNamespace(parameters=SimpleNamespace(**parameters))
    assert asyncio.run(runtime.load())
    given = {"x": data.x.numpy(), "edge_index": data.edge_index.numpy()}
    inputs = [SimpleNamespace(name=one, data=values) for one, values in given.items()]
    answer = asyncio.run(runtime.predict(SimpleNamespace(inputs=inputs)))
    outputs, decided = dict(answer.outputs), detector.decide(data, false_alarm=0.05)
    np.testing.assert_allclose(outputs["score"][:, 0], decided.scores.numpy(), rtol=1e-6)
    assert outputs["flag"][:, 0].tolist() == decided.flags.tolist()
    assert list(outputs) == ["score", "p_value", "flag", "predicted", "probability"]
