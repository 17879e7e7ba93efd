"""Every data set against its published counts, on real files where they are available."""

from __future__ import annotations

import gzip
import hashlib
import pickle
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch_geometric.datasets
from torch_geometric.data import Data

from gnnsafe import load_benchmark
from gnnsafe.datasets import DATASETS, arxiv, twitch
from gnnsafe.datasets.arxiv import stand_in
from gnnsafe.datasets.benchmark import label_classes
from gnnsafe.datasets.catalogue import CONTROLS, SINGLE_GRAPH
from gnnsafe.datasets.public import PUBLIC, row_normalised
from gnnsafe.errors import DataNotFoundError, GnnsafeWarning, InputError

SINGLE = ["cora", "pubmed", "amazon-photo", "coauthor-cs"]


@pytest.fixture(scope="module")
def everything(data_root) -> Path:
    if not (data_root / "Coauthor").is_dir():
        pytest.skip("not all real data sets are available")
    return data_root


@pytest.mark.parametrize("name", SINGLE)
def test_published_counts(everything, name):
    dataset = DATASETS[name]
    assert dataset.available(everything)
    data, source = dataset.graph(everything, 0)
    counts = (data.num_nodes, data.num_edges, str(data.num_features), int(data.y.max()) + 1)
    assert counts == (dataset.nodes, dataset.edges, dataset.features, dataset.classes)
    assert data.is_undirected()
    assert not data.has_self_loops()
    sums = data.x.sum(dim=1)
    assert ((sums - 1).abs() < 1e-5).logical_or(sums == 0).all()
    assert str(everything) in source


def test_rows_are_normalised_whatever_they_sum_to():
    data = row_normalised(Data(x=torch.tensor([[0.1, 0.3], [3.0, 1.0], [0.0, 0.0]])))
    torch.testing.assert_close(data.x, torch.tensor([[0.25, 0.75], [0.75, 0.25], [0.0, 0.0]]))


@pytest.mark.parametrize("name", ["amazon-photo", "coauthor-cs"])
def test_random_split_of_tenths(everything, name):
    first, other = (DATASETS[name].graph(everything, seed)[0] for seed in (0, 1))
    sizes = [int(first[mask].sum()) for mask in ("train_mask", "val_mask", "test_mask")]
    assert sizes[0] == sizes[1] == first.num_nodes // 10
    assert sum(sizes) == first.num_nodes
    assert not (first.train_mask & first.val_mask).any()
    assert not torch.equal(first.train_mask, other.train_mask)


@pytest.mark.parametrize(("name", "middle"), [("cora", 3), ("amazon-photo", 4), ("coauthor-cs", 4)])
def test_the_papers_label_shift(everything, name, middle):
    benchmark = load_benchmark(name, shift="label", root=everything)
    y = benchmark.id.y
    assert torch.equal(benchmark.exposure.mask, y == middle)
    assert torch.equal(benchmark.ood["label"].mask, y < middle)
    for mask in ("train_mask", "val_mask", "test_mask"):
        assert (y[benchmark.id[mask]] > middle).all()
        assert benchmark.id[mask].any()


@pytest.mark.parametrize("classes", range(3, 41))
def test_the_label_rule_leaves_two_id_classes_and_one_ood_class(classes):
    ood, exposure = label_classes(classes)
    assert ood
    assert len(exposure) == (classes > 3)
    assert classes - len(ood) - len(exposure) >= 2


def test_a_label_shift_of_three_classes_has_no_exposure(everything):
    assert load_benchmark("pubmed", shift="label", root=everything).exposure is None
    with pytest.raises(ValueError, match="at least 3 classes"):
        label_classes(2)


