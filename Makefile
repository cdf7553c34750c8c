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

.PHONY: help setup demo test test-fast test-nightly test-stress check bench docs lock clean

help: ## List these targets.
	@echo "make <target>:"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP) ## Make the virtual environment .venv with everything in it.

$(STAMP): pyproject.toml requirements.lock
	@scripts/setup $(VENV)
	@printf '%s\n' '$(CURDIR)' > $@

demo: $(STAMP) ## See queues, Spark and a destination at work, with kill -9 in the middle, in a temporary directory.
	$(BIN)/forebay demo $(ARGS)

test: $(STAMP) ## Run the tests, with real servers and a browser.
	@scripts/system-packages chromium strace prometheus curl jq
	@echo "running the tests, from $$(date +%T) on"
	$(BIN)/pytest $(PARALLEL) -m "not nightly" $(ARGS)

test-fast: $(STAMP) ## Run the tests that are not marked slow, in two to three minutes.
	$(BIN)/pytest $(PARALLEL) -m "not slow and not nightly" $(ARGS)

test-nightly: $(STAMP) ## Run the tests that `make test` leaves out: benchmarks, in small.
	@scripts/system-packages chromium strace prometheus curl jq
	$(BIN)/pytest $(PARALLEL) --hypothesis-profile=new -m nightly $(ARGS)

test-stress: $(STAMP) ## Run all tests while other processes keep every core busy.
	@scripts/system-packages chromium strace prometheus curl jq
	CHAOS_SECONDS=180 COLD_PARCELS=1000000 $(BIN)/python scripts/keep_cores_busy.py $(BIN)/pytest $(PARALLEL) --hypothesis-profile=new $(ARGS)

check: $(STAMP) ## Lint, formatting, types, and the one-way rule between rooms.
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(STAMP) ## Measure the commit log, the broker, the way out, Spark on queues, flows and the page beside their peers.
	@scripts/system-packages rabbitmq-server
	@missed=0; \
	for suite in commitlog broker ingest sendqueue export dispatch spark flows page; do $(BIN)/forebay bench $$suite $(ARGS) || missed=1; done; \
	exit $$missed

docs: $(STAMP) ## Write the generated reference pages and check all links.
	@mkdir -p docs/reference
	@for page in settings=config.reference metrics=telemetry.reference spark-options=spark.reference \
		rest=api.reference cli=cli.reference queue-options=model.queue_reference; do \
		$(BIN)/python -m forebay.$${page#*=} > docs/reference/$${page%%=*}.md.new \
		&& mv docs/reference/$${page%%=*}.md.new docs/reference/$${page%%=*}.md || exit 1; \
	done
	$(BIN)/python scripts/check_links.py

lock: ## Write requirements.lock anew from pyproject.toml (ARGS=--upgrade for newer versions).
	@test -x $(BIN)/uv || scripts/setup $(VENV) || test -x $(BIN)/uv
	@scripts/lock $(BIN)/uv $(ARGS)

clean: ## Remove what these targets made; sources and docs stay.
	rm -rf $(VENV) .hypothesis .mypy_cache .ruff_cache .pytest_cache .import_linter_cache build dist
	rm -f docs/reference/*.md.new
	find src tests scripts -type d -name __pycache__ -prune -exec rm -rf {} +
