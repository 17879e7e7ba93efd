"""The Open Inference Protocol, as Triton's own client speaks it, and as nobody should."""

from __future__ import annotations

import json

import numpy as np
import pytest
import tritonclient.http as triton
from tests.service.conftest import serving

from gnnsafe import score_logits


@pytest.fixture(scope="module")
def served(folders):
    with serving(f"blocks={folders[0]}") as service:
        yield service


@pytest.fixture
def server(served):
    client = triton.InferenceServerClient(f"{served.host}:{served.port}")
    yield client
    client.close()


def inputs(**tensors):
    found = []
    for name, values in tensors.items():
        kind = "INT64" if values.dtype.kind == "i" else "FP32"
        found.append(triton.InferInput(name, list(values.shape), kind))
        found[-1].set_data_from_numpy(values)
    return found


def test_tritons_client_finds_the_server_and_its_model(server, detector):
    assert server.is_server_live()
    assert server.is_server_ready()
    assert server.is_model_ready("blocks")
    assert not server.is_model_ready("none")
    assert server.get_server_metadata()["name"] == "gnnsafe"
    described = server.get_model_metadata("blocks")
    assert [one["name"] for one in described["inputs"]] == ["x", "edge_index"]
    assert described["inputs"][0]["shape"] == [-1, detector.num_features_]


@pytest.mark.parametrize("binary", [True, False])
def test_tritons_client_gets_the_librarys_scores(server, graph, detector, binary):
    given = inputs(x=graph.x.numpy(), edge_index=graph.edge_index.numpy())
    wanted = [
        triton.InferRequestedOutput(name, binary_data=binary) for name in ("score", "p_value", "flag", "predicted")
    ]
    answer = server.infer("blocks", given, outputs=wanted, request_id="7")
    expected = detector.decide(graph, false_alarm=0.05)
    np.testing.assert_allclose(answer.as_numpy("score"), expected.scores.numpy(), rtol=1e-5)
    assert answer.as_numpy("p_value").tolist() == expected.p_values.tolist()
    assert answer.as_numpy("flag").tolist() == expected.flags.tolist()
    assert answer.as_numpy("predicted").tolist() == expected.predicted.tolist()
    assert answer.as_numpy("probability") is None
    assert answer.get_response()["id"] == "7"


def test_logits_from_anywhere_are_scored(server, graph, detector):
    logits = detector.outputs(graph).logits.numpy()
    answer = server.infer("blocks", inputs(logits=logits, edge_index=graph.edge_index.numpy()))
    np.testing.assert_allclose(answer.as_numpy("score"), score_logits(logits, graph.edge_index).numpy(), rtol=1e-6)


def test_tritons_client_shows_our_sentence(server, graph):
    with pytest.raises(triton.InferenceServerException, match="'x' must have 8 features"):
        server.infer("blocks", inputs(x=graph.x.numpy()[:, :3], edge_index=graph.edge_index.numpy()))
    with pytest.raises(triton.InferenceServerException, match="'model' must be one of blocks"):
        server.infer("none", inputs(x=graph.x.numpy(), edge_index=graph.edge_index.numpy()))


TENSOR = {"name": "x", "shape": [1, 8], "datatype": "FP32", "data": [0.0] * 8}
EDGES = {"name": "edge_index", "shape": [2, 0], "datatype": "INT64", "data": []}


@pytest.mark.parametrize(
    ("record", "words"),
    [
        (3, "'request' must be an object"),
        ({}, "'inputs' must be a list"),
        ({"inputs": [3]}, "inputs[0]"),
        ({"inputs": [{**TENSOR, "datatype": "BYTES"}]}, "datatype"),
        ({"inputs": [{**TENSOR, "shape": [-1, 8]}]}, "shape"),
        ({"inputs": [{**TENSOR, "shape": [2**40, 8]}]}, "shape"),
        ({"inputs": [{**TENSOR, "shape": [3, 8]}]}, "data' must be [3, 8] numbers"),
        ({"inputs": [{**TENSOR, "data": ["a"] * 8}]}, "be numbers"),
        ({"inputs": [{**TENSOR, "data": [[1], [2, 3]]}]}, "data"),
        ({"inputs": [TENSOR]}, "x and edge_index, or logits"),
        ({"inputs": [TENSOR, TENSOR]}, "each tensor once"),
        ({"inputs": [TENSOR, {**EDGES, "datatype": "FP32"}]}, "'edge_index' must be INT64"),
        ({"inputs": [TENSOR, EDGES], "outputs": [{"name": "other"}]}, "'outputs' must be among"),
        ({"inputs": [TENSOR, EDGES], "outputs": 3}, "'outputs' must be a list"),
        ({"inputs": [TENSOR, EDGES], "id": 3}, "'id' must be a text"),
        ({"inputs": [TENSOR, EDGES], "parameters": {"false_alarm": 7}}, "false_alarm"),
        ({"inputs": [TENSOR, EDGES], "parameters": {"false_alarm": "x"}}, "false_alarm"),
        ({"inputs": [{**TENSOR, "parameters": {"binary_data_size": 7}}]}, "binary_data_size"),
        ({"inputs": [{**TENSOR, "parameters": {"binary_data_size": 32}}]}, "32 bytes after the JSON"),
        ({"inputs": [{**TENSOR, "parameters": 7}]}, "'parameters' must be an object"),
    ],
)
def test_a_request_that_breaks_the_protocol_is_refused_in_one_sentence(client, record, words):
    answer = client.post("/v2/models/blocks/infer", json=record)
    assert answer.status_code == 400, answer.text
    assert words in answer.json()["error"]


@pytest.mark.parametrize("length", ["-1", "x", "99999", "1", "9" * 30])
def test_a_wrong_length_of_the_json_is_refused(client, length):
    content = json.dumps({"inputs": [TENSOR, EDGES]}).encode()
    headers = {"Inference-Header-Content-Length": length, "Content-Type": "application/octet-stream"}
    assert client.post("/v2/models/blocks/infer", content=content, headers=headers).status_code == 400


def test_versions_have_their_paths(client):
    assert client.get("/v2/models/blocks/versions/1/ready").json() == {"name": "blocks", "ready": True}
    assert client.post("/v2/models/blocks/versions/1/infer", json={"inputs": [TENSOR, EDGES]}).status_code == 200