def test_twitch(everything):
    benchmark = load_benchmark("twitch", shift="domain", root=everything)
    assert (benchmark.id.num_nodes, benchmark.id.num_edges, benchmark.id.num_features) == (9498, 315_774, 3170)
    assert benchmark.num_classes == 2
    assert list(benchmark.ood) == ["ES", "FR", "RU"]
    sizes = {name: (graph.num_nodes, graph.num_edges) for name, graph in benchmark.ood.items()}
    # as PyG's, but that this copy of FR lacks two isolated users (PyG: 6,551 and 231,883)
    assert sizes == {"ES": (4648, 123_412), "FR": (6549, 231_881), "RU": (4385, 78_993)}
    assert (benchmark.exposure.num_nodes, benchmark.exposure.num_edges) == (7126, 77_774)
    for graph in (benchmark.exposure, *benchmark.ood.values()):
        assert graph.mask.all()
    torch.testing.assert_close(benchmark.id.x.sum(dim=1)[benchmark.id.x.sum(dim=1) > 0].mean(), torch.tensor(1.0))


def test_twitch_as_pyg_has_it(tmp_path):
    """128 dense features with signs: nothing to normalise by."""
    rng = np.random.default_rng(0)
    for name in (twitch.ID, twitch.EXPOSURE, *twitch.OOD):
        folder = tmp_path / "Twitch" / name / "raw"
        folder.mkdir(parents=True)
        features = rng.normal(size=(50, 128)).astype(np.float32)
        edges, target = rng.integers(50, size=(90, 2)), rng.integers(2, size=50)
        np.savez(folder / f"{name}.npz", features=features, edges=edges, target=target)
    benchmark = load_benchmark("twitch", shift="domain", root=tmp_path)
    assert benchmark.id.num_features == 128
    assert benchmark.id.x.min() < 0
    with np.load(tmp_path / "Twitch" / "DE" / "raw" / "DE.npz") as file:
        np.testing.assert_array_equal(benchmark.id.x, file["features"])
        np.testing.assert_array_equal(benchmark.id.edge_index, file["edges"].T)


def test_pubmed_years(everything):
    benchmark = load_benchmark("pubmed-years", shift="time", root=everything)
    year = benchmark.id.year
    assert list(benchmark.ood) == ["2001-2005", "2006-2010"]
    last = {"id": 1995, "exposure": 2000, "2001-2005": 2005, "2006-2010": 2010}
    graphs = {"id": benchmark.id, "exposure": benchmark.exposure, **benchmark.ood}
    for name, graph in graphs.items():
        assert year[graph.edge_index].max() <= last[name]
        assert graph.num_nodes == 19_717
    assert (year[benchmark.id.train_mask | benchmark.id.val_mask | benchmark.id.test_mask] <= 1995).all()
    assert torch.bincount(benchmark.id.y[year <= 1990]).tolist() == [1636, 529, 1693]  # as the data's README says
    newest = benchmark.ood["2006-2010"].mask
    assert torch.bincount(benchmark.id.y[newest]).tolist() == [478, 2293, 1183]


def test_pubmed_years_without_its_file(tmp_path):
    with pytest.raises(DataNotFoundError, match=r"pubmed-years was not found\. Tried: .*PubMedTemporal"):
        load_benchmark("pubmed-years", shift="time", root=tmp_path)


def write_arxiv(root: Path, nodes: int = 60, edges: int = 200, features: int = 8) -> dict[str, np.ndarray]:
    """A small data set in the format in which OGB ships its raw files."""
    rng = np.random.default_rng(0)
    tables = {
        "edge": rng.integers(nodes, size=(edges, 2)),
        "node-feat": rng.normal(size=(nodes, features)).round(6),
        "node-label": rng.integers(5, size=(nodes, 1)),
        "node_year": rng.integers(2012, 2021, size=(nodes, 1)),
        "num-node-list": np.array([[nodes]]),
        "num-edge-list": np.array([[edges]]),
    }
    folder = root / "ogbn_arxiv" / "raw"
    folder.mkdir(parents=True)
    for name, table in tables.items():
        with gzip.open(folder / f"{name}.csv.gz", "wt") as file:
            np.savetxt(file, table, delimiter=",", fmt="%g" if name == "node-feat" else "%d")
    return tables


