"""A small detector, graphs that it watches, and histories in SQLite and in a real PostgreSQL."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tests.conftest import block_graph

import gnnsafe
from gnnsafe.graph import Data
from gnnsafe.models import GCN
from gnnsafe.monitoring import History


def drawn(seed: int, *, odd: bool = False, num_nodes: int = 150) -> Data:
    """A graph as the detector's own was, with other nodes; an odd one has no class in its features."""
    graph = block_graph(num_nodes, seed=seed)
    if odd:
        graph.x = torch.rand(num_nodes, 8, generator=torch.Generator().manual_seed(seed)) * 3
    return unmasked(graph)


def unmasked(graph: Data) -> Data:
    graph = copy.copy(graph)
    for name in ("train_mask", "val_mask", "test_mask"):
        del graph[name]
    return graph


@pytest.fixture(scope="session")
def known_graph() -> Data:
    return block_graph(600, seed=1)


@pytest.fixture(scope="session")
def trained(known_graph: Data) -> gnnsafe.Detector:
    """By the default method, calibrated on another graph, as nodes of other graphs are to come."""
    torch.manual_seed(0)
    model = GCN(8, 8, 3)
    gnnsafe.train(model, known_graph, objective=gnnsafe.CrossEntropy(), epochs=30)
    other = drawn(2, num_nodes=600)
    return gnnsafe.Detector(model).fit(known_graph).calibrate(other, mask=torch.ones(600, dtype=torch.bool))


@pytest.fixture
def detector(trained: gnnsafe.Detector) -> gnnsafe.Detector:
    return copy.copy(trained)


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory):
    """The URL of a PostgreSQL that runs for the tests, by a Unix socket."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its own, while it is imported
        import pgserver
    server = pgserver.get_server(tmp_path_factory.mktemp("pg"), cleanup_mode="stop")
    yield server.get_uri()
    server.cleanup()


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where an empty history may be."""
    if request.param == "sqlite":
        return str(tmp_path / "history.db")
    url = request.getfixturevalue("postgres")
    with History.open(url) as history, history._transaction(write=True) as connection:
        connection.exec_driver_sql("TRUNCATE gnnsafe_entries, gnnsafe_alarms")
    return url


@pytest.fixture
def graphs() -> Callable[..., Data]:
    return drawn
