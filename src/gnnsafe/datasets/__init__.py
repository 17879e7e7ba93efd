"""Data sets and shifts: real graphs, and what it means to leave their distribution."""

from gnnsafe.datasets import shifts
from gnnsafe.datasets.benchmark import DATASETS, SHIFTS, Benchmark, load_benchmark

__all__ = ["DATASETS", "SHIFTS", "Benchmark", "load_benchmark", "shifts"]