@pytest.fixture
def small(monkeypatch):
    """Arxiv as `write_arxiv` writes it."""
    monkeypatch.setattr(arxiv, "ARXIV", replace(arxiv.ARXIV, counts=(60, 200, 8, 5)))


def test_arxiv_of_other_counts_is_refused(tmp_path, monkeypatch):
    write_arxiv(tmp_path)
    found = r"\(got 60 nodes, 200 edges, 8 features, 5 classes in .*raw\); download its files again, or .*read_graph$"
    with pytest.raises(InputError, match=r"^'arxiv' must have .* 128 features, 40 classes " + found):
        load_benchmark("arxiv", shift="time", root=tmp_path)
    monkeypatch.setattr(arxiv, "ARXIV", replace(arxiv.ARXIV, counts=(60, 200, 40, 5)))  # a cached copy is no way round
    with pytest.raises(InputError, match="must have 60 nodes, 200 edges, 40 features, 5 classes " + found):
        load_benchmark("arxiv", shift="time", root=tmp_path)


def test_arxiv_topics(data_root):
    if not DATASETS["arxiv-topics"].available(data_root):
        pytest.skip("the guesses of arxiv's topics are not available")
    dataset, benchmark = DATASETS["arxiv-topics"], load_benchmark("arxiv-topics", shift="time", root=data_root)
    data, year = arxiv.TOPICS.load(data_root)[0], benchmark.id.year
    counts = (data.num_nodes, data.num_edges, str(data.num_features), benchmark.num_classes)
    assert counts == (dataset.nodes, dataset.edges, dataset.features, dataset.classes)
    assert (int((year <= 2015).sum()), int(year.min()), int(year.max())) == (53_160, 1971, 2020)
    assert int((data.x == 0).all(dim=1).sum()) == 36  # papers without a guess
    guessed = [24, 4, 10, 16, 23]  # the first line of the file
    assert data.x[0, guessed].tolist() == pytest.approx([1, 1 / 2, 1 / 3, 1 / 4, 1 / 5])
    assert data.x[0].sum() == pytest.approx(137 / 60)
    assert list(benchmark.ood) == ["2018", "2019", "2020"]
    for name, graph in {"2015": benchmark.id, "2017": benchmark.exposure, **benchmark.ood}.items():
        assert year[graph.edge_index].max() <= int(name)
    assert torch.equal(benchmark.ood["2020"].edge_index, data.edge_index)  # directed, all of them
    assert "GPT-3.5's guesses as features" in benchmark.source


def write_topics(root: Path, guesses: str) -> Path:
    write_arxiv(root, nodes=3, edges=4)
    (root / "ogbn_arxiv").rename(root / "ArxivTopics")
    file = root / "ArxivTopics" / "raw" / "guesses.csv.gz"
    file.write_bytes(gzip.compress(guesses.encode()))
    return file


def test_guesses_as_features(tmp_path, monkeypatch):
    write_topics(tmp_path, "3,0,3\n\n39\n")
    with pytest.raises(
        InputError, match=r"^'arxiv-topics' must have 169,343 nodes, .* \(got 3 nodes, 4 edges, 40 feat"
    ):
        arxiv.TOPICS.load(tmp_path)
    data, _ = replace(arxiv.TOPICS, counts=(3, 4)).load(tmp_path)
    expected = torch.zeros(3, 40)
    expected[0, 3], expected[0, 0], expected[2, 39] = 1.0, 0.5, 1.0
    assert torch.equal(data.x, expected)


@pytest.mark.parametrize(
    ("guesses", "message"),
    [
        ("1\n2,x\n3\n", r"guesses.csv.gz must be gzipped lines of class numbers \(got: .*'x'.*\); download it again"),
        ("1\n2,40\n3\n", r"guesses.csv.gz must name classes from 0 to 39 \(got \[2, 40\]\); download it again"),
        ("1\n2\n", r"node-label.csv.gz must have a row for each of 2 nodes \(got 3\)"),
    ],
)
def test_broken_guesses(tmp_path, guesses, message):
    write_topics(tmp_path, guesses)
    with pytest.raises(InputError, match=message):
        arxiv.TOPICS.load(tmp_path)


