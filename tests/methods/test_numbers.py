"""What a score may be, whatever numbers a model gives: finite, float32, and the same in any order of the nodes."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from gnnsafe import Detector, Outputs
from gnnsafe.errors import GnnsafeError, InputError
from gnnsafe.methods import KNN, METHODS, Consensus, Mahalanobis, Propagated
from gnnsafe.models import GCN
from gnnsafe.outputs import Penultimate

everyone = pytest.mark.parametrize("name", METHODS)


class Mixing(nn.Module):
    """Logits ½h + ½ mean of the in-neighbours' h, h = x the penultimate embedding: as large as the features are."""

    def __init__(self) -> None:
        super().__init__()
        self.penultimate = Penultimate()

    def forward(self, x, edge_index):
        source, target = edge_index
        h = self.penultimate(x)
        degree = torch.bincount(target, minlength=len(x)).clamp(min=1).to(x.dtype)
        heard = torch.zeros_like(h).index_add(0, target, h[source] / degree[target, None])
        return 0.5 * h + 0.5 * heard


def graph(seed: int, nodes: int = 24, classes: int = 3, edges: int = 60) -> SimpleNamespace:
    """Directed, with repeated edges, self-loops and nodes that nobody points to; features between −1 and 1."""
    generator = torch.Generator().manual_seed(seed)
    ends = torch.randint(nodes, (2, edges), generator=generator)
    ends[1] = ends[1].clamp(max=nodes * 3 // 4)
    ends = torch.cat([ends, ends[:, : edges // 6], torch.tensor([[0], [0]])[:, : nodes and 1]], dim=1)
    order = torch.randperm(nodes, generator=generator)
    train, val = torch.zeros(2, nodes, dtype=torch.bool)
    train[order[: max(1, nodes // 2)]] = True
    val[order[-max(1, nodes // 3) :]] = True
    return SimpleNamespace(
        x=2 * torch.rand(nodes, classes, generator=generator) - 1,
        edge_index=ends,
        y=torch.randint(classes, (nodes,), generator=generator),
        train_mask=train,
        val_mask=val,
    )


def both(name: str, data: SimpleNamespace, model: nn.Module | None = None, **settings: int) -> list[torch.Tensor]:
    """The method's scores and the propagated ones, checked to be finite float32 numbers."""
    outputs = Outputs.of(model or Mixing(), data)
    method = METHODS[name]()
    method = replace(method, **{field: value for field, value in settings.items() if hasattr(method, field)})
    propagated = Propagated(method).fit(outputs, data.y, data.train_mask)  # fits the method, too
    results = [method.score(outputs), propagated.score(outputs)]
    for result in results:
        assert result.shape == (len(data.x),)
        assert result.dtype == torch.float32
        assert torch.isfinite(result).all()
    return results


@everyone
@pytest.mark.parametrize("magnitude", [1e-38, 1e-20, 1e-6, 1e6, 1e20, 1e38, 3e38])
def test_float32_of_any_magnitude_scores_as_it_does_in_float64(name, magnitude):
    data = graph(0)
    data.x = data.x * magnitude
    found = both(name, data)
    data.x = data.x.double()
    for single, double in zip(found, both(name, data), strict=True):
        torch.testing.assert_close(single, double, rtol=1e-3, atol=1e-5)


@everyone
@pytest.mark.parametrize(("dtype", "magnitude"), [
    (torch.float16, 6e4), (torch.float16, 1e-7), (torch.bfloat16, 3e38), (torch.bfloat16, 1e-38),
    (torch.float64, 1e-100), (torch.float64, 3e38),
])  # fmt: skip
def test_other_precisions_of_any_magnitude(name, dtype, magnitude):
    data = graph(1)
    data.x = (data.x.double() * magnitude).to(dtype)
    both(name, data)


@everyone
def test_what_float32_has_not_is_refused(name):
    data = graph(2)
    data.x = data.x.double() * 1e300
    with pytest.raises(InputError, match=r"'x' must lie within the range of float32, ±3.4e38 \(got 9\.\d*e\+299\)"):
        both(name, data)


def test_embeddings_that_are_no_numbers_are_refused():
    data = graph(2)
    outputs = Outputs(data.x, data, embedded=data.x / 0)
    with pytest.raises(InputError, match="'embeddings' must be finite"):
        KNN().fit(outputs, data.y, data.train_mask)


@pytest.mark.filterwarnings("ignore:the model gives the same logits without edges")  # of features that are 0
@everyone
@pytest.mark.parametrize("value", [0.1, 0.0, 1e-30, 3e38])
def test_nodes_that_are_all_alike(name, value):
    data = graph(3)
    data.x = torch.full_like(data.x, value)
    data.x[:, 0] *= -1
    if name in ("mahalanobis", "gebm", "two-scale"):
        with pytest.raises(InputError, match=r"'embeddings' must differ between training nodes \(got all alike\)"):
            both(name, data)
        return
    both(name, data)


@pytest.mark.parametrize("name", ["mahalanobis", "gebm"])
def test_nodes_that_are_alike_within_their_class(name):
    data = graph(3)
    data.x = torch.nn.functional.one_hot(data.y, 3) * 0.1 + 0.7
    data.x[0] = torch.tensor([5.0, 5.0, -5.0])
    data.train_mask[0] = False
    scores = both(name, data)[0]
    assert scores.abs().max() < 1e6
    assert scores.argmax() == 0


def odd_features(kind: int, x: torch.Tensor) -> torch.Tensor:
    """Plain ones, ties, identical nodes, all magnitudes at once, or none."""
    magnitudes = torch.logspace(-37, 38, len(x), dtype=torch.float64)[:, None]
    return (x, x.sign(), x[:1].expand(len(x), -1).clone(), x * magnitudes, torch.zeros_like(x))[kind]


@pytest.mark.filterwarnings("ignore:the model gives the same logits without edges")
@everyone
def test_any_small_graph_is_scored_or_refused_in_one_line(name):
    generator = torch.Generator().manual_seed(0)
    refusals = []
    for trial in range(40):
        sizes = ((1, 9), (2, 5), (0, 40))
        nodes, classes, edges = (int(torch.randint(*size, (), generator=generator)) for size in sizes)
        data = graph(trial, nodes, classes, edges)
        dtype = (torch.float32, torch.float64, torch.bfloat16, torch.float16)[trial % 4]
        limit = torch.finfo(dtype).max if dtype != torch.float64 else torch.finfo(torch.float32).max
        data.x = odd_features(trial % 5, data.x.double()).clamp(-limit, limit).to(dtype)
        if trial % 3 == 0:
            data.y[:] = 0  # one class present
        try:
            both(name, data, **({"epochs": 10} if trial >= 20 else {}))  # by then each kind was there in each dtype
        except GnnsafeError as error:
            refusals.append(str(error))
    assert all("\n" not in refusal for refusal in refusals)
    most = 34 if name in ("mahalanobis", "gebm", "two-scale") else 7  # one training node, or all alike
    assert len(refusals) < most


def permuted(data: SimpleNamespace, order: torch.Tensor) -> SimpleNamespace:
    place = torch.argsort(order)
    edges = place[data.edge_index]
    edges = edges[:, torch.randperm(edges.shape[1], generator=torch.Generator().manual_seed(len(order)))]
    rows = {name: getattr(data, name)[order] for name in ("x", "y", "train_mask", "val_mask")}
    return SimpleNamespace(edge_index=edges, **rows)


@everyone
@pytest.mark.parametrize("seed", range(6))
def test_scores_go_with_their_nodes_among_ties(name, seed):
    """Nodes in threes with the same features and in-neighbours: a permutation changes scores by rounding alone."""
    data = graph(seed, nodes=20, edges=50)
    data.x, data.y, data.train_mask, data.val_mask = (
        getattr(data, name).repeat_interleave(3, dim=0) for name in ("x", "y", "train_mask", "val_mask")
    )
    data.edge_index = torch.cat([3 * data.edge_index + torch.tensor([[0], [copy]]) for copy in range(3)], dim=1)
    torch.manual_seed(seed)
    model = GCN(3, 16, 3)
    order = torch.randperm(60, generator=torch.Generator().manual_seed(seed))
    for before, after in zip(both(name, data, model), both(name, permuted(data, order), model), strict=True):
        torch.testing.assert_close(after, before[order], rtol=1e-4, atol=1e-4)


def test_rounding_breaks_no_ties_of_a_consensus():
    data = graph(0)
    consensus = Consensus(methods=(KNN(k=1),))
    outputs = Outputs.of(Mixing(), data)
    scores = consensus.fit(outputs, data.y, data.train_mask).score(outputs)
    consensus.calibration_ = consensus.calibration_ * (1 - 1e-6)  # each its own rank, except for the last digits
    assert torch.equal(consensus.score(outputs), scores)


def test_a_bank_with_a_row_of_zeros_is_searched_by_distance():
    from gnnsafe.methods.knn import nearest_distances

    point, bank = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 0.0], [0.3, 0.91**0.5]])
    assert nearest_distances(point, bank, 1).item() == pytest.approx(1.0)  # not √(2 − 0.6), the more similar one


def test_a_detector_of_training_nodes_without_any_label():
    data = graph(0)
    data.y = torch.zeros(len(data.x), 3)
    for method in (Mahalanobis(), KNN()):
        scores = Detector(Mixing(), method, task="multilabel").fit(data).score(data)
        assert torch.isfinite(scores).all()
