"""Benchmarks: recipes, run on shifted data, summarised, beside the paper's published figures."""