def test_arxiv(tmp_path, small):
    tables = write_arxiv(tmp_path)
    assert DATASETS["arxiv"].available(tmp_path)
    benchmark = load_benchmark("arxiv", shift="time", root=tmp_path)
    year = torch.from_numpy(tables["node_year"][:, 0])
    np.testing.assert_allclose(benchmark.id.x, tables["node-feat"], rtol=1e-5)
    assert list(benchmark.ood) == ["2018", "2019", "2020"]
    edges = torch.from_numpy(tables["edge"].T)
    for name, graph in {"2015": benchmark.id, "2017": benchmark.exposure, **benchmark.ood}.items():
        kept = (year[edges] <= int(name)).all(dim=0)
        assert torch.equal(graph.edge_index, edges[:, kept])  # directed, in the file's order
        if "mask" in graph:
            first = 2016 if name == "2017" else int(name)
            assert torch.equal(graph.mask, (year >= first) & (year <= int(name)))
    assert torch.equal(benchmark.id.train_mask | benchmark.id.val_mask | benchmark.id.test_mask, year <= 2015)


def test_the_stand_in_has_arxivs_shape_and_says_that_it_is_none(monkeypatch):
    data = stand_in(0)
    monkeypatch.setattr(arxiv, "stand_in", {0: data}.__getitem__)  # to draw it takes seconds
    benchmark = load_benchmark("arxiv-stand-in", shift="time")
    assert (data.num_nodes, data.num_edges, data.num_features, benchmark.num_classes) == (169_343, 1_166_243, 128, 40)
    assert data.is_coalesced()
    citing, cited = data.edge_index
    assert (data.year[citing] >= data.year[cited]).all()
    same = (data.y[citing] == data.y[cited]).float().mean().item()
    assert same == pytest.approx(0.5 + 0.5 / 40, abs=0.01)
    assert "stand-in" in benchmark.name
    assert "not Arxiv" in benchmark.source
    assert list(benchmark.ood) == ["2018", "2019", "2020"]
    assert torch.equal(benchmark.ood["2019"].mask, data.year == 2019)


def test_arxiv_from_broken_files(tmp_path):
    write_arxiv(tmp_path)
    label = tmp_path / "ogbn_arxiv" / "raw" / "node-label.csv.gz"
    whole = label.read_bytes()
    label.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match=r"node-label.csv.gz must be a gzipped table of numbers .*; download it again"):
        load_benchmark("arxiv", shift="time", root=tmp_path)
    label.write_bytes(gzip.compress(b"1\n2\n"))
    with pytest.raises(InputError, match=r"node-label.csv.gz must have a row for each of 60 nodes \(got 2\)"):
        load_benchmark("arxiv", shift="time", root=tmp_path)


