"""Shared fixtures. No test reaches the network or the user's cache; real data is used where it is present."""

from __future__ import annotations

import gc
import os
import socket
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import hypothesis
import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from gnnsafe.bench.curves import Curves
from gnnsafe.bench.store import Record
from gnnsafe.methods import METHODS
from gnnsafe.metrics import Detection
from gnnsafe.models import MODELS
from gnnsafe.training import OBJECTIVES

hypothesis.settings.register_profile("gnnsafe", deadline=None)  # a busy machine is not a failure
hypothesis.settings.load_profile("gnnsafe")

LOOPBACK = ("127.0.0.1", b"127.0.0.1", "::1", "localhost")
SHARED = Path(__file__).parents[2] / "shared" / "data"

LONGEST = (  # files in tests/ that take more than ten seconds, in the order in which they are begun
    "engines/test_spark.py", "methods/test_numbers.py", "engines/test_faults.py", "test_release.py", "test_pages.py",
    "bench/test_cores.py", "test_device_contract.py", "methods/test_contract.py", "service/test_browser.py",
    "service/test_faults.py", "test_cli_bench.py", "datasets/test_catalogue.py", "bench/test_run.py", "test_site.py",
    "bench/test_own.py", "models/test_contract.py", "methods/test_receptive_field.py", "methods/test_threads.py",
)  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes longest is begun first: a worker has whole files, and none should be left for the end."""
    places = {str(Path(__file__).parent / name): place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(str(item.path), len(places)))


def pytest_collection_finish() -> None:
    """What is there now stays to the end: not looked through again whenever garbage is collected."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def data_root() -> Path:
    """The real data sets: $GNNSAFE_DATA as the tests were started, or ../shared/data."""
    root = Path(os.environ.get("GNNSAFE_TEST_DATA", SHARED))
    if not (root / "Planetoid" / "Cora" / "raw").is_dir():
        pytest.skip("no real data sets available")
    return root


@pytest.fixture(scope="session", autouse=True)
def _outside_world(tmp_path_factory: pytest.TempPathFactory):
    """A cache of its own for the test run, no data root but the one a test asks for, and no network."""
    patch = pytest.MonkeyPatch()
    if root := os.environ.get("GNNSAFE_DATA"):
        patch.setenv("GNNSAFE_TEST_DATA", root)
        patch.delenv("GNNSAFE_DATA")
    patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))

    def only_here(reach: Callable[..., Any], place: int) -> Callable[..., Any]:
        """A service that a test has started is on this machine; nothing else is reached."""

        def reached(*arguments: Any, **options: Any) -> Any:
            address = arguments[place]
            host = address[0] if isinstance(address, tuple) else address
            if host not in LOOPBACK:
                raise OSError("tests do not reach the network")
            return reach(*arguments, **options)

        return reached

    patch.setattr(socket.socket, "connect", only_here(socket.socket.connect, 1))
    patch.setattr(socket, "getaddrinfo", only_here(socket.getaddrinfo, 0))
    yield
    patch.undo()


@pytest.fixture(autouse=True)
def _same_random_numbers() -> None:
    """A test makes the same models whichever tests ran before it."""
    torch.manual_seed(0)


@pytest.fixture
def registries(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers is forgotten afterwards."""
    for registry in (METHODS, MODELS, OBJECTIVES):
        monkeypatch.setattr(registry, "_classes", dict(registry._classes))


@pytest.fixture
def directed() -> SimpleNamespace:
    """A directed graph with all that real graphs bring: a repeated edge, self-loops, a source, an isolated node.

    Edges: 0→1, 0→1 (again), 1→2, 2→0, 3→2, 2→2 (loop), 2→2 (again); 3 has no in-neighbours, 4 is alone.
    """
    torch.manual_seed(0)
    return SimpleNamespace(
        x=torch.randn(5, 6), edge_index=torch.tensor([[0, 0, 1, 2, 3, 2, 2], [1, 1, 2, 0, 2, 2, 2]]), num_nodes=5
    )


def block_graph(num_nodes: int = 120, num_classes: int = 3, seed: int = 0) -> Data:
    """A small homophilous graph with class-dependent features and split masks, quick to learn."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(num_nodes) % num_classes
    x = torch.rand(num_nodes, 8, generator=generator)
    x[torch.arange(num_nodes), y] += 1.0
    close = torch.rand(num_nodes, num_nodes, generator=generator) < torch.where(y[:, None] == y, 0.08, 0.01)
    edges = torch.triu(close, diagonal=1).nonzero().T
    order = torch.randperm(num_nodes, generator=generator)
    masks, sizes = {}, [num_nodes // 4, num_nodes // 3]
    parts = order.split([*sizes, num_nodes - sum(sizes)])
    for name, ids in zip(("train_mask", "val_mask", "test_mask"), parts, strict=True):
        masks[name] = torch.zeros(num_nodes, dtype=torch.bool)
        masks[name][ids] = True
    return Data(x=x, edge_index=torch.cat([edges, edges.flip(0)], dim=1), y=y, **masks)


@pytest.fixture
def blocks() -> Data:
    return block_graph()


@pytest.fixture
def exposure() -> Data:
    """Nodes unlike those of `blocks`: features without a class, edges without order."""
    graph = Data(x=torch.rand(120, 8, generator=torch.Generator().manual_seed(2)), edge_index=torch.randint(
        120, (2, 500), generator=torch.Generator().manual_seed(3)
    ))  # fmt: skip
    graph.mask = torch.arange(120) % 2 == 0
    return graph


@pytest.fixture
def record() -> Callable[..., Record]:
    """A record of a run of MSP on Cora, except for what a test changes."""

    def make(**changes: Any) -> Record:
        auroc = changes.pop("auroc", 0.9)
        method = changes.get("method", "MSP")
        settings = {
            "dataset": "cora", "shift": "label", "seed": 0, "backbone": "gcn", "protocol": "paper", "epochs": 200,
            "method": method, "method_repr": f"{method}()", "objective_repr": "CrossEntropy()", "exposure": False,
            "data": "abc", "versions": {"gnnsafe": "1", "torch": "2", "python": "3"}, "created": "0", "accuracy": 0.75,
            "seconds": {"train": 1.0, "epoch": 0.005, "forward": 0.01, "score": 0.002},
            "curves": Curves.of(
                np.linspace(-5, -1, 40, dtype="f4"), np.linspace(-3, 1, 40, dtype="f4"), np.arange(40) < 30
            ),
            "metrics": dict(zip(Detection._fields, (auroc, 0.8, 0.7, 0.3, 0.4), strict=True)),
        }  # fmt: skip
        return Record(**{**settings, **changes})

    return make
