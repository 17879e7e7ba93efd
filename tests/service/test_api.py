"""Graphs over HTTP: scored as they come, or kept and changed."""

from __future__ import annotations

import html
import io
import json
import re

import numpy as np
import pyarrow as pa
import pytest
import torch
from pyarrow import csv, feather, parquet
from tests.service.conftest import NASTY

from gnnsafe.monitoring import History


def as_json(graph, **more):
    return {"x": graph.x.tolist(), "edge_index": graph.edge_index.tolist(), **more}


def tables(graph, write):
    nodes = pa.table({"id": list(map(str, graph.node_id)), "features": graph.x.tolist()})
    source, target = graph.edge_index.tolist()
    edges = pa.table({"source": [graph.node_id[a] for a in source], "target": [graph.node_id[b] for b in target]})
    return {name: (f"../../etc/{name}", write(table)) for name, table in (("nodes", nodes), ("edges", edges))}


def in_memory(write):
    def written(table):
        sink = io.BytesIO()
        write(table, sink)
        return sink.getvalue()

    return written


def stream(table, sink):
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)


def flat(table, sink):
    if "features" in table.column_names:
        columns = np.array(table["features"].to_pylist()).T
        table = pa.table({"id": table["id"], **{f"f{number}": column for number, column in enumerate(columns)}})
    csv.write_csv(table, sink)


def test_a_graph_as_json_is_decided_about_as_the_library_decides(client, graph, detector):
    answer = client.post("/v1/score?false_alarm=0.1", json=as_json(graph, node_id=graph.node_id))
    expected = detector.decide(graph, false_alarm=0.1)
    found = answer.json()
    assert answer.status_code == 200
    assert (found["nodes"], found["flagged"]) == (120, int(expected.flags.sum()))
    assert found["decisions"]["id"] == graph.node_id
    assert found["decisions"]["flag"] == expected.flags.tolist()
    assert found["decisions"]["p_value"] == expected.p_values.tolist()
    assert found["decisions"]["predicted"][:2] == [
        graph.class_names[label] for label in expected.predicted[:2].tolist()
    ]
    np.testing.assert_allclose(found["decisions"]["score"], expected.scores.numpy(), rtol=1e-5)


@pytest.mark.parametrize(
    "write",
    [
        parquet.write_table,
        stream,
        lambda table, sink: feather.write_feather(table, sink, compression="uncompressed"),
        flat,
    ],
    ids=["parquet", "arrow stream", "arrow file", "csv"],
)
def test_tables_are_read_whatever_they_are_called_and_answered_as_arrow(client, graph, detector, write):
    accept = {"Accept": "application/vnd.apache.arrow.stream"}
    answer = client.post("/v1/score", files=tables(graph, in_memory(write)), headers=accept)
    assert answer.status_code == 200, answer.text
    table = pa.ipc.open_stream(answer.content).read_all()
    assert table["id"].to_pylist() == graph.node_id
    np.testing.assert_allclose(table["score"].to_numpy(), detector.score(graph).numpy(), rtol=1e-5)


