"""What was acknowledged stays, whatever dies; what is wrong is said, and the service goes on."""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import socket
import sqlite3
import threading
import time
import urllib.request
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.service.conftest import serving
from torch_geometric.data import Data

import gnnsafe
from gnnsafe.errors import HistoryError
from gnnsafe.evolving import Changes, ScoredGraph
from gnnsafe.monitoring import History
from gnnsafe.monitoring.summaries import FeatureMoments
from gnnsafe.service import Service, watching
from gnnsafe.service.glance import overview
from gnnsafe.service.models import ServedModel
from gnnsafe.service.watching import Watch

GRAPH = {"x": [[1.0] * 8] * 3, "edge_index": [[0], [1]]}


def test_fifty_kills_lose_nothing_that_was_acknowledged(detector, graph, tmp_path, monkeypatch):
    monkeypatch.setattr("gnnsafe.evolving.scored.ROOM", 0)  # the journal is compacted every few changes
    monkeypatch.setattr("gnnsafe.evolving.graph.EvolvingGraph.size", 1000)
    journal, acknowledged, rng = tmp_path / "journal", set(), random.Random(0)
    for attempt in range(50):
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    kept = ScoredGraph(detector, graph, journal=journal)
                    for number in range(1000):
                        name = f"k{attempt}-{number}"
                        kept.change(
                            Changes.of({"nodes": [{"id": name, "features": [1] * 8}], "edges": [[name, "n1"]]}, 8)
                        )
                        os.write(writing, f"{name}\n".encode())
                        kept.compact()
            finally:
                os._exit(1)
        os.close(writing)
        first = os.read(reading, 1)  # it has begun
        time.sleep(0.02 * rng.random())
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        with os.fdopen(reading, "rb") as told:
            acknowledged |= {*(first + told.read()).decode().split()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        kept = ScoredGraph(detector, graph, journal=journal)
    there = {one for one in kept.graph.numbers if one.startswith("k")}
    assert kept._journal.base.file is not None
    assert len(acknowledged) >= 50
    assert acknowledged <= there
    assert len(there - acknowledged) <= 50  # at most the one that each was about to acknowledge
    assert kept.graph.num_edges == graph.edge_index.shape[1] + len(there)  # a node and its edge, never half


def test_a_full_disk_refuses_the_change_is_said_and_passes(made, tmp_path):
    journal = tmp_path / "journal"
    client = made(journal=journal)
    change = {"nodes": [{"id": "n1", "features": [1] * 8}]}
    assert client.post("/v1/graph/changes", json=change).status_code == 200
    content, limit = journal.read_bytes(), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(content) + 40, limit[1]))
    try:
        answer = client.post("/v1/graph/changes", json=change)
        assert answer.status_code == 503
        assert "cannot write" in answer.json()["error"]
        assert str(tmp_path) not in answer.text
        ready = client.get("/readyz")
        assert (ready.status_code, [*ready.json()["problems"]]) == (503, ["journal"])
        assert client.get("/v1/graph").json()["version"] == 1
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert journal.read_bytes() == content
    assert client.post("/v1/graph/changes", json=change).json()["version"] == 2
    assert client.get("/readyz").status_code == 200


def test_a_lost_history_is_said_and_the_service_goes_on(made, tmp_path, monkeypatch):
    monkeypatch.setattr(Watch, "run", lambda *_: None)
    place = tmp_path / "history.db"
    client = made(history=History.open(place))
    assert "gnnsafe_martingale_log10" in client.get("/metrics").text
    assert client.post("/v1/score", json=GRAPH).status_code == 200
    client.service.enter()
    entries = len(client.service.judged)
    engine = client.service.watch.history._engine
    engine.dispose()
    kept = place.read_bytes()
    place.write_bytes(b"no database" * 100)
    assert client.post("/v1/score", json=GRAPH).status_code == 200
    client.service.enter()
    problems = client.get("/readyz").json()["problems"]
    assert client.get("/v2/health/ready").json() == {"ready": True}  # or KServe would turn all requests away
    assert "history" in problems
    assert str(tmp_path) not in str(problems)  # which needs no token
    assert "history" in client.get("/").text
    engine.dispose()
    place.write_bytes(kept)
    assert client.post("/v1/score", json=GRAPH).status_code == 200
    client.service.enter()
    assert client.get("/readyz").status_code == 200
    assert len(client.service.judged) == entries + 1
    assert client.service.judged[-1].entry.nodes == 2 * len(GRAPH["x"])  # nothing that came meanwhile is lost
    with sqlite3.connect(place) as database:
        assert database.execute("select count(*) from gnnsafe_entries").fetchone()[0] == entries + 1
    database.close()


