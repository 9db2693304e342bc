# Everything a checkout needs. `make demo` and `make test` work on a fresh machine.
SHELL := /bin/bash
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
export TRAINSHED_ENVS ?= $(CURDIR)/.envs
export TRAINSHED_HOME ?= $(CURDIR)/.trainshed

.PHONY: install system demo test check bench clean

install: $(VENV)/.made

$(VENV)/.made: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q --disable-pip-version-check -e '.[dev,store]'
	$(BIN)/python -m compileall -q src || true
	touch $@

system:
	@bash scripts/system.sh

demo: install system
	@$(BIN)/python scripts/demo.py

check: install
	$(BIN)/ruff check --no-cache .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# make test T=contracts runs one area: foundation store contracts benchmark platform slurm
# make test ARGS=tests/spec runs what pytest is given
test: check system
	@scripts/test.sh "$(T)" $(ARGS)

# make bench RACE=startup runs one race
bench: install system
	$(BIN)/python -m bench.harness $(RACE)

clean:
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .trainshed