def test_a_compressed_arrow_batch_is_refused(client, graph):
    packed = in_memory(lambda table, sink: feather.write_feather(table, sink, compression="lz4"))
    answer = client.post("/v1/score", files=tables(graph, packed))
    assert (answer.status_code, "without compression" in answer.json()["error"]) == (400, True)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "the body must be JSON"),
        (b"[]", "'graph' must be an object"),
        (b"{", "the body must be JSON"),
        (b"\xff\xfe", "the body must be JSON"),
        (b'{"x": NaN, "edge_index": []}', "NaN is no number"),
        (b'{"x": [[1]], "edge_index": [[], []]}', "'x' must have 8 features (got 1)"),
        (b'{"x": [[1, 2], [3]], "edge_index": [[], []]}', "all rows as long"),
        (b'{"x": "abc", "edge_index": []}', "list of lists of numbers"),
        (b'{"x": [[1e999]], "edge_index": []}', "must"),
        (b'{"x": [], "edge_index": []}', "must"),
        (b'{"x": [[1,1,1,1,1,1,1,1]], "edge_index": [[0], [5]]}', "must"),
        (b'{"x": [[1,1,1,1,1,1,1,1]], "edge_index": [[0.5], [0]]}', "'edge_index' must be numbers"),
        (b'{"x": [[1,1,1,1,1,1,1,1]], "edge_index": [[99999999999999999999999], [0]]}', "'edge_index' must be"),
        (b'{"x": [[1,1,1,1,1,1,1,1]], "edge_index": [], "node_id": [1, 2]}', "'node_id' must be 1 texts"),
        (b'{"x": [[1,1,1,1,1,1,1,1]], "edge_index": [], "url": "file:///etc/passwd"}', "'graph' must be an object"),
        (b"[" * 100_000, "the body must be JSON"),
    ],
)
def test_what_is_no_graph_is_refused_in_one_sentence(client, body, words):
    answer = client.post("/v1/score", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400
    assert words in answer.json()["error"]
    assert "\n" not in answer.json()["error"]
    assert "Traceback" not in answer.text


def test_one_node_without_edges_is_a_graph(client):
    answer = client.post("/v1/score", json={"x": [[1.0] * 8], "edge_index": [[], []]})
    assert (answer.status_code, answer.json()["nodes"]) == (200, 1)


def test_other_kinds_of_bodies_are_refused(client):
    assert client.post("/v1/score", content=b"{}").status_code == 415
    packed = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    assert client.post("/v1/score", content=b"{}", headers=packed).status_code == 415
    one = client.post("/v1/score", files={"nodes": ("n", b"id,a\n1,2\n")})
    assert (one.status_code, "nodes and edges (got nodes)" in one.json()["error"]) == (400, True)
    form = {"Content-Type": "multipart/form-data"}
    assert client.post("/v1/score", content=b"x", headers=form).status_code == 400


def test_changes_are_scored_listed_and_explained(client):
    new = {"id": "new/1 ?", "features": [9.0] * 8}
    answer = client.post("/v1/graph/changes", json={"nodes": [new], "edges": [["new/1 ?", "n3"], ["n4", "new/1 ?"]]})
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert found["version"] == 1
    row = dict(
        zip(
            found["decisions"],
            (values[found["decisions"]["id"].index("new/1 ?")] for values in found["decisions"].values()),
            strict=True,
        )
    )
    one = client.get("/v1/nodes/new%2F1%20%3F").json()
    assert one == pytest.approx(row)
    listed = client.get("/v1/nodes", params={"search": "NEW/", "flagged": row["flag"]}).json()
    assert (listed["total"], listed["nodes"][0]["id"]) == (1, "new/1 ?")
    why = client.get("/v1/nodes/new%2F1%20%3F/explanation").json()
    assert why["score"] == pytest.approx(row["score"], abs=1e-5)
    text = client.get("/v1/nodes/new%2F1%20%3F/explanation?format=text")
    assert text.text.startswith("Node new/1 ? scores")
    picture = client.get("/v1/nodes/n3/explanation?format=svg")
    assert picture.headers["content-type"] == "image/svg+xml"
    assert picture.content.startswith(b"<svg")
    glance = client.get("/v1/graph").json()
    assert (glance["nodes"], glance["version"], glance["hops"]) == (121, 1, 4)
    assert client.post("/v1/graph/rescore").json()["flagged"] == glance["flagged"]


def test_an_answer_about_many_has_the_most_unusual(made):
    client = made(rows=5)
    found = client.post("/v1/graph/changes", json={"nodes": [{"id": "n1", "features": [0] * 8}]}).json()
    assert len(found["decisions"]["id"]) == 5
    assert found["left_out"] == found["nodes"] - 5
    every = client.get("/v1/nodes?limit=5").json()["nodes"]
    if found["whole"]:
        assert {row["id"] for row in every} == {*found["decisions"]["id"]}


@pytest.mark.parametrize(
    "path", ["/v1/nodes/nobody", "/v1/nodes/nobody/explanation", "/nodes/nobody", "/v1/models/x/reload"]
)
def test_what_is_not_there_is_404(client, path):
    answer = client.post(path) if "reload" in path else client.get(path)
    assert answer.status_code == 404
    assert "must be" in answer.json()["error"]


@pytest.mark.parametrize("path", ["/v1/nodes", "/v1/graph", "/v1/nodes/n1", "/nodes"])
def test_without_a_kept_graph_that_is_said(made, path):
    client = made(kept=False)
    answer = client.get(path)
    assert (answer.status_code, "--graph" in answer.json()["error"]) == (404, True)
    assert "No graph is kept" in client.get("/").text


@pytest.mark.parametrize("query", ["sort=name", "limit=0", "limit=5000", "offset=-1", "flagged=perhaps"])
def test_a_query_that_breaks_a_rule_is_refused_in_one_sentence(client, query):
    answer = client.get(f"/v1/nodes?{query}")
    assert answer.status_code == 400
    assert query.split("=")[0] in answer.json()["error"]


def test_too_much_is_413(made, graph):
    small = made(body=2000)
    assert small.post("/v1/score", json=as_json(graph)).status_code == 413
    pieces = (b"[" + b"1," * 300 for _ in range(10))
    assert small.post("/v1/score", content=pieces, headers={"Content-Type": "application/json"}).status_code == 413
    few = made(nodes=100)
    answer = few.post("/v1/score", json=as_json(graph))
    assert (answer.status_code, "at most 100" in answer.json()["error"]) == (413, True)
    written = tables(graph, in_memory(parquet.write_table))
    assert few.post("/v1/score", files=written).status_code == 413
    assert made(edges=10).post("/v1/score", json=as_json(graph)).status_code == 413


def test_names_are_escaped_on_pages_and_never_act(client):
    for path in (
        "/",
        "/nodes",
        "/nodes/"
        + json.dumps(NASTY)[1:-1].replace("\\", "").replace("/", "%2F").replace("<", "%3C").replace(">", "%3E"),
    ):
        page = client.get(path)
        assert page.status_code == 200, path
        assert "<script>alert" not in page.text
        assert page.headers["content-security-policy"].startswith("default-src 'none'")
    assert "&lt;script&gt;" in client.get("/nodes?search=script").text
    assert torch.is_tensor(torch.ones(1))


def test_the_upload_says_what_is_kept_of_it(made, tmp_path):
    assert "Nothing of them is kept" in made().get("/upload").text
    watched = made(history=History.open(tmp_path / "history.db")).get("/upload").text
    assert "counted by the alarm" in watched
    assert "ids of the nodes in the middle of regions" in watched


def test_who_counts_is_listed_with_the_node_itself_and_what_is_left_out(client):
    """The page's shares add up to the score, and a node that its text names is in the table."""
    client.post("/v1/graph/changes", json={"edges": [[f"n{number}", "n17"] for number in range(50, 90)]})
    why = client.get("/v1/nodes/n17/explanation").json()
    page = client.get("/nodes/n17").text
    table = page.partition("Who counts in the score")[2].partition("</table>")[0]
    assert len(why["shares"]) > 20
    assert f"20 of {len(why['shares'])} nodes" in table
    assert '<th scope="row">itself</th>' in table
    assert f"{len(why['shares']) - 20} others together" in table
    told = page.partition("<pre>")[2].partition("</pre>")[0]
    named = set(re.findall(r"\bn\d+\b", told)) - {"n17"}
    assert named
    assert all(f'href="/nodes/{name}"' in table for name in named)
    numbers = re.findall(r'class="number">([-\d.e]+)</td></tr>', table)
    assert sum(map(float, numbers)) == pytest.approx(why["score"], rel=0.01)


@pytest.mark.parametrize(
    ("path", "status", "kept"),
    [("/nodes/nope", 404, True), ("/zzz", 404, True), ("/nodes?sort=bad", 400, True), ("/nodes", 404, False)],
)
def test_a_person_gets_an_error_as_a_page_and_a_program_as_json(made, path, status, kept):
    client = made(kept=kept)
    page = client.get(path, headers={"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"})
    sentence = client.get(path).json()["error"]
    assert page.status_code == client.get(path).status_code == status
    assert page.headers["content-type"].startswith("text/html")
    assert '<nav aria-label="Pages">' in page.text
    assert sentence in html.unescape(page.text)
    assert "error" in client.get("/v1/nodes/nope", headers={"Accept": "text/html"}).json()


def test_a_table_is_named_as_the_form_names_it(client):
    """Whatever the file is called: what is neither Parquet nor Arrow is read as CSV."""
    files = {"nodes": ("nodes.pkl", b"id,f0\n1,many\n"), "edges": ("edges.pkl", b"source,target\n")}
    assert client.post("/v1/score", files=files).json()["error"].startswith("nodes (read as CSV)")


def test_one_node_is_no_nodes_and_one_that_is_not_flagged_is_not_called_kept(client):
    page = client.get("/nodes?search=n117").text
    assert "1 node, page 1 of 1" in page
    assert ">kept<" not in page
