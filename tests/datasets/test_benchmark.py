from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
import torch
import torch_geometric.data

from gnnsafe import load_benchmark
from gnnsafe.datasets import cora
from gnnsafe.datasets.planetoid import PICKLES
from gnnsafe.errors import DataNotFoundError, UnknownNameError

SHIFTS = ("structure", "feature", "label")


@pytest.fixture(scope="module", params=["root", "package"])
def root(request):
    return request.getfixturevalue("data_root") if request.param == "root" else None


def graphs(benchmark):
    return {"id": benchmark.id, "exposure": benchmark.exposure, **benchmark.ood}


@pytest.mark.parametrize("shift", SHIFTS)
def test_real_cora(root, shift):
    benchmark = load_benchmark("cora", shift=shift, root=root)
    data = benchmark.id
    assert (data.num_nodes, data.num_edges, data.num_features, benchmark.num_classes) == (2708, 10556, 1433, 7)
    assert torch.bincount(data.y).tolist() == [351, 217, 418, 818, 426, 298, 180]
    assert data.is_undirected()
    assert not data.has_self_loops()
    sums = data.x.sum(dim=1)
    torch.testing.assert_close(sums, torch.ones(2708))  # row-normalised; every paper has a word
    assert not (
        data.train_mask & data.val_mask | data.train_mask & data.test_mask | data.val_mask & data.test_mask
    ).any()
    assert list(benchmark.ood) == [shift]
    assert ("public split" if root else "random split") in benchmark.source
    assert set(graphs(benchmark)) == {"id", "exposure", shift}


@pytest.mark.parametrize("shift", ["structure", "feature"])
def test_synthetic_shifts(root, shift):
    benchmark = load_benchmark("cora", shift=shift, root=root)
    counts = [int(benchmark.id[name].sum()) for name in ("train_mask", "val_mask", "test_mask")]
    assert counts == [140, 500, 1000]
    assert torch.bincount(benchmark.id.y[benchmark.id.train_mask]).tolist() == [20] * 7
    draws = benchmark.ood[shift], benchmark.exposure
    changed = "edge_index" if shift == "structure" else "x"
    assert not torch.equal(draws[0][changed], draws[1][changed])
    for graph in draws:
        assert graph.mask.all()
        assert not torch.equal(graph[changed], benchmark.id[changed])
        kept = "x" if shift == "structure" else "edge_index"
        assert graph[kept] is benchmark.id[kept]


def test_label_shift(root):
    benchmark = load_benchmark("cora", shift="label", root=root)
    y = benchmark.id.y
    assert torch.equal(benchmark.ood["label"].mask, y < 3)
    assert torch.equal(benchmark.exposure.mask, y == 3)
    for name in ("train_mask", "val_mask", "test_mask"):
        assert (y[benchmark.id[name]] > 3).all()
    assert int(benchmark.id.train_mask.sum()) == 60
    if root:
        assert int(benchmark.id.test_mask.sum()) == 316  # of the public thousand


@pytest.mark.parametrize("shift", SHIFTS)
def test_one_seed_one_benchmark_to_the_bit(root, shift):
    first, again, other = (graphs(load_benchmark("cora", shift=shift, seed=seed, root=root)) for seed in (4, 4, 5))
    for name, graph in first.items():
        for key in graph.keys():  # noqa: SIM118 - PyG's Data is no dict
            assert torch.equal(graph[key], again[name][key]), (name, key)
    if shift != "label":
        assert any(not torch.equal(first[shift][key], other[shift][key]) for key in ("x", "edge_index"))


def test_both_copies_are_the_same_graph(data_root):
    """By what does not depend on the order of nodes: degrees and words within each class."""
    public, package = (load_benchmark("cora", shift="label", root=root).id for root in (data_root, None))
    for label in range(7):
        nodes = [(data.y == label).nonzero().squeeze(1) for data in (public, package)]
        degrees = [
            torch.bincount(data.edge_index[1], minlength=2708)[of].sort().values
            for data, of in zip((public, package), nodes, strict=True)
        ]
        assert torch.equal(*degrees)
        words = [(data.x[of] > 0).sum(1).sort().values for data, of in zip((public, package), nodes, strict=True)]
        assert torch.equal(*words)


def test_the_data_root_comes_from_the_environment_too(data_root, monkeypatch):
    monkeypatch.setenv("GNNSAFE_DATA", str(data_root))
    assert str(data_root) in load_benchmark("cora", shift="label").source


