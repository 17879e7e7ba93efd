"""The Open Inference Protocol, version 2, as KServe's and Triton's clients speak it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from fastapi import APIRouter, Request
from starlette.responses import Response
from torch_geometric.data import Data

from gnnsafe.errors import require
from gnnsafe.service.limits import VERSION, body
from gnnsafe.service.models import ServedModel, columns
from gnnsafe.service.refusal import as_json, documented
from gnnsafe.service.state import Service
from gnnsafe.service.tensors import Inference, read_inference, write_answer

__all__ = ["inference_router"]

JSON, BINARY = "application/json", "application/octet-stream"
HEADER = "Inference-Header-Content-Length"
OUTPUTS = {"score": "FP32", "p_value": "FP64", "flag": "BOOL", "predicted": "INT64", "probability": "FP32"}
REQUEST = {
    "type": "object",
    "required": ["inputs"],
    "properties": {
        "id": {"type": "string"},
        "parameters": {"type": "object", "properties": {"false_alarm": {"type": "number"}}},
        "inputs": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["name", "shape", "datatype", "data"],
                "properties": {
                    "name": {"type": "string", "enum": ["x", "logits", "edge_index"]},
                    "shape": {
                        "type": "array",
                        "items": {"type": "integer", "minimum": 0},
                        "maxItems": 2,
                        "minItems": 2,
                    },
                    "datatype": {"type": "string", "enum": ["FP32", "FP64", "INT64", "INT32"]},
                    "data": {"type": "array"},
                },
            },
        },
    },
}


def inference_router(service: Service) -> APIRouter:
    """The routes under /v2."""
    router = APIRouter(prefix="/v2", tags=["Open Inference Protocol"])

    @router.get("", summary="The server", responses=documented())
    async def server() -> Response:
        return as_json({"name": "gnnsafe", "version": VERSION, "extensions": ["binary_tensor_data"]})

    @router.get("/health/live", summary="Whether the process is there", responses=documented())
    async def live() -> Response:
        return as_json({"live": True})

    @router.get("/health/ready", summary="Whether it can score", responses=documented())
    async def ready() -> Response:
        stopping = service.draining  # nothing else: a lost history must not turn away requests that would be answered
        return as_json({"ready": not stopping}, 503 if stopping else 200)

    @router.get("/models/{name}", summary="A model's tensors", responses=documented())
    @router.get("/models/{name}/versions/{version}", include_in_schema=False)
    async def model(name: str) -> Response:
        return as_json(_metadata(service.models[name]))

    @router.get("/models/{name}/ready", summary="Whether a model can answer", responses=documented())
    @router.get("/models/{name}/versions/{version}/ready", include_in_schema=False)
    async def model_ready(name: str) -> Response:
        return as_json({"name": service.models[name].name, "ready": True})

    content = {"requestBody": {"required": True, "content": {JSON: {"schema": REQUEST}}}}

    @router.post(
        "/models/{name}/infer", summary="Scores from x and edge_index, or from logits and edge_index",
        responses=documented(408, 413, 415), openapi_extra=content,
    )  # fmt: skip
    @router.post("/models/{name}/versions/{version}/infer", include_in_schema=False)
    async def infer(name: str, request: Request) -> Response:
        found = service.models[name]
        sent = await body(request, service.limits, JSON, BINARY, "")  # Triton's client names none
        length = request.headers.get(HEADER)
        binary, json_length = await service.pool.run(lambda: _answer(service, found, sent, length))
        headers = {} if json_length is None else {HEADER: str(json_length)}
        return Response(binary, 200, headers, JSON if json_length is None else BINARY)

    return router


def _answer(service: Service, model: ServedModel, sent: bytes, length: str | None) -> tuple[bytes, int | None]:
    asked = read_inference(sent, length)
    return write_answer(asked, model.name, model.version, columns(_decided(service, model, asked)))


def _decided(service: Service, model: ServedModel, asked: Inference) -> Any:
    given = asked.tensors
    rule = "be x and edge_index, or logits and edge_index"
    require(set(given) in ({"x", "edge_index"}, {"logits", "edge_index"}), "inputs", rule, ", ".join(given) or "none")
    kind = "x" if "x" in given else "logits"
    rows, edges = given[kind], given["edge_index"]
    require(rows.ndim == 2 and rows.dtype.kind == "f", kind, "be FP32 or FP64, [nodes, columns]", _said(rows))
    require(edges.ndim == 2 and edges.dtype.kind in "iu", "edge_index", "be INT64, [2, edges]", _said(edges))
    service.limits.check_graph(rows.shape[0], edges.shape[1])
    tensor, edge_index = torch.from_numpy(rows.astype(np.float32)), torch.from_numpy(edges.astype(np.int64))
    level = asked.parameters.get("false_alarm", service.false_alarm)
    if kind == "logits":
        decisions = model.decide_logits(tensor, edge_index, false_alarm=level)
        service.metrics.decided(model.name, decisions)
        return decisions
    return service.decide(model, Data(x=tensor, edge_index=edge_index), false_alarm=level)


def _said(tensor: Any) -> str:
    return f"{tensor.dtype} {list(tensor.shape)}"


def _metadata(model: ServedModel) -> dict[str, Any]:
    detector = model.detector
    multiclass = detector.classifier is not None and detector.task == "multiclass"
    given = [
        {"name": "x", "datatype": "FP32", "shape": [-1, detector.num_features_]},
        {"name": "edge_index", "datatype": "INT64", "shape": [2, -1]},
    ]
    named = [name for name in OUTPUTS if multiclass or name not in ("predicted", "probability")]
    outputs = [{"name": name, "datatype": OUTPUTS[name], "shape": [-1]} for name in named]
    return {
        "name": model.name, "versions": [model.version], "platform": "gnnsafe", "inputs": given, "outputs": outputs,
    }  # fmt: skip
