"""Requests that nobody thought of: each gets an answer that the OpenAPI document knows, and none is ours to blame."""

from __future__ import annotations

import random

import hypothesis
import pytest
import schemathesis
from hypothesis import HealthCheck
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import status_code_conformance

from gnnsafe.service import Limits, Service, create_app


@pytest.fixture(scope="module")
def app(detector, graph):
    service = Service({"blocks": detector}, graph=graph, limits=Limits(nodes=500, edges=5000))
    return create_app(service, hosts=("testserver", "localhost"))  # what schemathesis calls it


@pytest.fixture(scope="module")
def schema(app):
    return schemathesis.openapi.from_asgi("/openapi.json", app)


@pytest.mark.filterwarnings("ignore")
def test_every_operation_answers_as_its_document_says(schema):
    seen = set()
    for found in schema.get_all_operations():
        operation = found.ok()
        seen.add(operation.path)

        @hypothesis.given(case=operation.as_strategy())
        @hypothesis.settings(max_examples=8, derandomize=True, suppress_health_check=list(HealthCheck), database=None)
        def answered(case):
            case.validate_response(case.call(), checks=[not_a_server_error, status_code_conformance])

        answered()
    assert {"/v1/score", "/v1/graph/changes", "/v1/nodes", "/v2/models/{name}/infer", "/metrics"} <= seen


def test_the_document_has_no_answer_that_is_never_sent(client):
    text = client.get("/openapi.json").text
    assert '"422"' not in text
    assert "ValidationError" not in text


def test_malformed_bodies_are_refused_in_one_sentence(client):
    """A few of the ten thousand of benchmarks/serve_fuzz.py."""
    from benchmarks.serve_fuzz import malformed

    rng = random.Random(0)
    for path, headers, content in (malformed(rng) for _ in range(300)):
        answer = client.post(path, content=content, headers=headers)
        assert answer.status_code < 500, (path, content[:200], answer.text)
        if answer.status_code >= 400:
            sentence = answer.json()["error"]
            assert sentence
            assert "\n" not in sentence