def test_arxiv_is_downloaded_as_ogb_ships_it(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def download(url: str, folder: str) -> str:
        assert url.startswith("https://")
        assert url.endswith("/nodeproppred/arxiv.zip")
        write_arxiv(tmp_path / "zip")
        (tmp_path / "zip" / "ogbn_arxiv").rename(tmp_path / "zip" / "arxiv")
        return shutil.make_archive(f"{folder}/arxiv", "zip", tmp_path / "zip")

    monkeypatch.setattr(torch_geometric.data, "download_url", download)
    with pytest.raises(
        DataNotFoundError, match=r"must have 169,343 nodes, .* \(got 60 nodes, .* a download, not kept\)"
    ):
        load_benchmark("arxiv", shift="time")
    assert not DATASETS["arxiv"].available(None)
    shutil.rmtree(tmp_path / "zip")
    monkeypatch.setattr(arxiv, "ARXIV", replace(arxiv.ARXIV, counts=(60, 200, 8, 5)))
    assert load_benchmark("arxiv", shift="time").id.num_nodes == 60


CITESEER = """
d20de19150741e555de0ed037195630fc194114ebc7fd72ced62810148aa22f6
539a8906a2da97628d212f2fdd668c109a8b3f0d36574b59e5d3fd5b5303da21
2ac30345d95c9ec933a817ee0bdd6a5f077f8c184a20e696910192d534414668
8ba87e515d8e3ee3cf52f6d2c5b86aa73f11ecad825a808455209ec26cd54924
55e5bd1ba1e733a04598753ad1a8d57957f4b8f89e74519f41f4f4938767e4ce
f704b2d986dde6c2669934de1f3ae5696a6cf9455c0f6b2646a2d135ea0a1c95
d79a4ef9d3e7169aee8946145f6b7306e35bc79bffad26346cfb94e10e9912a7
2af990671580b6b2df5d158d1038f8292e30c9cd821b5453f399659b25b723d4
"""  # as three files in public repositories state them; what these state of Cora and PubMed fits the files available


def test_the_hash_of_citeseer_is_that_of_the_published_ones():
    assert hashlib.sha256(bytes.fromhex(CITESEER)).hexdigest() == PUBLIC["citeseer"].sha256


class Evil:
    def __reduce__(self):
        return pytest.fail, ("a pickle was run",)


@pytest.mark.parametrize("files", [*PUBLIC.values(), twitch.country("DE")], ids=lambda files: files.name)
def test_a_download_is_read_by_us_alone(files, tmp_path, monkeypatch):
    """PyG's own data sets would read what they fetch, some of it by running pickles, before a hash was compared."""
    fetched = []

    def download(url: str, folder: str) -> None:
        fetched.append(url)
        Path(folder).mkdir(parents=True, exist_ok=True)
        file = Path(folder) / url.rpartition("/")[2]
        if file.suffix == ".npz":
            np.savez(file, **dict.fromkeys(("features", "target", "edges"), np.array([Evil()], dtype=object)))
        else:
            file.write_bytes(pickle.dumps(Evil()))

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("GNNSAFE_DATA", raising=False)
    monkeypatch.setattr(torch_geometric.data, "download_url", download)
    for part in (torch_geometric.datasets.twitch, torch_geometric.datasets.amazon, torch_geometric.datasets.coauthor):
        monkeypatch.setattr(part, "download_url", download)
    with pytest.raises(DataNotFoundError, match=r"was not found\. Tried: .* a download \((?!a pickle)"):
        files.load(None)
    assert [url.rpartition("/")[2] for url in fetched] == list(files.files)
    assert all(url.startswith("https://") and "{" not in url for url in fetched)
    assert not files.available(None)


@pytest.mark.parametrize("name", ["cora", "pubmed"])
def test_a_changed_byte_in_a_download_is_noticed(everything, tmp_path, monkeypatch, name):
    files = PUBLIC[name]
    assert files.digest(everything / files.path) == files.sha256
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("GNNSAFE_DATA", raising=False)

    def download(root: Path) -> None:
        shutil.copytree(everything / files.path, root / files.path)
        changed = root / files.path / files.files[0]
        changed.write_bytes(changed.read_bytes()[:-20] + b"?" + changed.read_bytes()[-19:])

    with pytest.raises(DataNotFoundError, match=f"its SHA-256 is [0-9a-f]{{64}}, not {files.sha256}: it was not kept"):
        replace(files, download=download).load(None)


def test_a_flipped_bit_in_files_that_are_there_is_said_each_time(everything, tmp_path, monkeypatch):
    """Also once a processed copy of them is kept."""
    files = PUBLIC["cora"]
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    shutil.copytree(everything / files.path, tmp_path / files.path)
    files.load(tmp_path)  # warnings are errors here
    changed = tmp_path / files.path / "ind.cora.allx"
    content = bytearray(changed.read_bytes())
    content[len(content) // 2] ^= 1
    changed.write_bytes(content)
    for _ in range(2):
        with pytest.warns(
            GnnsafeWarning, match=r"the files of cora in .* are not the published ones, by their SHA-256"
        ):
            files.load(tmp_path)


@pytest.mark.parametrize("shift", DATASETS["synthetic"].shifts)
def test_synthetic_has_every_shift(shift):
    first, again = (load_benchmark("synthetic", shift=shift, seed=3) for _ in range(2))
    graphs = {"id": first.id, "exposure": first.exposure, **first.ood}
    others = {"id": again.id, "exposure": again.exposure, **again.ood}
    assert (first.exposure is None) == shift.startswith("control-")
    for name, graph in graphs.items():
        if graph is None:
            continue
        for key in graph.keys():  # noqa: SIM118 - PyG's Data is no dict
            assert torch.equal(graph[key], others[name][key]), (name, key)
        if name != "id":
            assert graph.mask.any()
    assert first.id.train_mask.any()
    assert {*SINGLE_GRAPH, "domain", "time", "time-same-graph", *CONTROLS} == {*DATASETS["synthetic"].shifts}


def test_synthetic_in_a_size_of_ones_own():
    benchmark = load_benchmark("synthetic", shift="domain", nodes=400, edges=900, features=60, classes=4)
    for graph in (benchmark.id, benchmark.exposure, *benchmark.ood.values()):
        assert (graph.num_nodes, graph.num_features) == (400, 60)
        assert 700 < graph.num_edges <= 900
    assert benchmark.num_classes == 4
    with pytest.raises(ValueError, match=r"'nodes' must be given only for 'synthetic' \(got 5\)"):
        load_benchmark("cora", shift="label", nodes=5)
    with pytest.raises(ValueError, match=r"'option' must be one of nodes, .* \(got 'node'\); did you mean 'nodes'"):
        load_benchmark("synthetic", shift="label", node=5)


@pytest.mark.parametrize("shift", ["structure", "feature", "rewire", "feature-noise", "perturb-edges"])
def test_only_id_test_nodes_count_by_the_rigorous_protocol(shift):
    everyone = load_benchmark("synthetic", shift=shift)
    rigorous = load_benchmark("synthetic", shift=shift, test_nodes="id-test")
    assert everyone.ood[shift].mask.all()
    assert torch.equal(rigorous.ood[shift].mask, rigorous.id.test_mask)


@pytest.mark.parametrize("shift", ["planted-feature", "planted-structure"])
def test_planted_nodes_stand_among_id_nodes(shift):
    benchmark = load_benchmark("synthetic", shift=shift)
    graph = benchmark.ood[shift]
    assert int(graph.mask.sum()) == 200
    assert not (graph.mask & (benchmark.id.train_mask | benchmark.id.val_mask)).any()
    assert torch.equal(graph.test_mask, benchmark.id.test_mask & ~graph.mask)


@pytest.mark.parametrize(
    "name", ["citeseer", "amazon-computers", "coauthor-physics", "dblp", "twitch", "arxiv", "arxiv-topics"]
)
def test_what_is_not_at_hand_is_said(name, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert not DATASETS[name].available(tmp_path)
    with pytest.raises(DataNotFoundError, match=r"was not found\. Tried: .*, a download \(.*\)\. Pass root="):
        load_benchmark(name, shift=DATASETS[name].shifts[-3], root=tmp_path)


def test_in_the_same_later_graph_new_nodes_stand_beside_the_id_test_nodes():
    apart, same = (load_benchmark("synthetic", shift=shift, seed=1) for shift in ("time", "time-same-graph"))
    assert list(same.ood) == list(apart.ood)
    for name, graph in same.ood.items():
        assert torch.equal(graph.edge_index, apart.ood[name].edge_index)
        assert torch.equal(graph.mask, apart.ood[name].mask)
        assert torch.equal(graph.test_mask, apart.id.test_mask)
        assert not (graph.test_mask & graph.mask).any()
    assert torch.equal(same.exposure.mask, apart.exposure.mask)
