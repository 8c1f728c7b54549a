# make env    a virtual environment in .venv with akeso installed for development
# make demo   that, and akeso run and akeso treat on a sick training: found, cured, before and after
# make test   that, and all checks and tests
# make lint   formatting, lint and types alone
# make bench  what the benchmarks compare with, into the same environment

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip
INSTALL := $(PIP) install --quiet --disable-pip-version-check --no-compile -c constraints.txt
STAMP := $(VENV)/.akeso-installed
# Compiled once, on all cores: where Python is told to write no bytecode, every process would compile torch again,
# and the tests start hundreds. Some packages hold files that are no Python of this version.
COMPILE := $(BIN)/python -m compileall -qq -j 0
TORCH := torch==2.13.0

.PHONY: env demo test lint bench

env: $(STAMP)

# torch first and alone: an index that offers a build for this machine is then asked for it before anything
# else can pull in another one. The build backend is installed like everything else, under the same pins,
# so that nothing is fetched unpinned into an isolated build.
$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(INSTALL) "$(TORCH)"
	$(INSTALL) hatchling editables
	$(INSTALL) --no-build-isolation -e ".[dev]"
	$(COMPILE) $(VENV)/lib || true
	touch $@

bench: env
	$(INSTALL) --no-build-isolation -e ".[dev,bench]"
	$(COMPILE) $(VENV)/lib || true

demo: env
	@$(COMPILE) src
	@echo '$$ akeso run --exit-zero examples/sick_circle.py'
	@$(BIN)/akeso run --exit-zero examples/sick_circle.py
	@echo
	@echo '$$ akeso treat examples/sick_circle.py'
	@$(BIN)/akeso treat examples/sick_circle.py

lint: env
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint
	@$(COMPILE) src tests benchmarks
	$(BIN)/pytest -n 3 --dist loadfile --no-loadscope-reorder
