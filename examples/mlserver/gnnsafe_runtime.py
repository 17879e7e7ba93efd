"""A detector in MLServer, by the Open Inference Protocol: tensors x and edge_index in, scores and flags out.

    pip install gnnsafe mlserver
    gnnsafe train graph/ --out examples/mlserver/detector
    mlserver start examples/mlserver          # POST http://127.0.0.1:8080/v2/models/gnnsafe/infer

`gnnsafe serve` speaks the same protocol by itself, keeps a graph and has a page; this is for those who run MLServer
(or KServe's `ClusterServingRuntime` for it) already.
"""

from __future__ import annotations

import copy

import torch
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceRequest, InferenceResponse
from mlserver.utils import get_model_uri
from torch_geometric.data import Data

import gnnsafe


class GnnsafeRuntime(MLModel):
    """`model-settings.json` names this class, the detector's folder and the level at which nodes are flagged."""

    async def load(self) -> bool:
        """Read the detector; no code in its folder is run."""
        self._detector = gnnsafe.load(await get_model_uri(self._settings))
        self._false_alarm = (self._settings.parameters.extra or {}).get("false_alarm", 0.05)
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        """Decide about every node of the graph that is sent."""
        given = {one.name: torch.tensor(NumpyCodec.decode_input(one)) for one in payload.inputs}
        data = Data(x=given["x"].float(), edge_index=given["edge_index"].long())
        decided = copy.copy(self._detector).decide(data, false_alarm=self._false_alarm)
        columns = {"score": decided.scores, "p_value": decided.p_values, "flag": decided.flags}
        if decided.predicted is not None and decided.probabilities is not None:
            columns |= {"predicted": decided.predicted, "probability": decided.probabilities}
        outputs = [NumpyCodec.encode_output(name, values.numpy()[:, None]) for name, values in columns.items()]
        return InferenceResponse(model_name=self.name, model_version=self.version, outputs=outputs)
