from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from starlette.testclient import TestClient
from tests.conftest import block_graph
from torch_geometric.data import Data

import gnnsafe
from gnnsafe.models import GCN
from gnnsafe.service import Limits, Service, create_app

NASTY = '<script>alert("x")</script>'


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Graphs this small are flagged or kept in large shares, of which the library warns."""
    for item in items:
        if "tests/service" in str(item.path):
            item.add_marker(pytest.mark.filterwarnings("ignore::gnnsafe.errors.CalibrationWarning"))


@pytest.fixture(scope="session")
def graph() -> Data:
    data = block_graph()
    data.node_id = [f"n{number}" for number in range(119)] + [NASTY]
    data.class_names = ("red", NASTY, "blue & green")
    return data


@pytest.fixture(scope="session")
def detector(graph) -> gnnsafe.Detector:
    torch.manual_seed(0)
    model = GCN(8, 16, 3)
    gnnsafe.train(model, graph, objective=gnnsafe.CrossEntropy(), epochs=30)
    return gnnsafe.Detector(model, "gnnsafe").fit(graph).calibrate(graph)


@pytest.fixture(scope="session")
def folders(graph, detector, tmp_path_factory) -> tuple[Path, Path]:
    """A detector and a graph in files."""
    folder = tmp_path_factory.mktemp("served")
    detector.save(folder / "detector")
    np.savez(folder / "graph.npz", x=graph.x.numpy(), edge_index=graph.edge_index.numpy())
    return folder / "detector", folder / "graph.npz"


@pytest.fixture
def made(detector, graph) -> Iterator[Callable[..., TestClient]]:
    """A client of a service with these settings."""
    clients = []

    def make(
        *, kept: bool = True, token: str | None = None, history: Any = None, journal: Path | None = None, **limits: int
    ) -> TestClient:
        service = Service(
            {"blocks": detector, "other": detector}, graph=graph if kept else None, limits=Limits(**limits),
            history=history, journal=journal,
        )  # fmt: skip
        client = TestClient(
            create_app(service, token=token), base_url="http://127.0.0.1", raise_server_exceptions=False
        )
        client.__enter__()
        client.service = service
        clients.append(client)
        return client

    yield make
    for client in clients:
        client.__exit__(None, None, None)


@pytest.fixture
def client(made) -> TestClient:
    return made()


class Served:
    """A service in a process of its own."""

    def __init__(self, process: subprocess.Popen[str], url: str) -> None:
        self.process, self.url = process, url
        self.host, self.port = "127.0.0.1", int(url.rstrip("/").rpartition(":")[2])


@contextmanager
def serving(*arguments: object) -> Iterator[Served]:
    """`gnnsafe serve` with these arguments, at any free port."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-m", "gnnsafe", "serve", *map(str, arguments), "--port", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        told = []
        for line in process.stderr:
            told.append(line)
            if '"listening"' in line:
                yield Served(process, json.loads(line)["url"])
                break
        else:
            pytest.fail(f"the service did not start: {''.join(told)}")
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()
