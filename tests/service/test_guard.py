"""Who may ask, how much, and for how long."""

from __future__ import annotations

import asyncio
import shutil
import threading
import time

import pytest
from starlette.responses import Response

from gnnsafe import Detector
from gnnsafe.service.guard import Guard, Keys
from gnnsafe.service.metrics import Metrics
from gnnsafe.service.models import ServedModel

TOKEN = "correct-horse-battery-staple"


@pytest.mark.parametrize("path", ["/", "/v1/graph", "/metrics", "/v2/models/blocks", "/docs", "/openapi.json"])
def test_with_a_token_nobody_else_gets_in(made, path):
    client = made(token=TOKEN)
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": TOKEN}, {"Cookie": "gnnsafe_page=x"}):
        answer = client.get(path, headers=headers)
        assert answer.status_code == 401
        assert TOKEN not in answer.text
    assert client.get(path, headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200


def test_health_needs_no_token_and_a_page_logs_in(made):
    client = made(token=TOKEN)
    for path in ("/healthz", "/readyz", "/v2/health/live", "/v2/health/ready", "/login", "/static/page.css"):
        assert client.get(path).status_code == 200
    assert client.get("/static/../guard.py").status_code in (401, 404)
    assert client.post("/login", data={"token": "wrong"}).status_code == 401
    answer = client.post("/login", data={"token": TOKEN}, follow_redirects=False)
    assert answer.status_code == 303
    assert "HttpOnly" in answer.headers["set-cookie"]
    assert "SameSite=strict" in answer.headers["set-cookie"]
    assert TOKEN not in answer.headers["set-cookie"]
    assert client.get("/").status_code == 200
    cookie = answer.headers["set-cookie"].partition(";")[0]
    for others in ('prefs={"theme":"dark"}', "a b=c", "lone", '"'):  # of other services at this host
        client.cookies.clear()
        assert client.get("/", headers={"Cookie": f"{others}; {cookie}; {others}"}).status_code == 200
        assert client.get("/", headers={"Cookie": others}).status_code == 401


def test_other_sites_and_other_names_are_refused(client):
    changes = {"nodes": []}
    assert client.post("/v1/graph/changes", json=changes, headers={"Origin": "https://evil.example"}).status_code == 403
    assert client.post("/v1/graph/changes", json=changes, headers={"Origin": "http://127.0.0.1"}).status_code == 200
    assert client.get("/v1/graph", headers={"Host": "evil.example"}).status_code == 421
    assert client.get("/v1/graph", headers={"Host": "127.0.0.1:8000"}).status_code == 200
    assert "access-control-allow-origin" not in client.get("/v1/graph").headers


def test_every_answer_has_the_strict_policy(client):
    for path in ("/", "/v1/graph", "/nowhere", "/v1/nodes/nobody", "/metrics"):
        headers = client.get(path).headers
        assert headers["content-security-policy"].startswith("default-src 'none'")
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"


def slow(monkeypatch, seconds):
    def decide(self, data, **options):
        time.sleep(seconds)
        return original(self, data, **options)

    original = Detector.decide
    monkeypatch.setattr(Detector, "decide", decide)


def test_too_many_at_once_are_told_to_come_back(made, monkeypatch):
    client = made(workers=1, waiting=1, kept=False)
    slow(monkeypatch, 0.5)
    statuses, graph = [], {"x": [[1.0] * 8], "edge_index": [[], []]}
    threads = [
        threading.Thread(target=lambda: statuses.append(client.post("/v1/score", json=graph).status_code))
        for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    time.sleep(0.2)
    assert client.get("/healthz").status_code == 200  # the loop is free
    for thread in threads:
        thread.join()
    assert sorted(statuses) == [200, 200, 429, 429, 429, 429]
    assert client.service.pool.pending == 0


def test_what_takes_too_long_is_504_and_the_worker_comes_back(made, monkeypatch):
    client = made(seconds=1, workers=1, kept=False)
    slow(monkeypatch, 1.6)
    graph = {"x": [[1.0] * 8], "edge_index": [[], []]}
    assert client.post("/v1/score", json=graph).status_code == 504
    monkeypatch.undo()
    time.sleep(0.9)
    assert client.post("/v1/score", json=graph).status_code == 200


def test_an_error_of_ours_shows_no_trace(made, monkeypatch):
    client = made(kept=False)
    monkeypatch.setattr(Detector, "decide", lambda *_, **__: 1 / 0)
    answer = client.post("/v1/score", json={"x": [[1.0] * 8], "edge_index": [[], []]})
    assert answer.status_code == 500
    assert "which its log has as" in answer.json()["error"]
    assert "Zero" not in answer.text


def test_metrics_count_and_name_no_node(client):
    client.get("/v1/nodes/n17")
    client.post("/v1/graph/changes", json={"nodes": [{"id": "secret-node", "features": [1] * 8}]})
    text = client.get("/metrics").text
    assert 'gnnsafe_requests_total{method="GET",path="/v1/nodes/{id:path}",status="200"} 1.0' in text
    assert "gnnsafe_graph_nodes 121.0" in text
    assert 'gnnsafe_graph_p_value_bucket{le="+Inf"} 121.0' in text
    assert "n17" not in text
    assert "secret-node" not in text
    scored = client.post("/v1/score", json={"x": [[1.0] * 8], "edge_index": [[], []]})
    assert scored.status_code == 200
    assert 'gnnsafe_p_value_count{model="blocks"}' in client.get("/metrics").text


def test_another_detector_is_swapped_in_without_a_dropped_request(made, detector, graph):
    client, statuses = made(), []
    other = Detector(detector.classifier.model, "energy").fit(graph).calibrate(graph)
    stop = threading.Event()

    def ask():
        while not stop.is_set():
            answer = client.post("/v1/score", json={"x": [[1.0] * 8] * 3, "edge_index": [[0], [1]]})
            statuses.append((answer.status_code, client.get("/v1/nodes?limit=1").status_code))

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    for number in range(6):
        client.service.swap(ServedModel.of("blocks", other if number % 2 == 0 else detector))
        time.sleep(0.05)
    client.service.swap(ServedModel.of("blocks", other))
    stop.set()
    for thread in threads:
        thread.join()
    assert {*statuses} == {(200, 200)}
    assert "Energy" in client.get("/v1/models").json()[0]["method"]
    top = client.get("/v1/nodes?limit=1").json()["nodes"][0]
    assert top["score"] == pytest.approx(float(other.score(graph).max()), abs=1e-5)


def test_a_model_is_read_again_from_its_own_folder_alone(made, folders):
    client = made(kept=False)
    client.service.swap(ServedModel.loaded("blocks", folders[0]))
    version = client.get("/v1/models").json()[0]["version"]
    assert client.post("/v1/models/blocks/reload").json() == {"name": "blocks", "version": version}
    assert client.post("/v1/models/..%2f..%2fetc/reload").status_code == 404


def test_a_model_that_cannot_be_read_again_is_told_in_the_log_alone(made, folders, tmp_path, caplog):
    client = made(kept=False)
    folder = shutil.copytree(folders[0], tmp_path / "detector")
    client.service.swap(ServedModel.loaded("blocks", folder))
    shutil.rmtree(folder)
    answer = client.post("/v1/models/blocks/reload")
    assert answer.status_code == 503
    assert answer.json() == {"error": "'blocks' was not reloaded and is served as before; the log says why"}
    (told,) = [record for record in caplog.records if record.getMessage() == "not reloaded"]
    assert str(folder) in told.reason


@pytest.mark.parametrize("gone", [False, True])
def test_a_client_that_is_gone_before_its_answer_is_told_in_the_log(caplog, gone):
    async def app(scope, receive, send):
        await receive()
        await Response(b"late")(scope, receive, send)

    async def receive():
        if messages:
            return messages.pop()
        if not gone:
            await asyncio.Event().wait()
        return {"type": "http.disconnect"}

    async def send(_):
        pass

    messages = [{"type": "http.request", "body": b"", "more_body": False}]
    scope = {"type": "http", "method": "GET", "path": "/", "headers": [(b"host", b"localhost")]}
    guard = Guard(app, keys=Keys(None), hosts=("localhost",), metrics=Metrics())
    with caplog.at_level("INFO", "gnnsafe.service"):
        asyncio.run(guard(scope, receive, send))
    (record,) = caplog.records
    assert getattr(record, "client", None) == ("gone before its answer" if gone else None)