def test_the_data_root_is_never_written_to(data_root, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    raw = tmp_path / "data" / "Planetoid" / "Cora" / "raw"
    shutil.copytree(data_root / "Planetoid" / "Cora" / "raw", raw)
    before = sorted(tmp_path.glob("data/**/*"))
    load_benchmark("cora", shift="label", root=tmp_path / "data")
    assert sorted(tmp_path.glob("data/**/*")) == before
    assert len(list((tmp_path / "cache" / "gnnsafe").iterdir())) == 1


def test_the_package_is_not_imported():
    load_benchmark("cora", shift="label")
    assert "graphdatascience" not in sys.modules


@pytest.mark.parametrize(
    ("name", "shift", "seed", "message"),
    [
        ("coar", "label", 0, r"'name' must be one of cora, citeseer, .*\(got 'coar'\); did you mean 'cora'\?"),
        ("cora", "lable", 0, r"'shift' must be one of structure, feature, label, .*did you mean 'label'\?"),
        ("cora", "label", -1, r"'seed' must be a whole number >= 0 \(got -1\)"),
    ],
)
def test_bad_names(name, shift, seed, message):
    with pytest.raises(ValueError, match=message):
        load_benchmark(name, shift=shift, seed=seed)
    assert issubclass(UnknownNameError, ValueError)


def test_a_root_that_is_no_folder(tmp_path):
    with pytest.raises(ValueError, match=r"'root' must be a folder \(got '.*nowhere'\); see --data and GNNSAFE_DATA"):
        load_benchmark("cora", shift="label", root=tmp_path / "nowhere")


class TestDownload:
    @pytest.fixture(autouse=True)
    def only_the_download(self, monkeypatch, tmp_path):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        monkeypatch.setattr(cora.importlib.util, "find_spec", lambda _: None)

    def test_it_is_the_last_resort(self, data_root, monkeypatch, tmp_path):
        calls = []

        def download(url, folder):
            calls.append(url.rpartition("/")[2])
            Path(folder).mkdir(parents=True, exist_ok=True)
            shutil.copy(data_root / "Planetoid" / "Cora" / "raw" / calls[-1], folder)

        monkeypatch.setattr(torch_geometric.data, "download_url", download)
        for _ in range(2):
            benchmark = load_benchmark("cora", shift="label", root=tmp_path)  # a folder without Cora
            assert benchmark.source.startswith(str(tmp_path / "cache" / "gnnsafe" / "Planetoid"))
            assert "public split" in benchmark.source
        assert calls == [f"ind.cora.{part}" for part in PICKLES]  # once

    def test_one_message_lists_what_was_tried_and_what_to_do(self, tmp_path):
        with pytest.raises(DataNotFoundError) as error:
            load_benchmark("cora", shift="label", root=tmp_path)
        message = str(error.value)
        for part in (str(tmp_path / "Planetoid/Cora/raw"), "graphdatascience (not installed)", "a download (", "--data",
                     "GNNSAFE_DATA", "gnnsafe[cora]"):  # fmt: skip
            assert part in message
        assert "\n" not in message
        assert not list((tmp_path / "cache").glob("**/Cora/*"))  # nothing half-made is left behind


def test_the_head_may_have_the_id_classes_only():
    whole = load_benchmark("synthetic", shift="label")
    known = load_benchmark("synthetic", shift="label", head="id")
    assert (whole.num_classes, known.num_classes) == (6, 2)  # 0, 1 and 2 are OOD, 3 is exposure
    left_out = whole.id.y < 4
    assert (known.id.y[left_out] == -1).all()
    assert (known.id.y[~left_out] == whole.id.y[~left_out] - 4).all()
    for graph in (known.exposure, *known.ood.values()):
        assert (graph.y == known.id.y).all()
    for name in ("x", "edge_index", "train_mask", "val_mask", "test_mask"):
        assert (known.id[name] == whole.id[name]).all()
    assert load_benchmark("synthetic", shift="domain", head="id").num_classes == 6


def test_a_public_split_may_be_drawn_anew(data_root):
    public, drawn, again, other = (
        load_benchmark("cora", shift="feature", root=data_root, seed=seed, split=split)
        for seed, split in ((0, "public"), (0, "random"), (0, "random"), (1, "random"))
    )
    assert "public split" in public.source
    assert "public" not in drawn.source
    sizes = [int(drawn.id[name].sum()) for name in ("train_mask", "val_mask", "test_mask")]
    assert sizes == [140, 500, 1000]
    assert drawn.id.y[drawn.id.train_mask].bincount().tolist() == [20] * 7
    assert (drawn.id.train_mask == again.id.train_mask).all()
    assert not (drawn.id.train_mask == other.id.train_mask).all()
    assert not (drawn.id.train_mask == public.id.train_mask).all()
    photo = [load_benchmark("amazon-photo", shift="label", root=data_root, split=s) for s in ("public", "random")]
    assert (photo[0].id.train_mask == photo[1].id.train_mask).all()  # it has no public one
