"""MLflow's flavour of a detector: logged as the folder that `Detector.save` writes, loaded as it was or as a pyfunc.

    with mlflow.start_run():
        gnnsafe.mlflow.log_model(detector, "detector")
    scorer = mlflow.pyfunc.load_model(uri)
    scorer.predict({"x": x, "edge_index": edge_index})   # a data frame: id, class, probability, score, p-value, flag

What is logged is safetensors and JSON, no pickle. A pyfunc needs the model, so it must be one of gnnsafe.models; with
another, `load_model(uri, model=model)`.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import nn

from gnnsafe.detector import Detector, load
from gnnsafe.errors import MissingExtraError, require, require_known

__all__ = ["FLAVOR_NAME", "load_model", "log_model", "save_model"]

FLAVOR_NAME = "gnnsafe"
FOLDER = "detector"
FALSE_ALARM = 0.05
TAKEN = ("x", "edge_index", "node_id")


def _mlflow(name: str = "mlflow") -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingExtraError(f"this needs {error.name}: pip install 'gnnsafe[mlflow]'") from error


def save_model(detector: Detector, path: str, mlflow_model: Any = None, **settings: Any) -> None:
    """Write a detector as an MLflow model.

    Args:
        detector: Fitted and calibrated.
        path: A folder that is not there yet, or an empty one.
        mlflow_model: MLflow's description of it, to be completed; a new one by default.
        **settings: What MLflow's `Model` takes, such as `metadata`.
    """
    detector.calibrated()
    models, pyfunc = _mlflow("mlflow.models"), _mlflow("mlflow.pyfunc")
    folder = Path(path)
    require(not folder.exists() or not any(folder.iterdir()), "path", "be a new folder", f"'{folder}'")
    description = models.Model(**settings) if mlflow_model is None else mlflow_model
    detector.save(folder / FOLDER)
    version = importlib.import_module("gnnsafe").__version__
    requirements = [f"gnnsafe=={version}", "pandas"]
    if description.signature is None:  # without it MLflow hands no parameters on
        types = _mlflow("mlflow.types")
        level = types.ParamSpec("false_alarm", types.DataType.double, FALSE_ALARM)
        description.signature = models.ModelSignature(params=types.ParamSchema([level]))
    description.add_flavor(FLAVOR_NAME, gnnsafe_version=version, data=FOLDER)
    pyfunc.add_to_model(description, loader_module=__name__, data=FOLDER)
    (folder / "requirements.txt").write_text("\n".join(requirements) + "\n", encoding="utf-8")
    description.save(str(folder / "MLmodel"))


def log_model(detector: Detector, name: str = FOLDER, **settings: Any) -> Any:
    """Log a detector as a model of the current run.

    Args:
        detector: Fitted and calibrated.
        name: What the model is called.
        **settings: What `mlflow.models.Model.log` takes, such as `registered_model_name`.

    Returns:
        MLflow's `ModelInfo`; its `model_uri` is what `load_model` and `mlflow.pyfunc.load_model` take.
    """
    models, here = _mlflow("mlflow.models"), importlib.import_module(__name__)
    return models.Model.log(None, here, name=name, detector=detector, **settings)


def load_model(uri: str, model: nn.Module | None = None) -> Detector:
    """The detector that was logged.

    Args:
        uri: Of the model, such as `models:/…` or a path.
        model: The one that it was saved with; left out for one of gnnsafe.models.
    """
    tracking = _mlflow("mlflow.artifacts")
    return load(Path(tracking.download_artifacts(artifact_uri=uri)) / FOLDER, model)


def _load_pyfunc(path: str) -> PyfuncDetector:
    """What `mlflow.pyfunc.load_model` calls."""
    folder = Path(path)
    return PyfuncDetector(load(folder if folder.name == FOLDER else folder / FOLDER))


class PyfuncDetector:
    """A detector as MLflow's pyfunc: `predict` of a dict of arrays."""

    def __init__(self, detector: Detector) -> None:
        self.detector = detector

    def predict(self, model_input: Mapping[str, Any], params: Mapping[str, Any] | None = None) -> Any:
        """A row per node: id, predicted class and its probability, score, p-value and flag.

        Args:
            model_input: `x` [nodes, features], `edge_index` [2, edges] and, where there are any, `node_id`.
            params: `false_alarm`, the share of ID nodes that may be flagged (0.05 by default).
        """
        require(isinstance(model_input, Mapping), "model_input", "be a dict of arrays", type(model_input).__name__)
        for name in model_input:
            require_known("model_input", name, TAKEN)
        for name in ("x", "edge_index"):
            require(name in model_input, "model_input", f"have '{name}'", ", ".join(model_input) or "nothing")
        asked = dict(params or {})
        level = asked.pop("false_alarm", FALSE_ALARM)
        require(not asked, "params", "have no other entry than false_alarm", ", ".join(asked))
        graph = SimpleNamespace(
            x=torch.as_tensor(np.asarray(model_input["x"], dtype=np.float32)),
            edge_index=torch.as_tensor(np.asarray(model_input["edge_index"]).astype(np.int64)),
        )
        if model_input.get("node_id") is not None:
            graph.node_id = list(model_input["node_id"])
        return self.detector.decide(graph, false_alarm=level).to_pandas()
