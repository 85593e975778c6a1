# One command each: `make demo`, `make test`, `make check`, `make bench`. Every one does its own set-up.
PYTHON ?= python3.11
VENV ?= .venv
BIN := $(VENV)/bin
WORKERS ?= 2
.DEFAULT_GOAL := help
.PHONY: help setup demo test test-all check format bench mutants clean

help:            ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## / — /' | sed 's/^/make /'

$(VENV)/.ready: pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null || { echo "Python 3.11 or newer is needed: set PYTHON=python3.x"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing dither and its tools into $(VENV) (about a minute) …"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

setup: $(VENV)/.ready     ## make the environment

demo: setup      ## price, calibrate and explain, with plots, in under a minute
	@$(BIN)/dither demo

test: setup      ## everything that fits the time of CI
	$(BIN)/python -m pytest -n $(WORKERS) -m "not slow and not spark and not postgres"

test-all: setup  ## every test there is
	$(BIN)/python -m pytest -n $(WORKERS)

check: setup     ## format, lint, types, import contracts, docs
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/python -m pytest -q tests/docs

format: setup    ## put the code in its house form
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: setup     ## ours beside the peers, ratios from one run
	$(BIN)/python benchmarks/run.py --install

mutants: setup   ## break noise and accounting on purpose; every mutant that weakens a guarantee must be caught
	$(BIN)/python tools/mutants.py

clean:           ## remove the environment and all caches
	rm -rf $(VENV) .venvs .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist out
