# Every target makes what it needs: a fresh clone, Python 3.11+ and make are enough. uv is used when it is there.
.DEFAULT_GOAL := help
PYTHONS := 3.11 3.12 3.13
MATRIX ?= $(addprefix tests/,$(addprefix inference/test_,arviz.py align.py diagnostics.py svi.py gibbs.py mcmc.py) $(addprefix gsnmf/test_,anndata.py crosscheck.py comparison.py feature_sets.py features.py files.py ranks.py reading.py))
.PHONY: help demo test test-slow test-matrix test-lowest tests-here test-install mutants fuzz soak coverage release-check lint format bench docs notebooks clean clean-cache

PYTHON ?= $(shell for v in 3.11 3.12 3.13 3; do command -v python$$v >/dev/null 2>&1 && python$$v -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo python$$v && break; done)
VENV ?= .venv
BIN := $(VENV)/bin
UV := $(shell command -v uv 2>/dev/null)
PIP := $(if $(UV),$(UV) pip install --python $(BIN)/python,$(BIN)/python -m pip install --disable-pip-version-check) --quiet
# Tests keep what JAX compiles, in the user's cache folder; COLD=1 begins with nothing and a random hash seed.
CACHED = $(BIN)/python tests/with_cache.py $(if $(filter-out 0,$(COLD)),--cold) $(BIN)/python -m pytest
OPTIMISED := --xla_backend_optimization_level=3 --xla_llvm_disable_expensive_passes=false
PARALLEL := --numprocesses=logical --maxprocesses=4 --dist=worksteal

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

