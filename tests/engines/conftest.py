"""A small graph with all that real graphs bring, a detector for it, and one Spark session for all tests."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from pyarrow import parquet
from tests.conftest import block_graph
from torch_geometric.data import Data

import gnnsafe
from gnnsafe import engines, models
from gnnsafe.detector import Detector

SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # for Java: code that runs once is hardly worth compiling
KINDS = ("directed", "isolated", "loops", "repeated", "text", "all")


@pytest.fixture(scope="session")
def spark(tmp_path_factory) -> Any:
    conf = {
        "spark.sql.shuffle.partitions": "2", "spark.default.parallelism": "2",
        "spark.driver.extraJavaOptions": SHORT_LIVED,
    }  # fmt: skip
    with engines.Spark(master="local[2]", conf=conf, temp=tmp_path_factory.mktemp("spark")) as engine:
        yield engine.session


def new_graph(kind: str) -> Data:
    """A graph other than the training graph, with edges of that kind; "all": of every kind."""
    graph = block_graph(90, seed=5)
    edges = graph.edge_index[:, ::2]  # one way
    if kind in ("isolated", "all"):
        edges = edges[:, (edges[1] % 7 != 3)]
    if kind in ("loops", "all"):
        edges = torch.cat([edges, torch.tensor([[0, 0, 4, 17], [0, 0, 4, 17]])], dim=1)
    if kind in ("repeated", "all"):
        edges = torch.cat([edges, edges[:, :60], edges[:, :20]], dim=1)
    graph.edge_index = edges
    graph.node_id = [f"node {n}" for n in range(90)] if kind in ("text", "all") else [7 + 3 * n for n in range(90)]
    return graph


def tables(graph: Data) -> SimpleNamespace:
    """Its two tables."""
    ids = pa.array(graph.node_id)
    features = {f"f{column}": graph.x[:, column].numpy() for column in range(graph.x.shape[1])}
    source, target = (ids.take(pa.array(end.numpy())) for end in graph.edge_index)
    return SimpleNamespace(
        nodes=pa.table({"id": ids, **features}), edges=pa.table({"source": source, "target": target})
    )


def write(graph: Data, folder: Path, parts: int = 3) -> Path:
    """Its tables as folders of parts."""
    given = tables(graph)
    for name in ("nodes", "edges"):
        (folder / name).mkdir(parents=True)
        table = getattr(given, name)
        size = -(-len(table) // parts)
        for part in range(parts):
            parquet.write_table(table.slice(part * size, size), folder / name / f"{part}.parquet")
    return folder


@cache
def trained(backbone: str = "GCN") -> Any:
    torch.manual_seed(0)
    model = getattr(models, backbone)(8, 16, 3, **({"steps": 3} if backbone == "APPNP" else {}))
    gnnsafe.train(model, block_graph(), objective=gnnsafe.CrossEntropy(), epochs=5)
    return model


def detector(method: Any, backbone: str = "GCN", *, by_class: bool = False, **settings: Any) -> Detector:
    """Fitted and calibrated on the training graph."""
    graph = block_graph()
    return Detector(trained(backbone), method, **settings).fit(graph).calibrate(graph, by_class=by_class)


@pytest.fixture
def opened(request: pytest.FixtureRequest) -> Any:
    """The engine of a name, which stores in a folder; Spark is started only where it is wanted."""

    def engine(name: str, folder: Path) -> Any:
        if name == "spark":
            return engines.Spark(request.getfixturevalue("spark"), temp=folder)
        return engines.DuckDB(memory="1GB", threads=1, temp=folder)

    return engine


def by_id(folder: Path, ids: list[Any]) -> pa.Table:
    """What an engine wrote, in the order of these ids."""
    table = parquet.read_table(folder)
    place = {value: row for row, value in enumerate(table["id"].to_pylist())}
    assert len(place) == len(table) == len(ids)
    return table.take(pa.array(np.array([place[value] for value in ids])))