def test_a_lost_postgresql_is_said_and_the_service_goes_on(detector, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pgserver
    server = pgserver.get_server(tmp_path / "pg", cleanup_mode="stop")
    service = Service({"blocks": detector}, history=History.open(server.get_uri()))
    service.decide(service.models[None], small(), false_alarm=0.05)
    service.enter()
    assert (service.problems(), len(service.judged)) == ({}, 1)
    server.cleanup()
    service.decide(service.models[None], small(), false_alarm=0.05)
    service.enter()
    assert "history" in service.problems()
    service.close()


def test_a_database_that_hangs_holds_up_no_request(made, tmp_path, monkeypatch):
    monkeypatch.setattr(watching, "SLOW", 0.1)
    monkeypatch.setattr(Watch, "run", lambda *_: None)
    client = made(history=History.open(tmp_path / "history.db"), workers=1, seconds=5)
    watch = client.service.watch
    other = sqlite3.connect(tmp_path / "history.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")  # another writer that does not end
    assert client.post("/v1/score", json=GRAPH).status_code == 200
    threading.Thread(target=client.service.enter, daemon=True).start()
    while not watch.hangs():
        time.sleep(0.01)
    assert client.post("/v1/score", json=GRAPH).status_code == 200
    assert client.get("/readyz").json()["problems"]["history"] == "the database does not answer"
    other.execute("ROLLBACK")
    other.close()
    client.service.enter()
    assert client.get("/readyz").status_code == 200
    assert sum(one.entry.nodes for one in client.service.judged if "request" in one.entry.name) == 2 * len(GRAPH["x"])


def test_what_cannot_wait_for_a_database_is_left_out_and_counted(made, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(watching, "MOST", 1)
    monkeypatch.setattr(Watch, "run", lambda *_: None)
    client = made(history=History.open(tmp_path / "history.db"))
    for _ in range(3):
        assert client.post("/v1/score", json=GRAPH).status_code == 200
    client.service.enter()
    assert client.service.judged[-1].entry.name == "request"
    assert [one.graphs for one in caplog.records if one.message == "left out"] == [2]


@pytest.fixture
def service(detector, graph, tmp_path):
    """A service whose history's `append` fails as often as there are errors in the list."""
    history, errors = History.open(tmp_path / "history.db"), []
    append = history.append

    def failing(observed):
        if errors:
            raise errors.pop()
        return append(observed)

    history.append = failing
    service = Service({"blocks": detector}, graph=graph, history=history)
    service.errors = errors
    yield service
    service.close()


def names(service):
    return [one.entry.name for one in service.judged]


def small():
    return Data(x=torch.ones(3, 8), edge_index=torch.tensor([[0], [1]]))


def test_a_kept_graph_that_could_not_be_entered_is_entered_later(service):
    service.kept.change(Changes.of({"nodes": [{"id": "new", "features": [1] * 8}]}, 8))
    service._observed = (-1, 0.0)
    service.errors.append(HistoryError("lost"))
    service.enter()
    assert ([*service.problems()], names(service)) == (["history"], ["kept graph"])
    service.enter()
    assert (service.problems(), names(service)) == ({}, ["kept graph"] * 2)
    service.enter()
    assert len(service.judged) == 2


def test_what_can_never_be_entered_is_said_left_out_and_counted(service, caplog):
    for _ in range(2):
        service.decide(service.models[None], small(), false_alarm=0.05)
    service.errors.append(ZeroDivisionError("poison"))
    service.enter()
    assert [*service.problems()] == ["history"]
    assert "poison" in caplog.text
    assert [one.graphs for one in caplog.records if one.message == "left out"] == [2]
    service.decide(service.models[None], small(), false_alarm=0.05)
    service.enter()
    assert (service.problems(), names(service)) == ({}, ["kept graph", "request"])


def test_a_kept_graph_that_cannot_be_observed_is_said_once(service, monkeypatch, caplog):
    service._observed = (-1, 0.0)
    monkeypatch.setattr("gnnsafe.service.state.observe", lambda *_, **__: 1 / 0)
    monkeypatch.setattr(watching, "AGAIN", 0.05)
    monkeypatch.setattr(watching, "EVERY", 0.0)
    told = []
    monkeypatch.setattr(service.watch, "_told", told.append)
    thread = threading.Thread(target=service.watch.run, args=(service.enter,))
    thread.start()
    while None not in told:
        time.sleep(0.01)
    service.watch._ended = True
    thread.join()
    assert [one for one in told if one is not None] == ["division by zero"]
    assert caplog.text.count("ZeroDivisionError") == 1


def test_another_detector_has_not_the_alarm_of_the_one_before(service, detector, graph, monkeypatch):
    strange = Data(x=graph.x + 9, edge_index=graph.edge_index)
    service.decide(service.models[None], strange, false_alarm=0.05)
    service.enter()
    assert service.judged[-1].raised(service.alpha)
    other = gnnsafe.Detector(detector.classifier.model, "energy").fit(graph).calibrate(graph)
    history, entries = service.watch.history, service.watch.history.entries

    def lost(*_, **__):
        raise HistoryError("lost")

    history.entries = history.first = lost
    service.swap(ServedModel.of("blocks", other))
    service.enter()
    assert ([*service.problems()], service.judged) == (["history"], ())
    assert overview(service, None)["state"]["kind"] == "unknown"
    assert b"gnnsafe_martingale" not in service.metrics.text()
    del history.first

    def swapped(*options, **named):  # back, while what the history says of the other is read
        monkeypatch.setattr(history, "entries", entries)
        found = entries(*options, **named)
        service.swap(ServedModel.of("blocks", detector))
        return found

    history.entries = swapped
    service.enter()
    assert service.judged == ()
    service.enter()
    assert service.judged[-1].raised(service.alpha)
    assert names(service) == ["kept graph", "request"]


def test_a_swap_waits_for_no_database(service, detector, graph, tmp_path):
    other = gnnsafe.Detector(detector.classifier.model, "energy").fit(graph).calibrate(graph)
    history, free = service.watch.history, threading.Event()

    def hanging(*_, **__):
        free.wait()
        return []

    history.entries = history.first = hanging
    writer = threading.Thread(target=service.enter)
    writer.start()
    swapping = threading.Thread(target=service.swap, args=(ServedModel.of("blocks", other),))
    swapping.start()
    swapping.join(10)
    waits = swapping.is_alive()
    free.set()
    swapping.join()
    writer.join()
    del history.entries, history.first
    assert not waits
    assert service.watch._wake.is_set()  # for what the history says of the other


def test_what_waits_is_bounded_in_bytes_and_shares_what_is_of_the_detector(service):
    service.decide(service.models[None], small(), false_alarm=0.05)
    service.decide(service.models[None], small(), false_alarm=0.05)
    (_, one), (_, two) = service.watch._waiting
    assert one.watching[1].data_ptr() == two.watching[1].data_ptr()
    wide = replace(one, entry=replace(one.entry, features=FeatureMoments(np.zeros(10**6), np.zeros(10**6))))
    named = replace(one, decisions=replace(one.decisions, ids=["x" * 10**6] * 3))
    assert min(watching._size(wide), watching._size(named)) > 10**6 > 20_000 > watching._size(one) > 4_000
    assert service.watch._size == watching._size(one) + watching._size(two)
    service.errors.append(HistoryError("lost"))
    service.enter()
    assert (len(service.watch._waiting), service.watch._size) == (2, 2 * watching._size(one))
    service.enter()
    assert (service.watch._waiting, service.watch._size) == ([], 0)


def test_a_request_after_a_quiet_minute_is_written_at_once(made, tmp_path):
    client = made(history=History.open(tmp_path / "history.db"))
    history, came, waits = client.service.watch.history, threading.Event(), threading.Event()

    def slow(method):
        def slowed(*options, **named):
            waits.set()
            came.wait()
            return method(*options, **named)

        return slowed

    def entered():
        return [one.entry.nodes for one in history.entries()[1:]]

    history.first, history.entries = slow(history.first), slow(history.entries)
    assert client.post("/v1/score", json=GRAPH).status_code == 200
    waits.wait()
    for _ in range(2):  # in the same minute, while the first is written
        assert client.post("/v1/score", json=GRAPH).status_code == 200
    del history.first, history.entries
    came.set()
    while not entered():
        time.sleep(0.01)
    time.sleep(0.3)
    assert entered() == [len(GRAPH["x"])]
    client.service.enter()
    assert entered() == [len(GRAPH["x"]), 2 * len(GRAPH["x"])]


def test_a_busy_service_adds_few_entries_and_knows_since_when(made, tmp_path, monkeypatch, graph):
    monkeypatch.setattr(watching, "LAST", 2)
    monkeypatch.setattr(Watch, "run", lambda *_: None)
    client = made(history=History.open(tmp_path / "history.db"))
    watch, many = client.service.watch, {"x": (graph.x + 9).tolist(), "edge_index": graph.edge_index.tolist()}
    for asked_for in ("", "?fdr=0.1", "?false_alarm=0.2", ""):
        assert client.post(f"/v1/score{asked_for}", json=many).status_code == 200
    client.service.enter()
    assert [one.entry.name for one in watch.followed.judged] == ["kept graph", "4 requests"]
    last = watch.followed.judged[-1]
    assert (last.entry.nodes, last.counted) == (480, 120)  # a node counts once
    assert last.raised(0.01)
    for _ in range(3):
        client.post("/v1/score", json=many)
        client.service.enter()
    assert [one.number for one in watch.followed.judged] == [4, 5]
    assert (watch.followed.began.number, watch.followed.raised.number) == (1, 2)
    assert "(4 requests)" in client.get("/").text
    again = Watch(watch.history, 0.01, lambda _: None)
    again.follow(client.service.models[None].detector)
    again.write()
    assert (again.followed.began.number, again.followed.raised.number) == (1, 2)


def asked(served, path, record=None):
    content = None if record is None else json.dumps(record).encode()
    request = urllib.request.Request(served.url + path, content, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.loads(answer.read())


def test_slow_clients_gone_clients_and_an_orderly_end(folders, tmp_path):
    journal = tmp_path / "journal"
    with serving(f"blocks={folders[0]}", "--graph", folders[1], "--journal", journal, "--max-seconds", 3) as served:
        head = b"POST /v1/score HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        head += b"Content-Length: 100\r\n\r\n{"
        slow = [socket.create_connection((served.host, served.port)) for _ in range(20)]
        for one in slow:
            one.sendall(head)
        for one in slow[10:]:
            one.close()  # gone
        assert asked(served, "v1/score", GRAPH)["nodes"] == 3  # nobody else waits for them
        answer = slow[0].recv(4096)
        assert answer.startswith(b"HTTP/1.1 408")
        for one in slow:
            one.close()
        assert asked(served, "readyz")["ready"]
        assert asked(served, "v1/graph/changes", {"nodes": [{"id": "new", "features": [1] * 8}]})["version"] == 1
        served.process.send_signal(signal.SIGHUP)  # the detector is read again
        many = {"x": [[1.0] * 8] * 2000, "edge_index": [[number % 2000 for number in range(9000)]] * 2}
        accepted = socket.create_connection((served.host, served.port))
        content = json.dumps(many).encode()
        accepted.sendall(head.replace(b"Content-Length: 100", b"Content-Length: %d" % len(content))[:-1] + content)
        time.sleep(0.1)
        served.process.send_signal(signal.SIGTERM)
        received = b""
        while piece := accepted.recv(2**16):
            received += piece
        accepted.close()
        assert received.startswith(b"HTTP/1.1 200")  # SIGTERM drops no accepted request
        assert b'"nodes":2000' in received
        assert served.process.wait(timeout=30) == 0
    with serving(f"blocks={folders[0]}", "--graph", folders[1], "--journal", journal) as served:
        assert asked(served, "v1/nodes/new")["id"] == "new"
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", 1))


def test_a_journal_that_cannot_be_compacted_is_said_and_the_service_goes_on(made, tmp_path, monkeypatch):
    monkeypatch.setattr("gnnsafe.evolving.scored.ROOM", -1)
    monkeypatch.setattr("gnnsafe.evolving.graph.EvolvingGraph.size", 0)
    client = made(journal=tmp_path / "journal")
    change = {"nodes": [{"id": "new", "features": [1.0] * 8}]}
    assert client.post("/v1/graph/changes", json=change).status_code == 200
    with monkeypatch.context() as patched:
        patched.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        client.service.compact()
    assert "compaction" in client.get("/readyz").json()["problems"]
    assert client.post("/v1/graph/changes", json=change).json()["version"] == 2
    client.service.compact()
    assert client.get("/readyz").status_code == 200
    assert len(list(tmp_path.glob("journal.*.npz"))) == 1
