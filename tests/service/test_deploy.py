"""The examples for operators say what the code says: metrics of the dashboard, commands of the container files."""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path

import pytest
import yaml

from gnnsafe.cli import serve
from gnnsafe.monitoring import History

DEPLOY = Path(__file__).parents[2] / "deploy"


def test_the_dashboard_asks_for_metrics_that_are_there(made, tmp_path):
    client = made(history=History.open(tmp_path / "history.db"))
    client.post("/v1/score", json={"x": [[1.0] * 8], "edge_index": [[], []]})
    there = set(re.findall(r"^(gnnsafe_\w+)", client.get("/metrics").text, re.MULTILINE))
    panels = json.loads((DEPLOY / "grafana.json").read_text(encoding="utf-8"))["panels"]
    asked = {name for one in panels for target in one["targets"] for name in re.findall(r"gnnsafe_\w+", target["expr"])}
    assert len(asked) > 10
    assert asked <= there


def commands():
    text = (DEPLOY / "Containerfile").read_text(encoding="utf-8")
    yield json.loads(re.search(r"^CMD (\[.*\])$", text, re.MULTILINE)[1])
    record = yaml.safe_load((DEPLOY / "kserve.yaml").read_text(encoding="utf-8"))
    yield record["spec"]["predictor"]["containers"][0]["args"]


@pytest.mark.parametrize("command", list(commands()))
def test_the_command_takes_the_options_of_the_examples(command):
    parser = argparse.ArgumentParser()
    serve.configure(parser)
    arguments = parser.parse_args(command)
    assert arguments.host == "0.0.0.0"
    assert arguments.token_file is not None  # as it is required there
    assert str(arguments.graph) == "/graph"


def test_the_image_carries_what_the_extras_name():
    text = (DEPLOY / "Containerfile").read_text(encoding="utf-8")
    assert "'.[serve,monitor]'" in text
    assert "USER gnnsafe" in text
