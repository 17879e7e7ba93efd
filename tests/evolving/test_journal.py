"""A journal that is compacted: bounded, and whole whenever the process is killed."""

from __future__ import annotations

import errno
import os
import signal
from itertools import count
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.evolving.conftest import chain
from tests.evolving.test_scored import detector, random_changes, state
from torch_geometric.data import Data

from gnnsafe.errors import InputError
from gnnsafe.evolving import Changes, ScoredGraph, scored
from gnnsafe.evolving.journal import Journal
from gnnsafe.evolving.snapshot import Snapshot, snapshots

pytestmark = pytest.mark.filterwarnings("ignore::gnnsafe.errors.CalibrationWarning")


def after(version: int) -> Data:
    """A graph that tells how many changes it has seen."""
    return Data(x=torch.full((2, 1), float(version)), edge_index=torch.tensor([[0], [1]]), node_id=["é", 7])


def written(path: Path, told: int) -> None:
    """Seven changes, and a compaction after the second, in which the third comes, and one after the fifth."""
    journal = Journal(path, "graph")
    for number in range(7):
        if number == 2:
            end, snapshot = journal.end, Snapshot.written(path, after(2), 2)
        journal.append({"number": number})
        os.write(told, b".")  # acknowledged
        if number == 2:
            journal.rebase(snapshot, end)
        if number == 4:
            journal.rebase(Snapshot.written(path, after(5), 5), journal.end)
    journal.close()


def killed_at(step: int, path: Path) -> tuple[bool, int]:
    """Whether `written` was killed, right before its step that reaches the disk of this number; how many it told."""
    told, tell = os.pipe()
    if (child := os.fork()) == 0:
        steps = count()

        def dying(call):
            def wrapped(*given, **named):
                if next(steps) == step:
                    os.kill(os.getpid(), signal.SIGKILL)
                return call(*given, **named)

            return wrapped

        for name in ("pwrite", "fsync", "replace", "ftruncate", "unlink"):
            setattr(os, name, dying(getattr(os, name)))
        np.savez = dying(np.savez)
        Path.unlink = dying(Path.unlink)
        try:
            written(path, tell)
        finally:
            os._exit(0)
    os.close(tell)
    status = os.waitpid(child, 0)[1]
    with os.fdopen(told, "rb") as acknowledged:
        return os.WIFSIGNALED(status), len(acknowledged.read())


def test_killed_at_any_step_what_was_acknowledged_is_there(tmp_path):
    for step in count():
        path = tmp_path / str(step) / "journal"
        path.parent.mkdir()
        killed, told = killed_at(step, path)
        journal = Journal(path, "graph")
        first = 0 if journal.base.file is None else journal.base.version
        assert first + journal.count in (told, told + 1)  # on the disk, and perhaps not yet told
        assert [one["number"] for one in journal.changes()] == list(range(first, first + journal.count))
        if first:
            assert journal.base.data(path).x.tolist() == [[first], [first]]
            assert journal.base.data(path).node_id == ["é", 7]
        assert [one.name for one in snapshots(path)] == ([journal.base.file] if first else [])
        journal.append({"number": first + journal.count})  # and it goes on
        journal.close()
        if not killed:
            break
    assert step > 30
    assert (first, journal.count) == (5, 2)


def test_a_compacted_graph_is_the_same_after_a_restart_and_changes_meanwhile_are_kept(trained, tmp_path, monkeypatch):
    monkeypatch.setattr(scored, "ROOM", 0)
    one, journal, rng = detector(trained), tmp_path / "journal", np.random.default_rng(5)
    kept = ScoredGraph(one, chain(), journal=journal)
    assert not kept.compact()  # nothing to gain
    while kept._journal.size <= kept.graph.size:
        kept.change(Changes.of(random_changes(kept, rng, kept.version), 6))
    write = Snapshot.written

    def meanwhile(*given):
        made = write(*given)
        kept.change(Changes.of(random_changes(kept, rng, kept.version), 6))
        return made

    monkeypatch.setattr(scored.Snapshot, "written", meanwhile)
    before = journal.stat().st_size
    assert kept.compact()
    assert kept._journal.count == 0  # read when it was opened
    assert journal.stat().st_size < before / 5
    kept.change(Changes.of(random_changes(kept, rng, kept.version), 6))
    then = state(kept)
    kept.close()
    again = ScoredGraph(one, chain(), journal=journal)
    assert again._journal.count == 2
    found = state(again)
    assert found[:5] == then[:5]  # features, edges, counts, version
    scores = {row.id: row.score for row in then[5][1]}
    assert {row.id: row.score for row in found[5][1]} == pytest.approx(scores, abs=1e-4)
    again.close()
    (snapshot,) = snapshots(journal)
    snapshot.write_bytes(snapshot.read_bytes()[:-1])
    with pytest.raises(InputError, match="have the snapshot that it begins from"):
        ScoredGraph(one, chain(), journal=journal)


def test_a_full_disk_leaves_the_journal_as_it_was(trained, tmp_path, monkeypatch):
    monkeypatch.setattr(scored, "ROOM", -1)
    monkeypatch.setattr("gnnsafe.evolving.graph.EvolvingGraph.size", 0)
    kept = ScoredGraph(detector(trained), chain(), journal=tmp_path / "journal")
    kept.change(Changes.of({"remove_nodes": [49]}, 6))
    content = (tmp_path / "journal").read_bytes()

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    for name in ("numpy.savez", "os.replace"):
        with monkeypatch.context() as patched:
            patched.setattr(name, full)
            with pytest.raises(OSError, match="No space"):
                kept.compact()
        assert (tmp_path / "journal").read_bytes() == content
    assert kept.compact()
    kept.change(Changes.of({"remove_nodes": [99]}, 6))
    kept.close()
    assert not kept.compact()
    assert ScoredGraph(detector(trained), chain(), journal=tmp_path / "journal").version == 2
