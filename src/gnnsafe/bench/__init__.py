"""Benchmarks: a plan of cells, run recipe by recipe, kept in a store, beside the paper's published figures."""
