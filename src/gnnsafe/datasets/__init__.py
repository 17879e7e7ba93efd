"""Data sets and shifts: real graphs, and what it means to leave their distribution."""

from gnnsafe.datasets import shifts
from gnnsafe.datasets.benchmark import Benchmark, load_benchmark
from gnnsafe.datasets.catalogue import CONTROLS, DATASETS, SAME_GRAPH
from gnnsafe.datasets.reading import read_graph

__all__ = ["CONTROLS", "DATASETS", "SAME_GRAPH", "Benchmark", "load_benchmark", "read_graph", "shifts"]
