# Every command a reader or a contributor needs. `make` alone lists them.
# Needs only Python 3.11+ and git; everything else goes into .venv.

PYTHON ?= python3
BIN := .venv/bin
MNIST := $(if $(DATA_DIR),--data-dir $(DATA_DIR))
PIP_INSTALL := $(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help reproduce test test-browser test-torch test-cluster lint format docs bench bench-more faults figures clean

help: ## list these commands
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

reproduce: .venv/.installed ## run every experiment of the paper on digits and write the report, in about two minutes
	$(BIN)/counterflow reproduce

test: lint ## run the linter, the type checker, tests and doctests
	$(BIN)/pytest tests
	$(BIN)/pytest README.md docs src
	@echo "left out: the report in a browser (make test-browser), PyTorch models (make test-torch), several processes and sweeps (make test-cluster)"

test-browser: .venv/.installed ## test the report in headless Chromium (Debian: chromium, chromium-driver)
	@command -v chromedriver >/dev/null || { echo "this needs Chromium and its driver: apt-get install chromium chromium-driver"; exit 1; }
	$(BIN)/pytest tests/browser -m browser -n 0

test-torch: .venv/.installed-torch ## test problems from PyTorch modules (installs PyTorch)
	$(BIN)/pytest tests/test_torch.py src/counterflow/torch docs/pytorch.md -m torch

test-cluster: .venv/.installed-cluster ## test runs by several processes, and sweeps on a local Ray, some killed on the way (installs Ray)
	$(BIN)/pytest tests/cluster -m cluster -n 0

lint: .venv/.installed ## run the linter and the type checker alone
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/pyright

format: .venv/.installed ## format the code and fix what the linter can fix
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

docs: .venv/.installed ## build the documentation site into site/; a broken link is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict -q

bench: .venv/.installed-torch ## measure the cost of gradients, solvers, counter terms and growth beside what one would use instead, in about ten minutes (DATA_DIR=FOLDER: with MNIST's files from there)
	$(BIN)/python benchmarks/one_gradient.py $(MNIST)
	$(BIN)/python benchmarks/velocity.py $(MNIST)
	$(BIN)/python benchmarks/work_precision.py
	$(BIN)/python benchmarks/fast_forward.py
	$(BIN)/python benchmarks/counter_terms.py
	$(BIN)/python benchmarks/growth.py

bench-more: .venv/.installed-torch ## measure the cost of finding symmetries, of the monitor, of several devices and processes; with DATA_DIR=FOLDER, where MNIST's files are, also memory and fast_forward on them
	$(BIN)/python benchmarks/find_symmetries.py
	$(BIN)/python benchmarks/monitor.py
	$(BIN)/python benchmarks/scaling.py
	$(BIN)/python benchmarks/processes.py
	$(if $(DATA_DIR),$(BIN)/python benchmarks/memory.py $(MNIST))
	$(if $(DATA_DIR),$(BIN)/python benchmarks/fast_forward.py --data mnist --samples 2000 $(MNIST))

faults: .venv/.installed-cluster ## kill, fill, damage and rush everything that writes, and count what is lost, in about twenty minutes
	$(BIN)/python faults/main.py; code=$$?; $(BIN)/python docs/faults.py && exit $$code

figures: .venv/.installed ## make the figures of the documentation, and what is missing of its results
	$(BIN)/python docs/readme.py
	$(BIN)/python docs/home.py
	$(BIN)/python docs/networks.py
	$(BIN)/python docs/how_far_can_i_trust_gradient_flow.py
	$(BIN)/python docs/symmetries.py
	$(BIN)/python docs/cost.py
	$(BIN)/python docs/clusters.py
	$(BIN)/python docs/faults.py

clean: ## remove the environment, caches and built packages; results stay
	rm -rf .venv .pytest_cache .ruff_cache build dist site
	find src tests benchmarks faults -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# The stamp says that the installation finished. A finished environment is updated in place; one
# without a stamp was interrupted and is built anew.
.venv/.installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit("counterflow needs Python 3.11 or newer, but $(PYTHON) is %d.%d: try make PYTHON=python3.12" % v[:2] if v < (3, 11) else 0)'
	@if test -f $@; then rm $@; else $(PYTHON) -m venv --clear .venv; fi
	$(PIP_INSTALL) -e '.[dev]'
	@touch $@

.venv/.installed-torch: .venv/.installed
	@rm -f $@
	$(PIP_INSTALL) torch torchdiffeq
	@touch $@

.venv/.installed-cluster: .venv/.installed
	@rm -f $@
	$(PIP_INSTALL) -e '.[cluster]'
	@touch $@
