"""Histories in SQLite and PostgreSQL: what was appended is there, whole, whoever else writes and whoever is killed."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.synchronize import Event
from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

import gnnsafe
from gnnsafe.errors import HistoryError, InputError
from gnnsafe.models import GCN
from gnnsafe.monitoring import Alarm, History, Judgement, detector_digest, gather, observe
from gnnsafe.monitoring.entry import Observation

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.filterwarnings("ignore:.*nodes are flagged:gnnsafe.errors.CalibrationWarning")


def small(detector: gnnsafe.Detector, graphs, seed: int) -> Observation:
    return observe(detector, graphs(seed, num_nodes=30), name=f"day {seed}")


def test_entries_come_back_as_they_were_appended(detector, graphs, place):
    observed = observe(detector, graphs(5), name="monday")
    with History.open(place) as history:
        judged = history.append(observed)
        history.append(observe(detector, graphs(6), name="tuesday"))
    with History.open(place) as history:
        first, second = history.entries()
        assert [one.entry.name for one in history.entries(last=1)] == ["tuesday"]
        assert history.entries("another") == []
    assert first.entry.to_dict() == observed.entry.to_dict() == judged.entry.to_dict()
    np.testing.assert_array_equal(first.entry.features.mean, observed.entry.features.mean)
    assert first.number < second.number
    assert (first.counted, first.total, second.total) == (150, 150, 300)
    assert first.entry.nodes == 150
    assert sum(first.entry.classes.values()) == 150
    assert sum(map(sum, first.entry.p_values.values())) == 150


def test_the_state_is_the_one_of_an_alarm_that_saw_all_runs(detector, graphs, place):
    observations = [small(detector, graphs, seed) for seed in (5, 6, 7)]
    with History.open(place) as history:
        for observed in observations:
            judged = history.append(observed)
        kept = history.alarm(judged.entry.detector)
    alarm = observations[0].calm
    for observed in observations:
        alarm = alarm.after(observed.scores(np.arange(30)))
    assert kept.to_dict() == alarm.to_dict()
    assert judged.log_value == alarm.log_value


def test_one_that_taught_never_counts_where_edges_alone_tell_and_are_read_both_ways(known_graph):
    """All features are alike, so that a graph is known again by its edges, as the detector reads them."""
    alike = known_graph.clone()
    alike.x, alike.edge_index = torch.ones(600, 8), alike.edge_index[:, ::3]
    detector = gnnsafe.Detector(GCN(8, 8, 3), "degree", undirected=True).fit(alike).calibrate(alike)
    assert torch.equal(torch.from_numpy(observe(detector, alike).candidates), alike.test_mask.nonzero().flatten())
    with pytest.raises(InputError, match="'mask' must be a boolean tensor"):
        observe(detector, alike, mask=torch.arange(10))


def test_a_node_that_another_writer_counted_does_not_count_again(detector, graphs, place):
    with History.open(place) as mine, History.open(place) as yours:
        assert mine.append(observe(detector, graphs(5))).counted == 150
        assert yours.append(observe(detector, graphs(5))).counted == 0
        assert yours.append(observe(detector, graphs(6))).counted == 150
        assert mine.append(observe(detector, graphs(6))).counted == 0  # though it has read the history before


def test_graphs_gathered_are_one_entry_and_a_node_counts_once(detector, graphs):
    days = [graphs(5), graphs(6, num_nodes=40), graphs(5)]
    parts = [observe(detector, day, name="request") for day in days]
    both = gather(detector, parts, name="3 requests")
    entry, ends = both.entry, [one.entry for one in parts]
    assert (entry.name, entry.time, entry.level) == ("3 requests", ends[-1].time, ends[-1].level)
    for name in ("nodes", "edges", "flagged"):
        assert getattr(entry, name) == sum(getattr(one, name) for one in ends)
    assert entry.degrees["isolated"] == sum(one.degrees["isolated"] for one in ends)
    x = torch.cat([day.x for day in days])
    assert np.allclose(entry.features.mean, x.mean(dim=0), atol=1e-5)
    assert np.allclose(entry.features.deviation, x.std(dim=0, correction=0), atol=1e-5)
    with History.open("sqlite:///:memory:") as alone, History.open("sqlite:///:memory:") as together:
        counted = [alone.append(one) for one in parts]
        last = together.append(both)
    assert last.total == counted[-1].total == sum(one.counted for one in counted)


def test_a_node_counts_once_and_one_that_taught_never(detector, known_graph, graphs, tmp_path):
    graph = graphs(5)
    with History.open(tmp_path / "h.db") as history:
        assert history.append(observe(detector, graph)).counted == 150
        assert history.append(observe(detector, graph)).counted == 0
        moved = graph.clone()
        moved.x[:7] += 0.01  # those have changed, and are nodes that came
        moved.edge_index = moved.edge_index.flip(1)
        assert history.append(observe(detector, moved)).counted == 7
        used = known_graph.train_mask | known_graph.val_mask
        last = history.append(observe(detector, known_graph))
        assert last.counted == int((~used).sum())
        mask = torch.arange(150) < 10
        assert history.append(observe(detector, graphs(6), mask=mask)).counted == 10


def test_nodes_that_are_alike_count_as_often_as_they_come(detector, graphs, tmp_path):
    graph = graphs(5)
    graph.x[:3] = graph.x[9]
    with History.open(tmp_path / "h.db") as history:
        assert history.append(observe(detector, graph)).counted == 150
        assert history.append(observe(detector, graph)).counted == 0
        graph.x[3] = graph.x[9]  # a fifth
        assert history.append(observe(detector, graph)).counted == 1


def test_a_twin_of_a_training_node_counts_once_wherever_it_comes(known_graph, tmp_path):
    """In the training graph the masks tell twins apart, in one that has grown only their order does."""
    twins = known_graph.clone()
    used = twins.train_mask | twins.val_mask
    pairs = list(zip((~used).nonzero().flatten().tolist(), used.nonzero().flatten().tolist(), strict=False))
    for free, taught in [pair for pair in pairs if pair[0] < pair[1]][:20]:  # in their order the wrong one is first
        twins.x[free] = twins.x[taught]
    detector = gnnsafe.Detector(GCN(8, 8, 3), "energy").fit(twins).calibrate(twins)
    grown = Data(x=torch.cat([twins.x, torch.rand(3, 8)]), edge_index=twins.edge_index)
    with History.open(tmp_path / "history.db") as history:
        assert history.append(observe(detector, twins)).counted == int((~used).sum())
        assert history.append(observe(detector, grown)).counted == 3


def test_nodes_that_share_their_features_are_known_by_their_graph(known_graph, tmp_path):
    """All features alike: a graph that comes again as a whole is known, and training nodes where it is theirs."""
    graph = known_graph.clone()
    graph.x = torch.ones_like(graph.x)
    model = gnnsafe.models.GCN(8, 8, 3)
    detector = gnnsafe.Detector(model, "energy").fit(graph).calibrate(graph)
    with History.open(tmp_path / "h.db") as history:
        assert history.append(observe(detector, graph)).counted == int(graph.test_mask.sum())
        assert history.append(observe(detector, graph)).counted == 0


def test_another_detector_begins_anew_in_the_same_history(detector, known_graph, graphs, tmp_path):
    other = gnnsafe.Detector(detector.classifier.model, "energy").fit(known_graph).calibrate(known_graph)
    assert detector_digest(other) != detector_digest(detector)
    with History.open(tmp_path / "h.db") as history:
        assert history.append(observe(detector, graphs(5, odd=True))).raised(0.01)
        assert not history.append(observe(other, graphs(6, num_nodes=600))).raised(0.01)
        assert history.append(observe(detector, graphs(6))).raised(0.01)  # it stays raised
        assert [len(history.entries(detector_digest(one))) for one in (detector, other)] == [2, 1]


def test_a_saved_detector_continues_the_stream_and_scoring_another_graph_leaves_it(detector, graphs, tmp_path):
    before = detector_digest(detector)
    detector.score(graphs(9, odd=True))
    detector.save(tmp_path / "d")
    assert before == detector_digest(detector) == detector_digest(gnnsafe.load(tmp_path / "d"))


def test_eight_threads_lose_nothing(detector, graphs, place):
    observations = [small(detector, graphs, seed) for seed in range(10, 26)]
    with History.open(place) as history, ThreadPoolExecutor(8) as pool:
        numbers = [judged.number for judged in pool.map(history.append, observations)]
        entries = history.entries()
    assert len({*numbers}) == 16
    assert [one.total for one in entries] == [30 * count for count in range(1, 17)]  # each continued the one before


def _write(place: str, observed: Observation, times: int, begun: Event | None = None) -> None:
    with History.open(place) as history:
        for _ in range(times):
            history.append(observed)
            if begun is not None:
                begun.set()


def test_processes_lose_nothing(detector, graphs, place):
    context = multiprocessing.get_context("fork")  # what was scored is handed over as it is
    writers = [context.Process(target=_write, args=(place, small(detector, graphs, seed), 5)) for seed in range(10, 14)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
    assert [writer.exitcode for writer in writers] == [0] * 4
    with History.open(place) as history:
        entries = history.entries()
    assert len(entries) == 20
    assert sorted(one.counted for one in entries) == [0] * 16 + [30] * 4
    assert entries[-1].total == 120


def test_killed_writers_leave_a_whole_history(detector, graphs, place):
    """Killed at any moment: each entry that is there has the state that it leads to, and others go on."""
    context = multiprocessing.get_context("fork")
    with History.open(place) as history:
        history.append(small(detector, graphs, 40))
    observations = [small(detector, graphs, seed) for seed in range(50, 60)]
    for number, observed in enumerate(observations):
        begun = context.Event()
        writer = context.Process(target=_write, args=(place, observed, 1000, begun))
        writer.start()
        assert begun.wait(60)
        time.sleep(0.007 * number)
        os.kill(writer.pid, signal.SIGKILL)
        writer.join(30)
    with History.open(place) as history:
        judged = history.append(small(detector, graphs, 41))
        entries = history.entries()
        alarm = history.alarm(judged.entry.detector)
    assert len(entries) >= 12
    assert judged.total == sum(one.counted for one in entries) == alarm.nodes
    assert alarm.log_value == judged.log_value == entries[-1].log_value
    assert alarm.runs == sum(one.counted > 0 for one in entries)


def test_what_is_no_history_is_refused_in_one_line(tmp_path, detector, graphs):
    text = tmp_path / "nodes.csv"
    text.write_text("id,a\n1,2\n" * 100)
    with pytest.raises(HistoryError, match=r"'history' must be a database .* not a database"):
        History.open(text)
    assert text.read_text().startswith("id,a")
    with pytest.raises(HistoryError, match="unable to open"):
        History.open(tmp_path / "no" / "folder" / "h.db")
    with pytest.raises(InputError, match="PostgreSQL"):
        History.open("mysql://somewhere/else")
    with pytest.raises(HistoryError, match="path or a URL"):
        History.open("postgresql://host:port/x")


def test_a_database_that_is_gone_is_said_without_the_password():
    with pytest.raises(HistoryError, match="must be a database that can be read") as raised:
        History.open("postgresql://me:secret@127.0.0.1:1/x?connect_timeout=1")
    assert "secret" not in str(raised.value)


def test_without_sqlalchemy_it_says_what_to_install(tmp_path):
    code = "import sys; sys.modules['sqlalchemy'] = None\nfrom gnnsafe.monitoring import History\nHistory.open('h.db')"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-W", "ignore", "-c", code]
    found = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert "MissingExtraError: a history needs sqlalchemy: pip install 'gnnsafe[monitor]'" in found.stderr


def test_a_judgement_says_since_when_and_what_changed(detector, graphs, tmp_path):
    with History.open(tmp_path / "h.db") as history:
        for seed in (5, 6):
            history.append(observe(detector, graphs(seed, num_nodes=600), name=f"day {seed}"))
        calm = Judgement(history.entries(), 0.01)
        history.append(observe(detector, graphs(7, odd=True), name="odd day"))
        history.append(observe(detector, graphs(8), name="day 8"))
        found = Judgement(history.entries(), 0.01, feature_names=tuple("abcdefgh"))
    assert not calm.alarm
    assert calm.lines()[0].startswith("calm: the martingale is at ")
    assert found.alarm
    assert found.since.entry.name == "odd day"
    assert found.to_dict()["status"] == "alarm"
    assert found.to_dict()["since"]["name"] == "odd day"
    assert {change.name for change in found.features()} <= {*"abcdefgh"}
    with pytest.raises(InputError, match="have an entry"):
        Judgement([], 0.01)


def test_a_shifted_graph_raises_it_though_the_default_method_takes_what_is_common_off_p_values(known_graph, detector):
    """All nodes shifted a little: TwoScale's δ takes the median shift off p-values; what is watched is without it."""
    shifted = gnnsafe.shifts.feature_noise(known_graph, 3, strength=1.0)
    observed = observe(detector, shifted)
    alarm = observed.calm.after(observed.scores(np.arange(len(observed.candidates))))
    assert isinstance(alarm, Alarm)
    assert alarm.raised(0.01)
