from __future__ import annotations

import pytest
import torch

from gnnsafe.datasets.synthetic import synthetic as made

SIZE = {"nodes": 2000, "edges": 10_000, "features": 500, "classes": 6}


def synthetic(seed: int, **options):
    return made(seed, **{**SIZE, **options})


def test_a_seed_is_all_it_takes():
    first, again, other = synthetic(0), synthetic(0), synthetic(1)
    for key in ("x", "edge_index", "y", "year"):
        assert torch.equal(first[key], again[key])
        assert not (first[key].shape == other[key].shape and torch.equal(first[key], other[key]))


def test_it_is_what_it_says():
    data = synthetic(0, nodes=3000, edges=30_000, features=300, classes=5)
    assert (data.num_nodes, data.num_features, int(data.y.max())) == (3000, 300, 4)
    assert 0.95 * 30_000 < data.num_edges <= 30_000
    assert data.is_undirected()
    assert not data.has_self_loops()
    assert data.is_coalesced()
    torch.testing.assert_close(data.x.sum(dim=1), torch.ones(3000))
    source, target = data.edge_index
    same = (data.y[source] == data.y[target]).float().mean().item()
    assert same == pytest.approx(0.8 + 0.2 / 5, abs=0.02)
    degree = torch.bincount(target, minlength=3000).float()
    assert degree.max() > 5 * degree.mean()  # a heavy tail
    assert (degree.var() / degree.mean()) > 2  # far from Poisson's 1


def test_words_tell_the_class_and_drift_changes_them():
    data = synthetic(0, features=500, classes=6)
    means = torch.stack([data.x[data.y == label].mean(dim=0) for label in range(6)])
    right = (data.x @ means.T).argmax(dim=1) == data.y
    assert right.float().mean() > 0.9

    def likeness(other) -> float:
        return torch.cosine_similarity(data.x.mean(dim=0), other.x.mean(dim=0), dim=0).item()

    assert likeness(synthetic(9)) > likeness(synthetic(9, drift=0.5)) > likeness(synthetic(9, drift=1.0))
    old, new = (data.x[mask].mean(dim=0) for mask in (data.year <= 2004, data.year >= 2015))
    early = data.x[(data.year > 2004) & (data.year <= 2008)].mean(dim=0)
    assert torch.dist(old, new) > torch.dist(old, early)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"classes": 1}, "'classes' must be >= 2"),
        ({"nodes": 20}, "'nodes' must be >= 10 per class, 60"),
        ({"features": 20}, "'features' must be >= 4 per class, 24"),
        ({"edges": -1}, r"'edges' must be a whole number >= 0"),
        ({"edges": 10**9}, r"'edges' must lie in \[0, 1e8\]"),
        ({"drift": 2}, r"'drift' must lie in \[0, 1\]"),
    ],
)
def test_bad_sizes(options, message):
    with pytest.raises(ValueError, match=message):
        synthetic(0, **options)


def test_no_edges():
    assert synthetic(0, edges=0).num_edges == 0
