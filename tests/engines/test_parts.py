"""The parts of an engine by themselves: quantiles from histograms, sizes, sums over a grid, flags by counts."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import false_discovery_control

from gnnsafe import engines
from gnnsafe.calibration.p_values import discovery_limit, false_discoveries
from gnnsafe.engines import fits, quantiles
from gnnsafe.engines.columns import Writer
from gnnsafe.engines.engine import Column
from gnnsafe.engines.fits import needed
from gnnsafe.engines.grid import GridWriter
from gnnsafe.engines.sources import available, sized, table_in
from gnnsafe.engines.stages import Stage, merged, steps_of
from gnnsafe.engines.weighing import TableSpread
from gnnsafe.errors import InputError
from gnnsafe.methods.spread import spread_of


@pytest.mark.parametrize("few", [1, 7, 4096])
def test_quantiles_are_numpys(few, tmp_path, monkeypatch):
    monkeypatch.setattr(quantiles, "FEW", few)
    rng = np.random.default_rng(0)
    ties = np.round(rng.standard_normal(5000), 1)
    columns = {
        "normal": rng.standard_normal(5000), "ties": ties, "heavy": np.exp(8 * rng.standard_normal(5000)),
        "single": rng.standard_normal(5000).astype(np.float32), "same": np.full(5000, -2.5),
        "wide": np.concatenate([[-1e300, 1e300], rng.random(4998)]),
    }  # fmt: skip
    whole = rng.integers(-(2**62), 2**62, 5000)
    with engines.DuckDB(memory="1GB", threads=1, temp=tmp_path) as engine:
        engine.small("numbers", pa.table({**columns, "whole": whole}))
        for name, values in columns.items():
            found = quantiles.quantiles(engine, "numbers", name, (0.005, 0.31, 0.995), 5000)
            np.testing.assert_allclose(found, np.quantile(values, (0.005, 0.31, 0.995)), rtol=1e-6)
        assert (
            quantiles.order_statistics(engine, "numbers", "whole", [0, 17, 4999])
            == np.sort(whole)[[0, 17, 4999]].tolist()
        )


def test_a_column_is_spread_as_its_numbers_are(tmp_path):
    numbers = torch.tensor([3.0, -1.0, 2.0, 2.0, 7.5, 0.25], dtype=torch.float64)
    with engines.DuckDB(memory="1GB", threads=1, temp=tmp_path) as engine:
        engine.small("table", pa.table({"number": numbers.numpy()}))
        found, expected = TableSpread(engine, '"table"', 6), spread_of(numbers)
        assert (found.below(2.0), found.quantile(0.5)) == (2 / 6, 2.0)
        for share in (0.0, 0.25, 0.5, 0.99, 1.0):
            assert found.quantile(share) == expected.quantile(share)
            assert found.below(expected.quantile(share)) == expected.below(expected.quantile(share))


@given(st.lists(st.integers(1, 20), min_size=1, max_size=60), st.floats(0.01, 0.99))
def test_counted_p_values_flag_what_scipy_does(ranks, level):
    p = torch.tensor(ranks, dtype=torch.float64) / 21
    expected = torch.from_numpy(false_discovery_control(p.numpy()) <= level)
    assert false_discoveries(p, level).tolist() == expected.tolist()
    distinct, counts = p.unique(return_counts=True)
    assert (p <= discovery_limit(distinct, counts, level)).tolist() == expected.tolist()


def test_discoveries_of_no_nodes():
    none = torch.empty(0, dtype=torch.float64)
    assert discovery_limit(none, none.long(), 0.1) == -np.inf


def test_sizes():
    assert sized("4GB") == sized("4g") == 2**32
    assert sized(2**30) == 2**30
    assert sized("1.5 GiB") == 3 * 2**29
    assert 0 < sized(None) <= available()
    with pytest.raises(InputError, match="at least 512MB"):
        sized("100MB")
    with pytest.raises(InputError, match="'threads' must be a whole number >= 1"):
        engines.DuckDB(threads=0)


def test_a_folder_without_tables(tmp_path):
    with pytest.raises(InputError, match=r"must hold nodes\.parquet or a folder nodes/"):
        table_in(str(tmp_path), "nodes")
    assert table_in("s3://lake/graph/", "nodes") == "s3://lake/graph/nodes"


def test_memory_grows_with_edges_and_features(tmp_path):
    from pyarrow import parquet

    nodes, edges = tmp_path / "nodes.parquet", tmp_path / "edges.parquet"
    parquet.write_table(pa.table({"id": [0, 1], "a": [0.0, 1.0]}), nodes)
    sizes = []
    for count in (10, 1000):
        parquet.write_table(pa.table({"source": [0] * count, "target": [1] * count}), edges)
        sizes.append(needed(nodes, edges))
    assert sizes[1] - sizes[0] == pytest.approx(990 * fits.PER_EDGE)
    (tmp_path / "edges.csv").write_text("source,target\n" + "0,1\n" * 1000)
    (tmp_path / "nodes.csv").write_text("id,a\n0,0.0\n1,1.0\n")
    told = needed(tmp_path / "nodes.csv", tmp_path / "edges.csv")
    assert told == pytest.approx(sizes[1], rel=0.01)


def test_steps_keep_what_is_read_later_and_nothing_else():
    """a → b → c, d beside them until c reads it: steps of one column each, the last two are one."""
    one = Column()
    stages = [
        Stage(lambda block: {"b": block["a"] + 1, "unread": block["a"]}, {"b": one, "unread": one}, ["a"]),
        Stage(lambda block: {"c": block["aggregated"] * block["d"]}, {"c": one}, ["b", "d"], aggregates=True),
        Stage(lambda block: {"e": block["c"] - block["b"]}, {"e": one}, ["c", "b"]),
    ]
    first, second, third = steps_of(stages, ["e"])
    assert [set(step.makes) for step in (first, second, third)] == [{"b"}, {"c"}, {"e"}]
    assert [set(step.keeps) for step in (first, second, third)] == [{"d"}, {"b"}, set()]
    assert len(steps := merged([first, second, third])) == 2
    assert (set(steps[1].makes), steps[1].keeps, steps[1].aggregates) == ({"e"}, (), True)
    block = {"b": torch.tensor([[2.0]]), "d": torch.tensor([[3.0]]), "aggregated": torch.tensor([[5.0]])}
    assert steps[1].function(block)["e"].item() == 5 * 3 - 2


@pytest.mark.parametrize("both_ways", [False, True])
def test_sums_over_a_grid_are_those_of_a_matrix(both_ways, tmp_path):
    rng = np.random.default_rng(0)
    ends, values = rng.integers(0, 23, (2, 300)), torch.randn(23, 3)
    with GridWriter(tmp_path, 23, targets=5, sources=9, both_ways=both_ways) as writer:
        for low in range(0, 300, 70):
            writer.add(*ends[:, low : low + 70])
        grid, counts = writer.finish(lambda: None, leaving=True)
    matrix = np.zeros((23, 23))
    np.add.at(matrix, (ends[1], ends[0]), 1)
    if both_ways:
        matrix = np.minimum(matrix + matrix.T, 1)
    assert counts["loops"].tolist() == np.diag(matrix).tolist()
    np.fill_diagonal(matrix, 0)
    assert counts["count"].tolist() == matrix.sum(axis=1).tolist()
    assert counts["leaving"].tolist() == matrix.sum(axis=0).tolist()
    for dtype in ("float32", "float64"):
        with Writer(tmp_path, dtype, {"value": Column(3, dtype)}) as written:
            written.add({"value": values})
        held: dict[int, torch.Tensor] = {}
        found = [grid.sums(written.files["value"], (low, min(low + 5, 23)), held) for low in range(0, 23, 5)]
        np.testing.assert_allclose(torch.cat(found).numpy(), matrix @ values.numpy(), rtol=1e-5, atol=1e-5)
