# Everything a checkout needs. `make demo` and `make test` work on a fresh machine.
SHELL := /bin/bash
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
# Tests and races leave the user's home alone; the demo uses it, so that its runs are found there afterwards.
test bench chaos: export TRAINSHED_ENVS ?= $(CURDIR)/.envs
test bench chaos: export TRAINSHED_HOME ?= $(CURDIR)/.trainshed

.PHONY: install system demo test check bench chaos fuzz clean

install: $(VENV)/.made

$(VENV)/.made: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q --disable-pip-version-check -e '.[dev,store]'
	$(BIN)/python -m compileall -q src || true
	touch $@

system:
	@bash scripts/system.sh

demo: $(VENV)/.demo
	@bash scripts/system.sh bubblewrap
	@$(BIN)/python scripts/demo.py

$(VENV)/.demo: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q --disable-pip-version-check -e '.[store]'
	touch $@

check: install
	$(BIN)/ruff check --no-cache .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# make test T=core runs one area: core hardening field foundation store contracts benchmark slurm server
# make test ARGS=tests/spec runs what pytest is given
test: check system
	@scripts/test.sh "$(T)" $(ARGS)

# make bench RACE=startup runs one race
bench: install system
	$(BIN)/python -m races.harness $(RACE)

# make chaos SEED=7 TRIALS=500 ON=sandbox,plain,podman,slurm; see docs/chaos.md
SEED ?= 1
TRIALS ?= 100
ON ?= sandbox,plain,podman,slurm
chaos: install system
	$(BIN)/python -m chaos --seed $(SEED) --trials $(TRIALS) --on $(ON) $(ARGS)

# make fuzz MINUTES=60 TARGET=events; all targets, one after another, without TARGET
MINUTES ?= 1
fuzz: install
	$(BIN)/python scripts/fuzz.py $(MINUTES) $(TARGET)

clean:
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .trainshed
