"""`gnnsafe monitor` from end to end."""

from __future__ import annotations

import json
import shutil
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
import torch
from tests.conftest import block_graph

import gnnsafe
from gnnsafe.cli import main
from gnnsafe.models import GCN
from gnnsafe.monitoring import webhook

ROOT = Path(__file__).parents[1]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A detector and the graphs of two calm days and an odd one."""
    folder = tmp_path_factory.mktemp("monitor")
    graph = block_graph(300, seed=1)
    torch.manual_seed(0)
    model = GCN(8, 8, 3)
    gnnsafe.train(model, graph, objective=gnnsafe.CrossEntropy(), epochs=30)
    other = block_graph(300, seed=2)
    detector = gnnsafe.Detector(model).fit(graph).calibrate(other, mask=~other.train_mask)
    detector.save(folder / "detector")
    for name, seed in (("monday", 5), ("tuesday", 6), ("odd", 7)):
        day = block_graph(300, seed=seed)
        if name == "odd":
            day.x = day.x[torch.randperm(300)] * 2
        torch.save(day, folder / f"{name}.pt")
    return folder


def run(folder: Path, *arguments: str, graph: str | None = None, history: Path | str) -> int:
    given = [] if graph is None else [str(folder / "detector"), str(folder / f"{graph}.pt")]
    return main(["monitor", *given, "--history", str(history), *arguments])


def test_calm_then_alarm_by_exit_code_json_and_log(folder, tmp_path, capsys):
    history = tmp_path / "history.db"
    assert run(folder, graph="monday", history=history) == 0
    out, log = capsys.readouterr()
    assert out.startswith("calm: the martingale is at ")
    assert "not to be relied on" not in out
    (line,) = log.splitlines()
    assert json.loads(line)["event"] == "gnnsafe.monitor"
    assert json.loads(line)["status"] == "calm"
    assert json.loads(line)["counted"] == 300
    assert run(folder, "--json", graph="tuesday", history=history) == 0
    calm = json.loads(capsys.readouterr().out)
    assert (calm["status"], calm["since"], calm["entries"], calm["threshold"]) == ("calm", None, 2, 100)
    assert 0 < calm["entry"]["accuracy"]["value"] <= 1
    assert run(folder, graph="odd", history=history) == 3
    assert capsys.readouterr().out.startswith("ALARM since ")
    assert run(folder, "--json", history=history) == 3  # judged again without another graph
    alarm = json.loads(capsys.readouterr().out)
    assert (alarm["status"], alarm["entries"], alarm["number"]) == ("alarm", 3, 3)
    assert alarm["since"]["name"].endswith("odd.pt")
    assert alarm["changed"]["features"]
    assert run(folder, graph="monday", history=history) == 3  # it stays raised
    assert "%, not to be relied on after an alarm" in capsys.readouterr().out


def test_the_report_needs_no_network_and_escapes_names(folder, tmp_path, capsys):
    history, page = tmp_path / "history.db", tmp_path / "drift.html"
    torch.save(torch.load(folder / "odd.pt", weights_only=False), tmp_path / "<b>odd.pt")
    assert main(["monitor", str(folder / "detector"), str(tmp_path / "<b>odd.pt"), "--history", str(history),
                 "--report", str(page)]) == 3  # fmt: skip
    text = page.read_text(encoding="utf-8")
    assert "<b>odd" not in text
    assert "&lt;b&gt;odd" in text
    assert "Drift report: Alarm since " in text
    assert "After an alarm the estimated accuracy is not to be relied on" in text
    assert text.count('vegaEmbed("#') == text.count("<figure") == 4
    own = text.split("</script>", 1)[1]  # except for the library
    assert "http://" not in own.replace("http://www.w3.org", "")
    assert "src=" not in own
    assert f"Report: {page}" in capsys.readouterr().out


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium here: the page was not tried in a browser")
def test_on_a_phone_the_report_does_not_scroll_sideways(folder, tmp_path):
    sync_api = pytest.importorskip("playwright.sync_api")
    page = tmp_path / "drift.html"
    assert run(folder, "--report", str(page), graph="monday", history=tmp_path / "history.db") == 0
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        opened = browser.new_page(viewport={"width": 375, "height": 740})
        opened.goto(page.as_uri())
        opened.locator("figure svg").nth(3).wait_for()
        assert opened.evaluate("document.documentElement.scrollWidth") <= 375
        browser.close()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--history", "no.db"], "'--history' must be a file that is there"),
        (["detector", "--history", "h.db"], "'GRAPH' must be given with DETECTOR"),
        (["detector", "monday.pt", "--history", "."], "'--history' must be a file"),
        (["detector", "monday.pt", "--history", "monday.pt"], "'history' must be a database"),
        (["detector", "monday.pt", "--history", "mysql://x/y"], "PostgreSQL"),
        (["detector", "monday.pt", "--history", "h.db", "--alpha", "0"], "must lie in (0, 1)"),
        (["detector", "monday.pt", "--history", "h.db", "--webhook", "ftp://x"], "'--webhook' must be a URL"),
        (["detector", "monday.pt", "--history", "h.db", "--webhook", "http://x:99999"], "'--webhook' must be a URL"),
        (["detector", "monday.pt", "--history", "h.db", "--report", "monday.pt"], "must be no file that is read"),
        (["detector", "nowhere.pt", "--history", "h.db"], "nowhere.pt"),
        (["detector", "monday.pt"], "--history"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(folder, arguments, complaint, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    before = (folder / "monday.pt").read_bytes()
    with suppress(SystemExit):  # argparse's
        assert main(["monitor", *arguments]) == 2
    error = capsys.readouterr().err
    assert complaint in error
    assert len(error.splitlines()) == 1
    assert (folder / "monday.pt").read_bytes() == before


def test_an_empty_history_cannot_be_judged(folder, tmp_path, capsys):
    (tmp_path / "h.db").touch()
    assert run(folder, history=tmp_path / "h.db") == 2
    assert "'--history' must have an entry" in capsys.readouterr().err


class Hook(BaseHTTPRequestHandler):
    """Refuses the first request, takes the second."""

    received: list[dict] = []  # noqa: RUF012

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.received.append(json.loads(body))
        self.send_response(503 if len(self.received) == 1 else 204)
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


def test_the_webhook_is_tried_again(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("no_proxy", "*")
    server = HTTPServer(("127.0.0.1", 0), Hook)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}/hook"
    try:
        assert run(folder, "--webhook", url, graph="odd", history=tmp_path / "h.db") == 3
    finally:
        server.shutdown()
        server.server_close()
    assert [one["status"] for one in Hook.received] == ["alarm", "alarm"]
    assert "the webhook was not reached" not in capsys.readouterr().err


def test_a_webhook_that_fails_is_a_warning(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("no_proxy", "*")
    assert run(folder, "--webhook", "http://127.0.0.1:1/hook", graph="odd", history=tmp_path / "h.db") == 3
    assert "the webhook was not reached" in capsys.readouterr().err


def test_a_webhook_that_never_answers_is_left(monkeypatch):
    monkeypatch.setattr(webhook, "_tried", lambda *_: time.sleep(60))
    start = time.perf_counter()
    assert webhook.notified("http://127.0.0.1/", {}, limit=0.2) == "no answer within 0.2 seconds"
    assert time.perf_counter() - start < 10
