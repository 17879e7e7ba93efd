# `make demo`, `make test`, `make benchmark`. Each sets up what it needs; a second call starts at once.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: help setup demo test benchmark clean

help:
	@echo "make setup   a .venv with everything, versions as in constraints.txt"
	@echo "make demo    OOD detection on real Cora, a table and a page (about half a minute)"
	@echo "make test    the whole check: ruff, mypy, pytest with doctests and coverage"
	@echo "make benchmark  speed and memory beside plain PyG, into benchmarks/results.md (six minutes on two idle cores)"
	@echo "make clean   remove the .venv and what the tools left behind"

setup: .venv/ready

# torch comes first and alone: its exact version is the CPU build, an open range would bring CUDA along.
.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	@echo "Installing into .venv; the first time takes a few minutes"
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt torch==2.13.0
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[report,cora,tables,monitor,mlflow,serve,dev]'
	@touch $@

demo: setup
	$(BIN)/gnnsafe demo

test: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	@command -v chromium chromium-browser google-chrome > /dev/null || echo "No Chromium here: the tests of the page in a browser are left out (Debian: apt install chromium)"
	OMP_NUM_THREADS=1 $(BIN)/pytest --cov -n auto  # a worker per core, each with one thread: tests are many and small

benchmark: setup
	$(BIN)/python -m benchmarks

clean:
	rm -rf .venv .coverage .mypy_cache .pytest_cache .ruff_cache .hypothesis