# One environment for all targets; made again whenever pyproject.toml or a source of the compiled kernels changes.
$(VENV)/ready: pyproject.toml setup.py $(wildcard inference/native/*.cc inference/native/*.h)
	@test -n "$(PYTHON)" || { echo "expected Python 3.11 or newer on the PATH; found none (set PYTHON=...)" >&2; exit 1; }
	$(if $(UV),$(UV) venv --quiet --allow-existing --python $(PYTHON),$(PYTHON) -m venv) $(VENV)
	$(PIP) --editable '.[test,lint]'
	@touch $@

demo: $(VENV)/ready ## fit scikit-learn's digits, print a table, draw figures into demo/
	$(BIN)/gsnmf demo --out demo

test: $(VENV)/ready ## the test suite (COLD=1 without what JAX compiled in earlier runs)
	$(CACHED) $(PARALLEL)

test-slow: $(VENV)/ready ## the tests that take minutes
	$(PIP) --editable '.[cluster]'
	XLA_FLAGS="$(OPTIMISED) $$XLA_FLAGS" $(CACHED) -m slow --numprocesses=2 --dist=worksteal

test-matrix: ## what depends on ArviZ, NumPyro and pandas, on every Python from 3.11 to 3.13 there is, with pandas 2 and 3 (MATRIX=tests for all, PANDAS=3 for one generation)
	@for v in $(PYTHONS); do \
	  for p in python$$v "$${PYENV_ROOT:-$$HOME/.pyenv}"/versions/$$v.*/bin/python ""; do \
	    test -n "$$p" && "$$p" -c '' 2>/dev/null && break; \
	  done; \
	  test -n "$$p" || { echo "== no Python $$v here: left out"; continue; }; \
	  for d in $(or $(PANDAS),2 3); do \
	    echo "== Python $$v, pandas $$d"; \
	    $(MAKE) --no-print-directory VENV=.venv-$$v-pandas$$d PANDAS=$$d PYTHON="$$p" tests-here || exit 1; \
	  done; \
	done

# anndata below 0.13 needs pandas 2: with pandas 3, which is installed over it, its tests are skipped.
tests-here: $(VENV)/ready
	$(if $(PANDAS),$(PIP) 'pandas==$(PANDAS).*')
	@$(BIN)/python -c 'from importlib.metadata import version as v; print(*(f"{name} {v(name)}" for name in ("arviz", "numpyro", "jax", "pandas")))'
	$(CACHED) -q $(PARALLEL) $(MATRIX)

# The lowest versions that pyproject.toml allows, of what it names itself; uv resolves them.
.venv-lowest/ready: pyproject.toml
	@test -n "$(UV)" || { echo "expected uv, which resolves the lowest versions; found none (pip install uv)" >&2; exit 1; }
	$(UV) venv --quiet --allow-existing --python 3.11 .venv-lowest
	$(UV) pip install --quiet --python .venv-lowest/bin/python --resolution lowest-direct --editable '.[test]'
	@touch $@

test-lowest: .venv-lowest/ready ## the same with the lowest versions of every dependency, on Python 3.11 (MATRIX=tests for all)
	$(MAKE) --no-print-directory VENV=.venv-lowest --old-file .venv-lowest/ready tests-here

mutants: $(VENV)/ready ## plant bugs, one at a time, and see which test notices (ARGS='--only TEXT' for some)
	$(BIN)/python tests/mutation/run.py $(ARGS)

fuzz: $(VENV)/ready ## damage files and options at random for SECONDS=60, and keep what crashes in fuzz-crashes/ (ARGS='--seed 1')
	$(BIN)/python tests/fuzz/fuzz.py --seconds $(or $(SECONDS),60) $(ARGS)

soak: $(VENV)/ready ## fits of varying shapes for SECONDS=120: does memory grow?
	$(BIN)/python benchmarks/soak.py --seconds $(or $(SECONDS),120) $(ARGS)

# Slow tests of what no fast one reaches: several devices, a sparse X in NumPyro, calibration, evidence.
SLOW_COVERED := $(addprefix tests/inference/test_,sharding.py sparse.py diagnostics.py evidence.py)
COVERAGE := --cov=gsnmf.model --cov=gsnmf.inference
coverage: $(VENV)/ready ## lines of model/ and inference/ that no test runs, some slow ones included
	$(PIP) 'pytest-cov>=7' 'coverage>=7.10'
	$(CACHED) -q $(PARALLEL) $(COVERAGE) --cov-report=
	$(CACHED) -q --numprocesses=2 -m slow $(SLOW_COVERED) $(COVERAGE) --cov-append --cov-report=term-missing:skip-covered --cov-fail-under=97 $(ARGS)

release-check: $(VENV)/ready ## build sdist and wheel in dist/, and let twine check them
	$(PIP) 'build>=1.2' 'twine>=6'
	rm -rf dist
	$(BIN)/python -m build --outdir dist .
	$(BIN)/python -m twine check --strict dist/*

test-install: ## install from wheel, sdist and checkout, with and without a compiler, on every Python there is: a table
	$(PYTHON) tests/install_matrix.py $(ARGS)

lint: $(VENV)/ready ## ruff and mypy
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

format: $(VENV)/ready ## let ruff format the code
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

bench: $(VENV)/ready ## speed beside the floor and the peers: a table, JSON and a plot (ARGS='--quick' for less)
	$(BIN)/python benchmarks/run.py $(ARGS)

# Sphinx comes with the first build: nobody else waits for it.
$(VENV)/docs-ready: $(VENV)/ready
	$(PIP) --editable '.[docs]'
	@touch $@

docs: $(VENV)/docs-ready ## all pages and the reference as one site, site/index.html; warnings are errors
	$(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going --conf-dir docs . site
	@echo "site/index.html opens in a browser"

notebooks: $(VENV)/ready ## run the notebooks in full, each in a kernel of its own, and keep what they show
	$(BIN)/python notebooks/run_notebooks.py $(ARGS)

clean-cache: ## remove what JAX compiled for the tests, by default in ~/.cache/gsnmf
	rm -rf "$${XDG_CACHE_HOME:-$$HOME/.cache}"/gsnmf/jax-*

clean: ## remove the environment and everything that was made (compiled tests: clean-cache)
	rm -rf $(VENV) .venv-3.* demo site build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache
