# make run     set up, then config to verdict page      make test   set up, then all tests
# make explore every policy on the tune seeds, emulated: what to iterate with
# make plan    what a run measures and how long         make smoke  a short real run (6 minutes)
# make show    the verdicts of a run, in the terminal   make published  a published study, judged
# make lint    ruff, snakefmt                           make bench  speed and calibration, as ratios
# make clean   environment and caches, no results
# CONFIG=config/smoke.yaml picks another config, SIDECAR=gpu the GPU build of vLLM.

CONFIG ?= config/config.yaml
SIDECAR ?= cpu
PYTHON ?= python3
CORES ?= all

TORCH_cpu = 2.13.0+cpu
TORCH_gpu = 2.14.0
# the CPU build of torch is in no registry that pip asks by default
TORCH_INDEX_cpu = https://download.pytorch.org/whl/cpu

BIN = .venv/bin
PIP = $(BIN)/pip install --quiet --no-deps
STAMP = .venv/.$(SIDECAR)

.PHONY: run unlock plan show published smoke explore test lint format bench setup clean
.DEFAULT_GOAL = run

# three runs: what the first two rewrite unchanged then reruns nothing that depends on it
run: setup
	$(BIN)/snakemake traces --quiet rules host --cores $(CORES) --configfile "$(CONFIG)"
	$(BIN)/snakemake schedules --quiet rules host --cores $(CORES) --configfile "$(CONFIG)"
	$(BIN)/snakemake all --quiet rules host --cores $(CORES) --configfile "$(CONFIG)"
	@$(BIN)/python -m safesync.show "$(CONFIG)"

# after a run that was killed outright (Snakemake says that its folder is locked)
unlock: setup
	$(BIN)/snakemake --unlock --configfile "$(CONFIG)"

plan: setup
	$(BIN)/python -m safesync.plan "$(CONFIG)"

# every policy on the emulator and the tune seeds, with the model of a run; it measures nothing
explore: setup
	$(BIN)/snakemake explore --quiet rules host --cores $(CORES) --configfile "$(CONFIG)"

show: setup
	@$(BIN)/python -m safesync.show "$(CONFIG)"

# the figures of a published study through the protocol's own functions
published: setup
	@$(BIN)/python -m safesync.published

smoke:
	@$(MAKE) --no-print-directory run CONFIG=config/smoke.yaml

test: setup
	$(BIN)/python -m pytest

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/snakefmt --check Snakefile workflow

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/snakefmt Snakefile workflow

# ratios measured in one run; each script says what it compares and fails when a bar is missed
bench: setup
	$(BIN)/python benchmarks/placement.py
	$(BIN)/python benchmarks/steady.py
	$(BIN)/python benchmarks/steady_latency.py
	$(BIN)/python benchmarks/emulator.py
	$(BIN)/python benchmarks/load.py
	$(BIN)/python benchmarks/verdicts.py
	$(BIN)/python benchmarks/dag.py

setup: $(STAMP)

# torch first and alone: its index, asked for every other package, would slow each of them
$(STAMP): requirements/$(SIDECAR).txt pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11) and "the pinned lists are for Python 3.11, this is %d.%d; give PYTHON=python3.11" % sys.version_info[:2])'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) torch==$(TORCH_$(SIDECAR)) || \
		$(PIP) torch==$(TORCH_$(SIDECAR)) --index-url $(TORCH_INDEX_$(SIDECAR))
	$(PIP) -r requirements/$(SIDECAR).txt
	$(PIP) --no-build-isolation --editable .
	touch $@

clean:
	rm -rf .venv .pytest_cache .ruff_cache .hypothesis .coverage
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
