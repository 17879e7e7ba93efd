# `make demo`, `make test`, `make benchmark`. Each sets up what it needs; a second call starts at once.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: help setup demo test coverage docs notebooks dist benchmark clean

help:
	@echo "make setup   a .venv with everything, versions as in constraints.txt"
	@echo "make demo    OOD detection on real Cora, a table and a page (about half a minute)"
	@echo "make test    the whole check: ruff, mypy, pytest with doctests, the documentation"
	@echo "make coverage  the same tests, and which lines of src/ they run (half as long again)"
	@echo "make docs    the documentation, into site/: open site/index.html, no server or network needed"
	@echo "make notebooks  run examples/*.ipynb anew and store their output (GNNSAFE_DATA for the one on Arxiv)"
	@echo "make dist    wheel, source archive and documentation of this version, into dist/, tried in an empty environment"
	@echo "make benchmark  speed and memory beside plain PyG, into benchmarks/results.md (six minutes on two idle cores)"
	@echo "make clean   remove the .venv and what the tools left behind"

setup: .venv/ready

# torch comes first and alone: its exact version is the CPU build, an open range would bring CUDA along.
.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	@echo "Installing into .venv; the first time takes a few minutes"
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt torch==2.13.0
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[report,cora,tables,duckdb,spark,monitor,serve,mlflow,docs,dev]'
	@command -v java >/dev/null || echo "No Java: the engine spark and its tests need one (apt install openjdk-17-jre-headless)"
	@touch $@

demo: setup
	$(BIN)/gnnsafe demo

# A worker per core, each with one thread: tests are many and small. Files are handed out in the order of tests/conftest.py.
# What is imported is compiled once, not by each of a hundred processes.
PYTEST := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/pytest -n auto --dist loadfile --no-loadscope-reorder

test: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	@command -v chromium chromium-browser google-chrome > /dev/null || echo "No Chromium here: the tests of the page in a browser are left out (Debian: apt install chromium)"
	$(PYTEST)

coverage: setup
	$(PYTEST) --cov

docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# Those on Cora take it from the extra, as a reader without a data folder does, so that their figures are the reader's.
EXECUTE := PYTHONWARNINGS="ignore:IProgress not found" OMP_NUM_THREADS=1 $(BIN)/jupyter nbconvert --to notebook --execute --inplace
ARXIV := examples/temporal_shift.ipynb

notebooks: setup
	GNNSAFE_DATA= $(EXECUTE) $(filter-out $(ARXIV),$(wildcard examples/*.ipynb))
	$(EXECUTE) $(ARXIV)

# Hatchling is what pip builds the package with; the wheel is then tried where nothing of the repository is.
dist: docs
	rm -rf dist
	$(BIN)/hatchling build
	$(BIN)/python -m zipfile -c dist/gnnsafe-$$($(BIN)/hatchling version)-docs.zip site/
	$(BIN)/python -m pytest tests/test_release.py

benchmark: setup
	$(BIN)/python -m benchmarks

clean:
	rm -rf .venv dist site .coverage .mypy_cache .pytest_cache .ruff_cache .hypothesis
