# Everything a person does with this checkout, one target each. `make` alone lists them.
# Every target that needs the virtual environment makes it first; a second run finds it ready and costs nothing.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory
SHELL := /bin/bash

VENV  := .venv
BIN   := $(VENV)/bin
STAMP := $(VENV)/.forebay-setup
CORES := $(shell nproc 2>/dev/null || echo 2)
# The tests of a file stay together, because they share servers; a file waits for its turn as a whole, and
# tests/conftest.py says which go first.
# Tests wait for other processes half of the time, so one more of them than cores keeps the cores busy.
PARALLEL := -n $(shell expr $(CORES) + 1) --dist loadfile --no-loadscope-reorder --max-worker-restart=0
# More arguments for the program behind the target: make test ARGS="-k torn -x"
ARGS  ?=

# The scripts inside a virtual environment hold its absolute path, so a copied checkout needs a new one. The stamp
# holds the path it was made for; when that is another one, the stamp does not count.
ifneq ($(shell cat $(STAMP) 2>/dev/null),$(CURDIR))
.PHONY: $(STAMP)
endif

.PHONY: help setup demo test test-fast test-stress check bench docs lock clean

help: ## List these targets.
	@echo "make <target>:"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP) ## Make the virtual environment .venv with everything in it.

$(STAMP): pyproject.toml requirements.lock
	@scripts/setup $(VENV)
	@printf '%s\n' '$(CURDIR)' > $@

demo: $(STAMP) ## See queues and Spark at work, with a kill -9 in the middle, in a temporary directory.
	$(BIN)/forebay demo $(ARGS)

test: $(STAMP) ## Run all tests, with real servers and a browser.
	@scripts/system-packages chromium strace prometheus
	@echo "running the tests, from $$(date +%T) on"
	$(BIN)/pytest $(PARALLEL) $(ARGS)

test-fast: $(STAMP) ## Run the tests that are not marked slow, in under two minutes.
	$(BIN)/pytest $(PARALLEL) -m "not slow" $(ARGS)

test-stress: $(STAMP) ## Run all tests while other processes keep every core busy.
	@scripts/system-packages chromium strace prometheus
	$(BIN)/python scripts/keep_cores_busy.py $(BIN)/pytest $(PARALLEL) $(ARGS)

check: $(STAMP) ## Lint, formatting, types, and the one-way rule between rooms.
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(STAMP) ## Measure the commit log, the broker, the way out and Spark on queues beside their peers.
	@scripts/system-packages rabbitmq-server
	@missed=0; \
	for suite in commitlog broker ingest sendqueue export spark; do $(BIN)/forebay bench $$suite $(ARGS) || missed=1; done; \
	exit $$missed

docs: $(STAMP) ## Write the generated reference pages and check all links.
	@mkdir -p docs/reference
	$(BIN)/python -m forebay.config.reference > docs/reference/settings.md.new
	@mv docs/reference/settings.md.new docs/reference/settings.md
	$(BIN)/python -m forebay.telemetry.reference > docs/reference/metrics.md.new
	@mv docs/reference/metrics.md.new docs/reference/metrics.md
	$(BIN)/python -m forebay.spark.reference > docs/reference/spark-options.md.new
	@mv docs/reference/spark-options.md.new docs/reference/spark-options.md
	$(BIN)/python scripts/check_links.py

lock: ## Write requirements.lock anew from pyproject.toml (ARGS=--upgrade for newer versions).
	@test -x $(BIN)/uv || scripts/setup $(VENV) || test -x $(BIN)/uv
	@scripts/lock $(BIN)/uv $(ARGS)

clean: ## Remove what these targets made; sources and docs stay.
	rm -rf $(VENV) .hypothesis .mypy_cache .ruff_cache .pytest_cache .import_linter_cache build dist
	rm -f docs/reference/*.md.new
	find src tests scripts -type d -name __pycache__ -prune -exec rm -rf {} +
