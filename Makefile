# One word per thing a person does here. Everything is installed into .venv; a changed list installs again.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest
# Tests wait about as long as they compute.
AT_ONCE = $(shell $(PYTHON) -c 'import os; print(min(2 * (os.cpu_count() or 1), 16))')
REAL := $(PYTEST) -q tests/real --timeout 900 --durations=8
SOURCES := pdops exporters tui runbooks dashboards tests
# What runs side by side prints one after the other, where make can do that.
WHOLE := $(if $(filter output-sync,$(.FEATURES)),--output-sync=target)

.DEFAULT_GOAL := help
.PHONY: help demo test check services lint types layers spelling test-real real-pair real-store real-aside bench bench-plugin panels soak picture lock clean format proof-scale-out proof-cold-start proof-store-outage

help:            ## Show this list
	@grep -E '^[a-z-]+: .*##|^[a-z-]+:  *##' $(MAKEFILE_LIST) | sed -E 's/:.*## */\t/' | expand -t 20

$(VENV)/.python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "pdops needs Python 3.11 or newer; this is $$($(PYTHON) --version). Set PYTHON=python3.12 or the like." >&2; exit 2; }
	@$(PYTHON) -m venv $(VENV) || { echo "python3 -m venv failed: install your system's python3-venv package" >&2; exit 2; }
	@touch $@

$(VENV)/.run: $(VENV)/.python requirements/run.txt pyproject.toml
	@echo "installing pdops into $(VENV) (once)"
	@$(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements/run.txt
	@$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.python requirements/dev.txt pyproject.toml
	@echo "installing pdops and its test tools into $(VENV) (once)"
	@$(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements/dev.txt
	@$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@ $(VENV)/.run

demo: $(VENV)/.run  ## Set up and show a recorded incident of a real prefill/decode pair
	@$(BIN)/pdops demo

test: $(VENV)/.dev  ## Everything that needs no engine, Prometheus or browser
	$(PYTEST) -q -n $(AT_ONCE) --dist loadfile --no-loadscope-reorder -m "not real and not bench"

check: $(VENV)/.dev  ## Lint, types, layers, spelling
	@nice -n 10 $(MAKE) --no-print-directory -j 4 $(WHOLE) lint types layers spelling

lint types layers spelling: $(VENV)/.dev

lint:
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)

types:
	$(BIN)/mypy

layers:
	$(BIN)/lint-imports --no-logo

spelling:
	$(BIN)/codespell $(SOURCES) README.md CONTRIBUTING.md CHANGELOG.md docs

services:
	.ci/install-services.sh

test-real: $(VENV)/.dev  ## The rest: real engine pair, Prometheus, VictoriaMetrics; a skip is a failure
	@$(MAKE) --no-print-directory -j 3 $(WHOLE) real-pair real-store real-aside

# Each deployment lives in one process. Latencies of the pair are judged, so the other two give way to it.
real-pair real-store real-aside: export PDOPS_REQUIRE_REAL = 1
real-pair real-store real-aside: $(VENV)/.dev

real-pair:
	$(REAL) -m "real and pair and not bench and not soak"

real-store:
	nice -n 10 $(REAL) -m "real and store and not bench and not soak"

real-aside:
	nice -n 10 $(REAL) -m "real and not pair and not store and not bench and not soak"

bench: $(VENV)/.dev  ## Print measurements as ratios of one run
	$(BIN)/python tests/bench/bench_parser.py
	$(BIN)/python tests/bench/bench_cold_start.py
	$(BIN)/python tests/bench/bench_scrape.py
	$(BIN)/python tests/bench/bench_exporter.py
	$(BIN)/python tests/bench/bench_tui.py
	$(BIN)/python tests/bench/bench_diagnose.py

bench-plugin: $(VENV)/.dev  ## Print what the engine plugin costs on two real pairs (ten minutes)
	$(BIN)/python tests/bench/bench_plugin.py

panels: $(VENV)/.dev  ## Draw docs/panels.png with Grafana's components (npm, Chromium, Prometheus; 420 MB into build/)
	PYTHONPATH=. $(BIN)/python tests/panels/render.py link-slow docs/panels.png

soak: $(VENV)/.dev  ## Kill runs of runbooks, prove them on the real pair, play every drill (three hours)
	$(BIN)/python tests/soak_runbooks.py
	PDOPS_REQUIRE_REAL=1 $(PYTEST) -q -m "real and not bench" tests/real/test_cold_start_real.py tests/real/test_runbooks_real.py tests/real/test_four_engines.py
	$(BIN)/python -m tests.proofs.cold_start
	$(BIN)/python -m tests.proofs.store_outage
	$(BIN)/python tests/soak.py --out build/drills
	$(BIN)/python -m tests.proofs.scale_out

proof-scale-out: $(VENV)/.dev  ## Watch an alert become a second prefill worker on the real pair (15 minutes)
	$(BIN)/python -m tests.proofs.scale_out

proof-cold-start: $(VENV)/.dev  ## Watch everything be killed and started again in order, without its store too (10 minutes)
	$(BIN)/python -m tests.proofs.cold_start

proof-store-outage: $(VENV)/.dev  ## Watch the KV store be killed under load, left out, and used again (15 minutes)
	$(BIN)/python -m tests.proofs.store_outage

format: $(VENV)/.dev  ## Apply the formatter and safe fixes
	$(BIN)/ruff check --fix $(SOURCES)
	$(BIN)/ruff format $(SOURCES)

picture: $(VENV)/.dev  ## Draw docs/top.svg again, from the recording of a slow KV link
	$(BIN)/python -m pdops_tui.shot fixtures/recordings/link-slow.pdrec 110 > docs/top.svg

lock: $(VENV)/.dev  ## Write the pinned lists again from pyproject.toml
	$(BIN)/python requirements/lock.py

clean:           ## Remove the environment and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist
