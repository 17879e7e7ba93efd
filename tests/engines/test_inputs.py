"""Tables as users have them: ids of any type, times as dates, folders of parts with what others left there."""

from __future__ import annotations

import datetime
import shutil
import uuid
import warnings
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from tests.engines.conftest import by_id, detector, new_graph, tables, write

from gnnsafe import engines
from gnnsafe.errors import InputError, ModelWarning

pytestmark = pytest.mark.filterwarnings("ignore::gnnsafe.errors.CalibrationWarning")  # small graphs

NUMBERS = np.arange(90)
DAYS = [datetime.date(2020, 1, 1) + datetime.timedelta(int(n)) for n in NUMBERS]
IDS = {
    "small": pa.array(NUMBERS, pa.int16()),
    "beyond int64": pa.array([2**63 + int(n) for n in NUMBERS], pa.uint64()),
    "far apart": pa.array(NUMBERS * 10**15),
    "fractions": pa.array(NUMBERS + 0.5),
    "decimals": pa.array([Decimal(int(n)) / 4 for n in NUMBERS], pa.decimal128(12, 2)),
    "days": pa.array(DAYS),
    "times": pa.array([datetime.datetime.combine(day, datetime.time(1)) for day in DAYS], pa.timestamp("us", "UTC")),
    "bytes": pa.array([b"\x00%d" % n for n in NUMBERS]),
    "uuids as bytes": pa.array([uuid.UUID(int=int(n)).bytes for n in NUMBERS], pa.binary(16)),
    "few names": pa.array([f"n{n}" for n in NUMBERS]).dictionary_encode(),
    "any text": pa.array([f"a'\"\n{chr(0x4E00 + int(n))}" for n in NUMBERS]),
}


def with_ids(ids, ends=None):
    """The tables of a graph whose nodes have these ids, its edges likewise or others."""
    graph = new_graph("all")
    given, ends = tables(graph), ids if ends is None else ends
    source, target = (ends.take(pa.array(end.numpy())) for end in graph.edge_index)
    return graph, given.nodes.set_column(0, "id", ids), pa.table({"source": source, "target": target})


def scored(opened, folder, nodes, edges, *, name="duckdb", made=None):
    with opened(name, folder / "temp") as engine:
        return engines.score(engine, made or detector("gnnsafe"), nodes, edges, out=folder / "out")


def check(opened, folder, ids, ends=None, *, name="duckdb"):
    graph, nodes, edges = with_ids(ids, ends)
    scored(opened, folder, nodes, edges, name=name)
    found = by_id(folder / "out", ids.to_pylist())
    np.testing.assert_allclose(found["score"].to_numpy(), detector("gnnsafe").score(graph).numpy(), rtol=1e-5)
    return found


@pytest.mark.parametrize("kind", IDS)
def test_ids_of_any_type_come_back_as_they_were(kind, opened, tmp_path):
    found, ids = check(opened, tmp_path, IDS[kind]), IDS[kind]
    if not pa.types.is_dictionary(ids.type) and not pa.types.is_fixed_size_binary(ids.type):
        assert found.schema.field("id").type == (pa.int64() if pa.types.is_int16(ids.type) else ids.type)


@pytest.mark.parametrize(
    ("ids", "ends"),
    [
        (pa.array(NUMBERS), pa.array([f" {n}" for n in NUMBERS])),
        (pa.array([str(n) for n in NUMBERS]), pa.array(NUMBERS)),
        (pa.array(NUMBERS + 2**52), pa.array((NUMBERS + 2**52).astype(float))),
        (pa.array(NUMBERS.astype(float)), pa.array(NUMBERS)),
        (pa.array(NUMBERS), pa.array(NUMBERS, pa.uint64())),
        (pa.array(NUMBERS, pa.uint64()), pa.array(NUMBERS)),
    ],
    ids=["text ends", "text ids", "large floats", "float ids", "unsigned ends", "unsigned ids"],
)
def test_ends_of_another_type_meet_ids_of_the_same_value(ids, ends, opened, tmp_path):
    assert check(opened, tmp_path, ids, ends).schema.field("id").type == ids.type


@pytest.mark.parametrize(
    ("ids", "ends", "words"),
    [
        (pa.array([float("nan"), *(NUMBERS[1:] + 0.5)]), None, r"must have an id for every node \(got 1 without\)"),
        (pa.array(NUMBERS), pa.array(NUMBERS + 0.5), "must be the id of a node"),
        (pa.array(512 * NUMBERS + 2**60), pa.array((512 * NUMBERS + 2**60).astype(float)), "must be the id of a node"),
        (pa.array(NUMBERS), pa.array([b"%d" % n for n in NUMBERS]), "must be of the type of the nodes' ids"),
        (pa.array([bool(n % 2) for n in NUMBERS]), None, "must be numbers, text, dates or bytes"),
    ],
    ids=["NaN", "halves", "floats beyond 2**53", "bytes", "booleans"],
)
def test_what_is_nobodys_id(ids, ends, words, opened, tmp_path):
    _, nodes, edges = with_ids(ids, ends)
    with pytest.raises(InputError, match=words):
        scored(opened, tmp_path, nodes, edges)


FLOATS = {"halffloat": 2**11, "float": 2**24, "double": 2**53}  # from where on several whole numbers are one float


def in_floats(folder, first, kind):
    """A graph in Parquet whose ids are whole numbers from `first` on, and the ends of its edges floats."""
    ids = pa.array(NUMBERS + first)
    graph, *given = with_ids(ids, pa.array(ids.to_numpy().astype(pa.type_for_alias(kind).to_pandas_dtype())))
    paths = [str(folder / f"{name}.parquet") for name in ("nodes", "edges")]
    for path, table in zip(paths, given, strict=True):
        parquet.write_table(table, path)
    return graph, ids, paths


def check_floats(opened, folder, kind, *, name="duckdb"):
    """Below the bound ends meet their ids, from there on nobody's."""
    _, _, paths = in_floats(folder, FLOATS[kind], kind)
    with pytest.raises(InputError, match="must be the id of a node"):
        scored(opened, folder, *paths, name=name)
    graph, ids, paths = in_floats(folder, FLOATS[kind] - len(NUMBERS), kind)
    scored(opened, folder, *paths, name=name)
    found = by_id(folder / "out", ids.to_pylist())["score"].to_numpy()
    np.testing.assert_allclose(found, detector("gnnsafe").score(graph).numpy(), rtol=1e-5)


@pytest.mark.parametrize("kind", FLOATS)
def test_floats_meet_ids_while_they_stand_for_one_number_alone(kind, opened, tmp_path):
    check_floats(opened, tmp_path, kind)


@pytest.mark.parametrize("kind", [pa.date32(), pa.timestamp("us"), pa.timestamp("us", "Asia/Tokyo")], ids=str)
def test_dates_are_times(kind, opened, tmp_path):
    check_times(opened, tmp_path, kind)


def check_times(opened, tmp_path, kind, *, name="duckdb"):
    """Six periods of 15 days each, in seconds since 1970."""
    graph = new_graph("directed")
    given = tables(graph)
    moments = pa.array(DAYS).cast(pa.timestamp("us")).cast(kind)
    said = scored(opened, tmp_path, given.nodes.append_column("timestamp", moments), given.edges, name=name)
    first = (DAYS[0] - datetime.date(1970, 1, 1)).days * 86400
    assert [(start, stop, nodes) for start, stop, nodes, *_ in said.periods] == [
        (first + 86400 * start, first + 86400 * (start + 14), 15) for start in range(0, 90, 15)
    ]


def test_weights_of_edges_are_not_left_out_without_a_word(opened, tmp_path):
    check_weights(opened, tmp_path)


def check_weights(opened, folder, *, name="duckdb"):
    """As memory says it."""
    given = tables(new_graph("directed"))
    edges = given.edges.append_column("Weight", pa.array(np.ones(len(given.edges))))
    made = detector("msp", "MLP")
    with warnings.catch_warnings(record=True) as said:  # of Spark's own, too
        warnings.simplefilter("always")
        scored(opened, folder, given.nodes, edges, name=name, made=made)
    (ours,) = [str(one.message) for one in said if one.category is ModelWarning]
    assert ours.startswith("edges, Weight: is not read, and all edges count alike")


def test_folders_as_others_leave_them(opened, tmp_path):
    """Hidden files, folders of a job that failed, and folders by day, whose name is no feature."""
    graph, made = new_graph("all"), detector("gnnsafe")
    folder = write(graph, tmp_path / "gr[a]ph's")
    for table in ("nodes", "edges"):
        (folder / table / "_SUCCESS").touch()
        (folder / table / "_temporary" / "0").mkdir(parents=True)
        shutil.copy(folder / table / "0.parquet", folder / table / "_temporary" / "0" / "0.parquet")
        shutil.copy(folder / table / "0.parquet", folder / table / ".0.parquet")
        for day in (1, 2):
            (folder / table / f"day={day}").mkdir()
            (folder / table / f"{day}.parquet").rename(folder / table / f"day={day}" / "part.parquet")
    scored(opened, tmp_path, str(folder / "nodes"), str(folder / "edges"), made=made)
    found = by_id(tmp_path / "out", graph.node_id)
    np.testing.assert_allclose(found["score"].to_numpy(), made.score(graph).numpy(), rtol=1e-5)
    assert parquet.read_table(tmp_path / "out").num_rows == 90
