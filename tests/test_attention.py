from __future__ import annotations

import torch

from gnnsafe.attention import Pattern
from gnnsafe.edges import Edges


class TestPattern:
    rows, columns = torch.tensor([2, 0, 1, 0, 2, 2, 2]), torch.tensor([1, 0, 1, 2, 0, 1, 2])  # (2, 1) is there twice

    def test_average_equals_the_dense_one(self):
        pattern = Pattern(self.rows, self.columns, 3)
        assert pattern.times.tolist() == [1, 1, 1, 1, 2, 1]
        scores, dense = torch.randn(6, dtype=torch.float64), torch.randn(3, 2, dtype=torch.float64)
        expected = torch.zeros(3, 2, dtype=torch.float64)
        for row in range(3):
            entries = (pattern.rows == row).nonzero().squeeze(1)
            entries = entries.repeat_interleave(pattern.times[entries])
            expected[row] = scores[entries].softmax(dim=0) @ dense[pattern.columns[entries].long()]
        torch.testing.assert_close(pattern.average(scores, dense), expected)
        torch.testing.assert_close(pattern._gathered_average(scores, dense), expected)  # as on other devices

    def test_gradients(self):
        pattern = Pattern(self.rows, self.columns, 3)
        scores = torch.randn(6, dtype=torch.float64, requires_grad=True)
        dense = torch.randn(3, 2, dtype=torch.float64, requires_grad=True)
        assert torch.autograd.gradcheck(pattern.average, (scores, dense))
        assert torch.autograd.gradcheck(pattern._gathered_average, (scores, dense))

    def test_a_graph_of_64_bit_or_32_bit_ids(self, directed):
        wide, narrow = (Edges(edges, 5).attention(2) for edges in
                        (directed.edge_index, directed.edge_index.int()))  # fmt: skip
        assert torch.equal(wide.columns, narrow.columns)
        assert wide.rows.dtype == torch.int32
