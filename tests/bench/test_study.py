from __future__ import annotations

import os

import numpy as np
import pytest
import torch

from gnnsafe.bench import study as module
from gnnsafe.bench.paper import SHIFTS
from gnnsafe.bench.study import Cell, study
from gnnsafe.errors import InputError

CELLS = [Cell("cora", shift, seed, epochs=2) for shift in SHIFTS for seed in (0, 1)]


def test_processes_give_what_one_process_gives(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    parallel = list(study(CELLS))
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    alone = list(study(CELLS))
    assert len(parallel) == len(alone) == 6
    for (source, results), (expected_source, expected) in zip(parallel, alone, strict=True):
        assert source == expected_source
        assert [(r.shift, r.seed, r.method) for r in results] == [(r.shift, r.seed, r.method) for r in expected]
        for result, other in zip(results, expected, strict=True):
            assert result.detection == other.detection
            np.testing.assert_array_equal(result.ood_scores, other.ood_scores)


def test_few_cells_start_no_process(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(module, "ProcessPoolExecutor", None)
    monkeypatch.setattr(Cell, "run", lambda self: ("here", []))
    assert list(study(CELLS[:5])) == [("here", [])] * 5


def test_the_number_of_threads_is_left_as_it_was_found(monkeypatch):
    before, seen = torch.get_num_threads(), []
    monkeypatch.setattr(module, "run", lambda *_, **__: seen.append(torch.get_num_threads()))
    CELLS[0].run()
    assert seen == [1]
    assert torch.get_num_threads() == before


def test_a_mistake_in_a_process_is_the_same_mistake_here(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    with pytest.raises(InputError, match=r"'root' must be a folder \(got '/no/where'\)"):
        list(study([Cell("cora", "label", seed, root="/no/where") for seed in range(6)]))
