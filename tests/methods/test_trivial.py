"""Methods that need no model."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import scipy.sparse as sp
import torch

from gnnsafe import Detector
from gnnsafe.methods import (
    METHODS,
    MSP,
    Consensus,
    Degree,
    DegreeBalance,
    FeatureDistance,
    FeatureNorm,
    InDegree,
    MeanCosine,
    NonzeroFeatures,
    OutDegree,
    Propagated,
)
from gnnsafe.outputs import Outputs
from gnnsafe.sparse import Sparse

X = torch.tensor([[3.0, 4.0, 0.0], [0.0, 5.0, 0.0], [0.0, 0.0, 0.0], [1.0, 2.0, 2.0]])
EDGES = torch.tensor([[0, 1, 1, 0], [3, 3, 0, 2]])  # 0 → 3, 1 → 3, 1 → 0, 0 → 2


def graph(x=X):
    return SimpleNamespace(
        x=x, edge_index=EDGES, y=torch.zeros(4, dtype=torch.int64), train_mask=torch.tensor([True, True, False, True])
    )


def scored(method, x=X):
    return Detector(None, method).fit(graph(x)).score(graph(x)).tolist()


def test_mean_cosine_by_hand():
    # 0 hears 1: 4/5. 3 hears 0 and 1: (11/15 + 10/15) / 2. 1 has no in-neighbours; 2 has no features
    assert scored(MeanCosine()) == pytest.approx([-4 / 5, 0.0, 0.0, -21 / 30])


def test_feature_norm_by_hand():
    assert scored(FeatureNorm()) == pytest.approx([0.0, 0.0, 5.0, 2.0])  # training norms 5, 5, 3


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
@pytest.mark.parametrize("x", [X, X.to_sparse_csr()], ids=["dense", "csr"])
def test_feature_distance_by_hand(x):
    """Training rows (3, 4, 0), (0, 5, 0), (1, 2, 2): means 4/3, 11/3, 2/3, variances 14/9, 14/9, 8/9."""
    squares = [(25, 1, 4), (16, 16, 4), (16, 121, 4), (1, 25, 16)]  # of 3 (x − μ)
    expected = [one / 14 + two / 14 + three / 8 for one, two, three in squares]
    assert scored(FeatureDistance(), x) == pytest.approx(expected)
    fourth = [(one / 14) ** 2 + (two / 14) ** 2 + (three / 8) ** 2 for one, two, three in squares]
    outputs = Outputs(torch.zeros(4, 2), SimpleNamespace(x=x, edge_index=EDGES))
    training = torch.tensor([True, True, False, True])
    sums = FeatureDistance().fit(outputs, training.long(), training).of_graph(outputs.graph)
    torch.testing.assert_close(sums, torch.tensor([expected, fourth]).T, rtol=1e-5, atol=1e-5)


def test_a_feature_that_is_the_same_in_all_training_nodes_has_the_largest_deviation():
    x = torch.tensor([[0.0, 7.0], [2.0, 7.0], [1.0, 9.0], [4.0, 7.0]])  # training rows: variance 8/3 and none
    expected = [4 / (8 / 3), 0.0, 1 / (8 / 3) + 4 / (8 / 3), 4 / (8 / 3)]
    assert scored(FeatureDistance(), x) == pytest.approx(expected)
    assert scored(FeatureDistance(), torch.ones(4, 2)) == [0.0] * 4


@pytest.mark.parametrize("constant", [1 / 3, 1e9 / 3, 1e17 / 3, 1e30 / 3])
@pytest.mark.parametrize("training", [23, 47, 90])
def test_a_constant_feature_of_any_size_hides_no_other(constant, training):
    draw = torch.Generator().manual_seed(0)
    others = torch.rand(100, 30, generator=draw) * (torch.rand(100, 30, generator=draw) < 0.1)
    x = torch.cat([torch.full((100, 1), constant), others], dim=1)
    mask, found = torch.arange(100) < training, []
    for features in (others, x, x.to_sparse_csr()):
        outputs = Outputs(torch.zeros(100, 2), SimpleNamespace(x=features, edge_index=EDGES))
        found.append(FeatureDistance().fit(outputs, mask.long(), mask).score(outputs))
    torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=1e-3)
    torch.testing.assert_close(found[2], found[0], rtol=1e-4, atol=1e-3)


def test_nonzero_features_by_hand():
    assert scored(NonzeroFeatures()) == pytest.approx([0.0, 1.0, 2.0, 1.0])  # training counts 2, 1, 3


def test_degree_by_hand():
    assert scored(Degree()) == pytest.approx([0.0, 1.0, 0.0, 1.0])  # in-degrees 1, 0, 1, 2; training median 1


def test_one_sided_degrees_by_hand():
    # 0 → 3, 1 → 3, 1 → 0, 0 → 2: in-degrees 1, 0, 1, 2; out-degrees 2, 2, 0, 0
    assert scored(InDegree()) == [1.0, 0.0, 1.0, 2.0]
    assert scored(OutDegree("low")) == [-2.0, -2.0, 0.0, 0.0]
    assert scored(DegreeBalance()) == [1.0, 2.0, -1.0, -2.0]
    assert scored(DegreeBalance(side="low")) == [-1.0, -2.0, 1.0, 2.0]
    assert InDegree("low").says == "few point to it"
    with pytest.raises(ValueError, match="'side' must be"):
        OutDegree("both")


@pytest.mark.parametrize("name", [name for name, method in METHODS.items() if method.kind == "trivial"])
def test_sparse_features_score_the_same(name):
    assert scored(name, Sparse(sp.csr_array(X.numpy())).csr) == pytest.approx(scored(name))
    mostly_zero = torch.zeros(4, 40)
    mostly_zero[:, :3] = X  # so few that a sparse product is taken
    assert scored(name, mostly_zero) == pytest.approx(scored(name))
    assert scored(name, X.double()) == pytest.approx(scored(name))


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize("name", [name for name, method in METHODS.items() if method.kind == "trivial"])
def test_entries_that_are_given_twice_are_summed(name):
    starts, columns = torch.tensor([0, 3, 5, 7, 10]), torch.tensor([1, 0, 1, 1, 1, 2, 2, 2, 0, 1])
    entries = torch.tensor([5.0, 3.0, -1.0, 2.0, 3.0, 1.0, -1.0, 2.0, 1.0, 2.0])  # X, some of it in two parts
    assert scored(name, torch.sparse_csr_tensor(starts, columns, entries, (4, 3))) == pytest.approx(scored(name))


def test_cosine_of_long_vectors():
    x = torch.tensor([[1e-20, 0.0, 0.0], [1e18, 1e18, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]).double()
    for features in (x, x.float()):
        assert scored(MeanCosine(), features)[0] == pytest.approx(-math.sqrt(0.5))  # short, but of a direction
        assert scored(MeanCosine(), features)[3] == pytest.approx(-(1 + math.sqrt(0.5)) / 2)


def test_propagated_and_several_together_need_no_model_either():
    data = graph()
    data.val_mask = torch.tensor([False, False, True, False])
    for method in (Propagated(Degree()), Consensus((Degree(), FeatureNorm()))):
        assert Detector(None, method).fit(data).score(data).shape == (4,)
    with pytest.raises(ValueError, match=r"'model' must be a torch.nn.Module"):
        Detector(None, Consensus((Degree(), MSP())))
