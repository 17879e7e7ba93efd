"""`gnnsafe serve`: what a user may get wrong is said in one line, before anything is served."""

from __future__ import annotations

import json
import logging
import socket
import warnings

import pytest

from gnnsafe.cli import main
from gnnsafe.cli.serve import _folders
from gnnsafe.service import Service, running, state


def refused(capsys, *arguments):
    assert main(["serve", *map(str, arguments)]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    return told


def test_beyond_loopback_a_token_is_required(capsys, folders, tmp_path):
    assert "'--host' must be on this machine without a token" in refused(capsys, folders[0], "--host", "0.0.0.0")
    short = tmp_path / "token"
    short.write_text("short\n")
    assert "at least 16 letters" in refused(capsys, folders[0], "--host", "0.0.0.0", "--token-file", short)
    assert "must be a text file" in refused(capsys, folders[0], "--token-file", tmp_path / "none")


def test_what_is_no_detector_no_graph_and_no_port_is_said(capsys, folders, tmp_path):
    assert "must be the folder of a detector" in refused(capsys, tmp_path / "none")
    assert "must be a file or folder that is there" in refused(capsys, folders[0], "--graph", tmp_path / "none")
    assert "have names of their own" in refused(capsys, folders[0], folders[0])
    with pytest.raises(SystemExit):
        main(["serve", str(folders[0]), "--port", "70000"])


def test_detectors_have_names():
    found = _folders(["a=b/c", "x/y/"])
    assert {name: str(folder) for name, folder in found.items()} == {"a": "b/c", "y": "x/y"}


def test_a_port_that_is_taken_is_said(capsys, folders):
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert "must be one to listen at" in refused(capsys, folders[0], "--port", taken.getsockname()[1])


def test_one_scored_graph_is_a_page_in_a_file(capsys, folders, tmp_path):
    page = tmp_path / "scores.html"
    command = ["score", str(folders[0]), str(folders[1]), "--out", str(tmp_path / "scores.csv"), "--page", str(page)]
    assert main(command) == 0
    assert f"Page: {page}" in capsys.readouterr().out
    text = page.read_text(encoding="utf-8")
    assert "of 120 nodes flagged" in text
    assert "<script" not in text
    assert "http" not in text.replace("http://www.w3.org", "")  # works offline
    assert main([*command, "--fdr", "0.1"]) == 2
    assert "'--page' must be for one graph" in capsys.readouterr().err


def test_small_answers_are_not_held_back():
    """asyncio switches Nagle's algorithm off for sockets that say they are TCP's: else an answer waits for 40 ms."""
    with running._listening("127.0.0.1", 0) as listening:
        assert listening.proto == socket.IPPROTO_TCP


def test_the_log_says_at_the_start_what_a_change_costs(detector, graph, caplog, monkeypatch):
    caplog.set_level(logging.INFO, "gnnsafe.service")
    service = Service({"blocks": detector}, graph=graph)
    service.announce()
    (record,) = caplog.records
    assert (record.message, record.nodes, record.hops) == ("kept graph", 120, 4)
    assert record.touched_by_10 == 120  # most of so small a graph: it is scored as a whole
    monkeypatch.setattr(state, "SLOW", 0.0)
    service.announce()
    assert "reads 4 hops, so that each change scores the whole graph" in caplog.records[-1].reason
    assert "--method gnnsafe" in caplog.records[-1].remedy
    service.close()


def test_a_librarys_warning_is_an_event_with_a_reason(caplog):
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = running._warned
        warnings.warn("many nodes are flagged", UserWarning, stacklevel=1)
    (record,) = caplog.records
    told = json.loads(running.JsonLines().format(record))
    assert (told["event"], told["kind"], told["reason"]) == ("warning", "UserWarning", "many nodes are flagged")
