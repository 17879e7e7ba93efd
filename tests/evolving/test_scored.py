"""A kept graph says after each change what a full scoring says; its journal outlives it."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import torch
from tests.evolving.conftest import chain
from torch_geometric.data import Data

import gnnsafe
from gnnsafe.errors import InputError
from gnnsafe.evolving import Changes, Query, ScoredGraph
from gnnsafe.methods.scored import scored_part
from gnnsafe.models import GCN

pytestmark = pytest.mark.filterwarnings("ignore::gnnsafe.errors.CalibrationWarning")


def detector(trained, method="gnnsafe", **options):
    data, model = trained
    return gnnsafe.Detector(model, method, **options).fit(data).calibrate(data)


def random_changes(kept, rng, number):
    ids = list(kept.graph.numbers)
    names = {kept.graph.numbers[key]: key for key in ids}
    gone = [(names[a], names[b]) for b in rng.choice(list(names), 2) for a in kept.graph._into.row(b)[:1].tolist()]
    leaving = [ids[int(rng.integers(len(ids)))]] if number % 3 == 0 else []
    gone = [pair for pair in dict.fromkeys(gone) if not {*pair} & {*leaving}]
    came = f"new{number}"
    others = [one for one in ids if one not in leaving]
    near = [others[int(rng.integers(len(others)))] for _ in range(3)]
    return {
        "nodes": [
            {"id": came, "features": rng.random(6).tolist()},
            {"id": near[0], "features": rng.random(6).tolist()},
        ],
        "edges": [[came, near[1]], [near[2], came], [near[1], near[1]], [came, near[1]]],
        "remove_nodes": leaving,
        "remove_edges": [list(pair) for pair in gone],
    }


@pytest.mark.parametrize("undirected", [False, True])
@pytest.mark.parametrize("method", ["gnnsafe", "degree-balance", "energy"])
def test_each_change_gives_the_scores_of_a_full_scoring(trained, method, undirected):
    one = detector(trained, method, undirected=undirected)
    kept, rng, parts = ScoredGraph(one, chain()), np.random.default_rng(1), 0
    for number in range(30):
        change = kept.change(Changes.of(random_changes(kept, rng, number), 6))
        parts += not change.whole
        nodes, data = kept.graph.whole()
        full = one.decide(data, false_alarm=0.05)
        rows = [kept.columns.row(int(node)) for node in nodes]
        np.testing.assert_allclose([row.score for row in rows], full.scores.numpy(), rtol=2e-5, atol=2e-5)
        np.testing.assert_allclose([row.p_value for row in rows], full.p_values.numpy(), atol=0.02)
        assert [row.predicted for row in rows] == full.predicted.tolist()
        assert len(rows) == kept.columns.summary().nodes == kept.graph.count
    assert parts > 20  # of a part, not of the whole


def test_two_scale_goes_by_the_weights_of_the_last_whole_scoring(trained):
    one = detector(trained, None)
    kept = ScoredGraph(one, chain(3000))
    before = kept._detector._detector.method.weights_.clone()
    one.score(chain(500, seed=3))  # what the detector scores elsewhere is none of the kept graph's business
    change = kept.change(Changes.of({"nodes": [{"id": 5, "features": [9.0] * 6}]}, 6))
    assert not change.whole
    assert torch.equal(kept._detector._detector.method.weights_, before)
    _, data = kept.graph.whole()
    touched = [kept.graph.number(name) for name in change.decisions.ids]
    found = kept._detector._detector.predict_new(data, torch.tensor([5]), false_alarm=0.05)
    assert found.nodes.tolist() == touched
    torch.testing.assert_close(found.scores, change.decisions.scores, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(found.p_values, change.decisions.p_values, rtol=0, atol=0.02)


def test_what_in_neighbours_explain_is_left_out_of_a_kept_graph_too(trained):
    """Scattered odd nodes, so that p-values ask how odd in-neighbours are: by a part, as by the whole graph."""
    one, data = detector(trained, None), chain(3000)
    data.x[::8, :3] = data.x[::8, :3].roll(1, dims=1)  # features of another class
    kept = ScoredGraph(one, data)
    method = kept._detector._detector.method
    assert float(method.explaining_) > 0.1
    changed = {"nodes": [{"id": 5, "features": data.x[8].tolist()}, {"id": 40, "features": data.x[3].tolist()}]}
    change = kept.change(Changes.of(changed, 6))
    assert not change.whole
    _, now = kept.graph.whole()
    inner = kept._detector._detector
    outputs = inner.outputs(now)
    whole = inner.calibrated().p_values(scored_part(method.looking_at(outputs.graph), outputs).compared)
    nodes, _ = kept.graph.whole()
    mine = [kept.columns.row(int(node)).p_value for node in nodes]
    np.testing.assert_allclose(mine, whole.numpy(), atol=0.02)


def test_how_many_a_change_touches_is_known_beforehand(trained):
    kept = ScoredGraph(detector(trained), chain())
    asked = list(range(0, 400, 200))
    change = kept.change(Changes.of({"nodes": [{"id": one, "features": [1.0] * 6} for one in asked]}, 6))
    assert kept.touched_by(2) == len(change.decisions) > 2
    assert kept.touched_by(400) is None


def test_what_was_acknowledged_is_there_again(trained, tmp_path):
    one, journal, rng = detector(trained), tmp_path / "journal", np.random.default_rng(2)
    kept = ScoredGraph(one, chain(), journal=journal)
    for number in range(12):
        kept.change(Changes.of(random_changes(kept, rng, number), 6))
    rows = kept.columns.listed(Query(limit=1000))
    kept.close()
    with journal.open("ab") as file:
        file.write(b'0123456789abcdef {"nodes": [')  # cut short
    again = ScoredGraph(one, chain(), journal=journal)
    assert again.version == 12
    assert again.graph.numbers.keys() == kept.graph.numbers.keys()
    assert again.graph.num_edges == kept.graph.num_edges
    found = again.columns.listed(Query(limit=1000))
    assert found[0] == rows[0]
    scores = {row.id: row.score for row in rows[1]}
    assert {row.id: row.score for row in found[1]} == pytest.approx(scores, abs=1e-4)
    again.change(Changes.of({"nodes": [{"id": 1, "features": [0] * 6}]}, 6))  # after the line that was cut


def test_a_journal_of_another_graph_a_damaged_one_and_one_in_use_are_refused(trained, tmp_path):
    one, journal = detector(trained), tmp_path / "journal"
    kept = ScoredGraph(one, chain(), journal=journal)
    kept.change(Changes.of({"nodes": [{"id": 1, "features": [0] * 6}]}, 6))
    with pytest.raises(InputError, match="which one has"):
        ScoredGraph(one, chain(), journal=journal)
    kept.close()
    with pytest.raises(InputError, match="which is of another"):
        ScoredGraph(one, chain(seed=1), journal=journal)
    content = journal.read_bytes()
    lines = content.splitlines(keepends=True)
    journal.write_bytes(lines[0] + lines[1].replace(b"nodes", b"modes") + lines[1])
    with pytest.raises(InputError, match="a damaged line"):
        ScoredGraph(one, chain(), journal=journal)


@pytest.mark.parametrize(
    ("record", "words"),
    [
        ([], "'changes' must be an object"),
        ({"nodes": 3}, "'nodes' must be a list"),
        ({"other": []}, "hold nothing but nodes, edges"),
        ({"nodes": [{"id": "a"}]}, "id and features"),
        ({"nodes": [{"id": "a", "features": [1, 2]}]}, "be 6 numbers"),
        ({"nodes": [{"id": "a", "features": [1, 2, 3, 4, 5, float("nan")]}]}, "finite"),
        ({"nodes": [{"id": "a", "features": [1, 2, 3, 4, 5, 1e39]}]}, "finite"),
        ({"nodes": [{"id": "a", "features": ["b"] * 6}]}, "list of numbers"),
        ({"nodes": [{"id": None, "features": [1] * 6}]}, "text or a whole number"),
        ({"nodes": [{"id": "", "features": [1] * 6}]}, "text or a whole number"),
        ({"nodes": [{"id": True, "features": [1] * 6}]}, "text or a whole number"),
        ({"nodes": [{"id": 1, "features": [1] * 6}, {"id": "1", "features": [1] * 6}]}, "each node once"),
        ({"edges": [[1, 2, 3]]}, r"\[source, target\]"),
        ({"edges": [[1, "nobody"]]}, "join nodes that are there"),
        ({"edges": [[1, 2]], "remove_nodes": [2]}, "join nodes that are there"),
        ({"remove_nodes": ["nobody"]}, "name nodes of the graph"),
        ({"remove_nodes": [1, 1]}, "each node once"),
        ({"remove_nodes": [1], "nodes": [{"id": 1, "features": [1] * 6}]}, "no node that comes"),
        ({"remove_edges": [[1, 399]]}, "name edges of the graph"),
        ({"remove_edges": [[0, 1]] * 4}, "which it has"),
        ({"remove_nodes": list(range(400))}, "leave a node"),
    ],
)
def test_a_change_that_breaks_a_rule_changes_nothing(trained, record, words):
    kept = ScoredGraph(detector(trained), chain())
    rows, edges = kept.columns.listed(Query(limit=1000)), kept.graph.num_edges
    with pytest.raises(InputError, match=words):
        kept.change(Changes.of(record, 6))
    assert (kept.columns.listed(Query(limit=1000)), kept.graph.num_edges, kept.version) == (rows, edges, 0)


def state(kept):
    graph = kept.graph
    nodes, data = graph.whole()
    order = np.lexsort(data.edge_index.numpy())
    rows = {graph.ids[int(node)]: graph.x[node].tolist() for node in nodes}
    edges = [(graph.ids[int(nodes[a])], graph.ids[int(nodes[b])]) for a, b in data.edge_index.T[order].tolist()]
    return (
        rows,
        sorted(edges, key=str),
        graph.count,
        graph.num_edges,
        kept.version,
        kept.columns.listed(Query(limit=999)),
    )


def test_what_cannot_be_scored_or_written_is_undone_to_the_last_edge(trained, tmp_path):
    kept, rng = ScoredGraph(detector(trained), chain(), journal=tmp_path / "journal"), np.random.default_rng(4)
    for number in range(9):
        kept.change(Changes.of(random_changes(kept, rng, number), 6))
        before, content = state(kept), (tmp_path / "journal").read_bytes()
        poison = random_changes(kept, rng, 100 + 3 * number)
        poison["nodes"].append({"id": "poison", "features": [3e38] * 6})
        poison["edges"].append(["poison", poison["nodes"][0]["id"]])
        poison["edges"].append(["poison", "poison"])
        with pytest.raises(InputError):
            kept.change(Changes.of(poison, 6))
        assert state(kept) == before
        assert (tmp_path / "journal").read_bytes() == content
    left = next(name for name in kept.graph.numbers if len(kept.graph._into.row(kept.graph.numbers[name])) > 2)
    kept.change(Changes.of({"edges": [[left, left]]}, 6))
    before = state(kept)
    with pytest.raises(InputError):  # a node with a loop goes, and comes back
        kept.change(Changes.of({"remove_nodes": [left], "nodes": [{"id": "p", "features": [3e38] * 6}]}, 6))
    assert state(kept) == before


def test_ids_are_texts_or_numbers_and_loops_and_lonely_nodes_are_nodes(trained):
    data = chain()
    data.node_id = [f"n{number}" for number in range(399)] + ["<b>é\u202e</b>"]
    kept = ScoredGraph(detector(trained), data)
    kept.change(Changes.of({"nodes": [{"id": 7, "features": [1] * 6}], "edges": [["n3", "n3"], ["n3", 7]]}, 6))
    assert kept.graph.number("7") == kept.graph.number(7)
    total, rows = kept.columns.listed(Query(search="<B>É"))
    assert (total, rows[0].id) == (1, "<b>é\u202e</b>")
    kept.change(Changes.of({"remove_nodes": ["7"]}, 6))
    assert kept.graph.number(7) is None
    assert kept.columns.listed(Query(search="7", limit=1000))[0] == sum("7" in one for one in data.node_id)


def test_a_lonely_node_that_goes_and_no_change_at_all_touch_nobody(trained, tmp_path):
    kept = ScoredGraph(detector(trained), chain(), journal=tmp_path / "journal")
    for record in ({"remove_nodes": [49]}, {}):
        change = kept.change(Changes.of(record, 6))
        assert (len(change.decisions), change.whole) == (0, False)
    assert (kept.columns.summary().nodes, kept.version) == (399, 2)


def test_explanations_agree_with_the_scores_and_name_the_users_ids(trained):
    one, data = detector(trained), chain()
    data.node_id = [f"n{number}" for number in range(400)]
    kept = ScoredGraph(one, data)
    why, whole = kept.explain("n17"), one.explain(data, node="n17")
    assert why.node_ids[why.node] == "n17"
    assert why.score == pytest.approx(whole.score, abs=1e-5)
    assert why.p_value == pytest.approx(whole.p_value, abs=0.02)
    named = {why.node_ids[share.node]: share.share for share in why.shares}
    assert named == pytest.approx({data.node_id[share.node]: share.share for share in whole.shares}, abs=1e-4)
    drawn = {why.node_ids[one["node"]]: one["score"] for one in why.ego[0]}
    assert drawn == pytest.approx({data.node_id[one["node"]]: one["score"] for one in whole.ego[0]}, abs=1e-4)
    assert kept.explain("nobody") is None


def test_a_listing_is_sorted_filtered_and_paged_without_gaps(trained):
    kept = ScoredGraph(detector(trained), chain())
    for sort, reverse in (("score", False), ("score", True), ("p_value", False), ("probability", True)):
        every = [
            row
            for page in range(40)
            for row in kept.columns.listed(Query(sort=sort, reverse=reverse, offset=10 * page, limit=10))[1]
        ]
        assert len({row.id for row in every}) == 400
        values = [getattr(row, sort) for row in every]
        assert values == sorted(values, reverse=(sort == "score") != reverse)
    flagged, rows = kept.columns.listed(Query(flagged=True, limit=400))
    assert flagged == len(rows) == kept.columns.summary().flagged
    assert all(row.flag for row in rows)
    counts = kept.columns.summary().classes
    assert {name: kept.columns.listed(Query(predicted=name))[0] for name in counts} == counts
    assert kept.columns.listed(Query(predicted="none such"))[0] == 0
    assert sum(kept.columns.summary().p_values) == 400


def test_eight_threads_change_and_read_at_once(trained):
    kept, failures = ScoredGraph(detector(trained), chain()), []

    def work(thread):
        try:
            for number in range(5):
                name = f"t{thread}-{number}"
                kept.change(Changes.of({"nodes": [{"id": name, "features": [1] * 6}], "edges": [[name, thread]]}, 6))
                assert kept.columns.listed(Query(search=name))[0] == 1
                kept.explain(name)
                kept.columns.summary()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert (kept.version, kept.graph.count) == (40, 440)


def test_what_cannot_be_kept_is_refused(trained):
    data, _ = trained
    with pytest.raises(InputError, match="receptive field"):
        ScoredGraph(detector(trained, "grasp"), data)
    foreign = torch.nn.Linear(6, 3)
    other = gnnsafe.Detector(foreign, "gnnsafe", forward=lambda model, graph: model(graph.x)).fit(data).calibrate(data)
    with pytest.raises(InputError, match="a method and a model of gnnsafe's"):
        ScoredGraph(other, data)


def test_another_detector_takes_over(trained):
    kept = ScoredGraph(detector(trained), chain())
    kept.swap(detector(trained, "energy"))
    _, data = kept.graph.whole()
    expected = detector(trained, "energy").score(data)
    np.testing.assert_allclose([kept.columns.row(k).score for k in range(400)], expected.numpy(), rtol=1e-5)
    small = Data(x=torch.rand(60, 2), edge_index=torch.zeros(2, 0, dtype=torch.int64), y=torch.arange(60) % 2)
    small.train_mask, small.val_mask = torch.arange(60) < 30, torch.arange(60) >= 30
    with pytest.raises(InputError, match="as the one before did"):
        kept.swap(gnnsafe.Detector(GCN(2, 4, 2), "energy").fit(small).calibrate(small))
