from __future__ import annotations

import pytest
import torch
from tests.conftest import block_graph

import gnnsafe
from gnnsafe.scaling import FeatureScaling, is_bag_of_words, row_normalised

pytestmark = pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta", "ignore:Sparse invariant checks")
EVERY = torch.ones(4, dtype=torch.bool)


class TestStandard:
    def test_by_hand(self):
        x = torch.tensor([[1.0, 10.0], [3.0, 10.0], [5.0, 99.0]])
        scaling = FeatureScaling.fit(x, torch.tensor([True, True, False]))
        # column 0: mean 2, standard deviation 1; column 1 does not vary among the first two nodes
        assert scaling(x).tolist() == [[-1.0, 0.0], [1.0, 0.0], [3.0, 0.0]]
        assert scaling.constant == 1
        assert str(scaling).endswith("standard deviation, 1 left out that do not vary in float32")

    def test_scales_and_offsets_of_columns_do_not_matter(self):
        x = torch.randn(500, 6, generator=torch.Generator().manual_seed(0))
        moved = x.double()
        moved[:, 1] *= 1e6
        moved[:, 2] = 3e-5 * moved[:, 2] - 1e-3
        moved[:, 3] += 1e4
        mask = torch.arange(500) < 300
        one, other = (FeatureScaling.fit(each, mask, "standard")(each) for each in (x, moved.float()))
        assert torch.allclose(one, other, atol=2e-3)  # 1e4 leaves float32 a step of 1e-3
        assert one[mask].mean(dim=0).abs().max() < 1e-6
        assert torch.allclose(one[mask].std(dim=0, correction=0), torch.ones(6), atol=1e-6)

    def test_an_offset_that_leaves_no_digits_is_a_column_that_does_not_vary(self):
        x = torch.randn(100, 2, generator=torch.Generator().manual_seed(0))
        x[:, 1] += 1e9
        scaling = FeatureScaling.fit(x, torch.ones(100, dtype=torch.bool))
        assert scaling.constant == 1
        assert not scaling(x)[:, 1].any()

    def test_sparse_features_are_scaled_as_the_dense_ones_it_was_fitted_on(self):
        x = torch.tensor([[0.0, 10.0], [2.0, 0.0], [4.0, 5.0], [0.0, 1.0]])
        scaling = FeatureScaling.fit(x, EVERY, "standard")
        assert torch.equal(scaling(x.to_sparse_csr()), scaling(x))
        with pytest.raises(ValueError, match=r"'x' must have the 2 features that the scaling knows \(got 3\)"):
            scaling(torch.ones(4, 3))
        with pytest.raises(ValueError, match=r"'scaling' must be a FeatureScaling \(got 'standard'\); such as"):
            gnnsafe.Detector(None, "degree", scaling="standard")

    def test_moments_are_exact_far_from_zero(self):
        x = torch.tensor([[1e8], [1e8 + 64], [1e8 + 128], [1e8 + 192]])
        assert FeatureScaling.fit(x, EVERY)(x).flatten().tolist() == pytest.approx(
            [-1.3416, -0.4472, 0.4472, 1.3416], abs=1e-4
        )

    def test_sparse_stays_sparse_and_is_not_shifted(self):
        x = torch.tensor([[0.0, -3.0], [4.0, 0.0], [0.0, 3.0], [0.0, 0.0]])
        scaled = FeatureScaling.fit(x.to_sparse_csr(), EVERY)(x.to_sparse_csr())
        assert scaled.layout == torch.sparse_csr
        # root mean squares: 2 and √4.5
        assert torch.allclose(scaled.to_dense(), x / torch.tensor([2.0, 4.5**0.5]))


class TestRows:
    def test_by_hand_dense_and_sparse(self):
        x = torch.tensor([[1.0, 3.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 2.0]])
        right = torch.tensor([[0.25, 0.75, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
        assert torch.equal(row_normalised(x), right)
        assert torch.equal(row_normalised(x.to_sparse_csr()).to_dense(), right)

    def test_an_entry_is_about_one_whatever_it_counts(self):
        words = torch.tensor([[1.0, 0.0, 1.0, 0.0], [0.0, 2.0, 0.0, 0.0], [9.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]])
        mask = torch.tensor([True, True, False, False])  # 2 entries and 1: 1.5 on average
        right = torch.tensor([[0.75, 0, 0.75, 0], [0, 1.5, 0, 0], [1.5, 0, 0, 0], [0, 0, 0, 0]])
        for x in (words, 1e-7 * words):
            assert torch.allclose(FeatureScaling.fit(x, mask)(x), right)
            sparse = x.to_sparse_csr()
            assert torch.allclose(FeatureScaling.fit(sparse, mask)(sparse).to_dense(), right)
        assert str(FeatureScaling.fit(words, mask)) == "a bag of words: rows divided by their sum, times 1.5"

    @pytest.mark.parametrize("sparse", [False, True])
    def test_what_a_bag_of_words_is(self, sparse):
        def bag(x):
            return is_bag_of_words(x.to_sparse_csr() if sparse else x)

        words = (torch.rand(50, 20, generator=torch.Generator().manual_seed(0)) < 0.1).float()
        assert bag(words)
        assert bag(words * 7.5)
        assert not bag(words - 2 * words * (torch.arange(20) == 3))  # below zero
        assert not bag(1 - words)  # mostly not zero
        assert not bag(torch.cat([words, torch.ones(50, 1)], dim=1))  # a column that is never zero
        assert not bag(torch.cat([words, 101 * words[:, :1]], dim=1))  # numbers of another scale
        assert not bag(torch.zeros(3, 2))

    def test_auto_takes_rows_for_words_and_columns_for_numbers(self):
        words = torch.eye(4)
        assert FeatureScaling.fit(words, EVERY).kind == "rows"
        assert FeatureScaling.fit(words + 1, EVERY).kind == "standard"
        assert FeatureScaling.fit(words, EVERY, "standard").kind == "standard"
        assert FeatureScaling.fit(words, EVERY, "none") is None
        with pytest.raises(ValueError, match="'scale' must be one of auto, standard, rows, none"):
            FeatureScaling.fit(words, EVERY, "row")


@pytest.mark.parametrize("scale", ["standard", "rows"])
@pytest.mark.parametrize("sparse", [False, True])
def test_a_detector_scales_every_graph_it_is_shown(scale, sparse, tmp_path):
    data, new = block_graph(), block_graph(seed=1)
    scaling = FeatureScaling.fit(data.x.to_sparse_csr() if sparse else data.x, data.train_mask, scale)
    torch.manual_seed(0)
    model = gnnsafe.models.GCN(8, 16, 3)
    raw = gnnsafe.Detector(model, scaling=scaling).fit(data).calibrate(data)
    by_hand = gnnsafe.Detector(model)
    for graph in (scaled := data.clone(), scaled_new := new.clone()):
        graph.x = scaling(graph.x)
    by_hand.fit(scaled).calibrate(scaled)
    assert torch.equal(raw.score(new), by_hand.score(scaled_new))
    assert torch.equal(raw.p_values(new), by_hand.p_values(scaled_new))
    assert torch.equal(raw.score_new(new, [5]).scores, by_hand.score_new(scaled_new, [5]).scores)
    raw.save(tmp_path)
    assert torch.equal(gnnsafe.load(tmp_path).score(new), raw.score(new))
