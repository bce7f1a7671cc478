# Every task of development. `make help` lists them.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUNTIME := $(VENV)/.runtime
DEV := $(VENV)/.dev
# Tests that take minutes: killed processes, power cuts, failing disks, random schedules, backups and erasing under load.
PROOFS := tests/faults tests/properties tests/flows/test_backup.py tests/flows/test_erasing.py
# Flows of every plane and of the dashboard, which `make engines` runs once more on servers.
FLOWS := access app_page apps archiving dashboard departures erasing events first_event keys metrics payments_page publishing quotas \
  signing_in webhook_commands webhook_secrets webhooks
ON_SERVERS := $(foreach flow,$(FLOWS),tests/flows/test_$(flow).py)
# The tests sync thousands of small files: keep them in memory if there is room, so that a busy disk does not slow them.
ROOM_KB := $(shell df -Pk /dev/shm 2>/dev/null | awk 'NR == 2 { print $$4 }')
IN_MEMORY := $(shell [ "$(or $(ROOM_KB),0)" -gt 4000000 ] && echo PYTEST_DEBUG_TEMPROOT=/dev/shm)

# `make bench engines` and the like: the words after `bench` name benchmarks, not targets.
ifeq (bench,$(firstword $(MAKECMDGOALS)))
BENCHMARKS := $(wordlist 2,$(words $(MAKECMDGOALS)),$(MAKECMDGOALS))
.PHONY: $(BENCHMARKS)
$(BENCHMARKS): bench ; @:
else
.PHONY: engines
engines: $(DEV) ## run the tests of stores and services on real servers (PostgreSQL, NATS, chDB over HTTP)
	$(IN_MEMORY) $(BIN)/python -m pytest -m servers -n 2 --dist loadfile tests/contracts tests/engines
	$(IN_MEMORY) $(BIN)/python -m pytest --on-servers -m 'not embedded' -n 2 --dist loadfile $(ON_SERVERS)
endif

.DEFAULT_GOAL := help
.PHONY: help setup serve test proofs browser check prove bench screenshots lock clean

help: ## list the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: $(RUNTIME) ## create .venv with .venv/bin/mauve (quick if nothing changed)

serve: $(RUNTIME) ## run the service on embedded engines (data in ./mauve-data)
	@exec $(BIN)/mauve serve

test: $(DEV) ## run the tests
	$(IN_MEMORY) $(BIN)/python -m pytest -m 'not servers' -n 4 --dist loadfile --no-loadscope-reorder $(addprefix --ignore ,tests/browser tests/engines $(PROOFS))

proofs: $(DEV) ## run the fault tests: thousands of schedules, dozens of kills, power cuts (as root), backups under load
	$(BIN)/python -m pytest -n 2 --dist worksteal $(PROOFS)

browser: $(DEV) ## test the pages in Chromium (Debian: apt-get install chromium)
	$(BIN)/python -m pytest tests/browser

check: $(DEV) ## lint, types, import rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

prove: $(DEV) ## run the long form of every fault test: a million schedules, a thousand kills and power cuts (about an hour; root)
	$(BIN)/python -m pytest --prove -m prove -n 2 --dist worksteal --timeout 86400 -v

bench: $(DEV) ## run the benchmarks, or some: make bench reads; make bench engines compares servers with files
	$(BIN)/python -m bench $(BENCHMARKS)

screenshots: $(DEV) ## retake the pictures in docs/pictures (needs chromium)
	$(BIN)/python docs/screenshots.py

lock: ## resolve requirements/*.in into hash-pinned files (needs uv)
	@for name in build runtime dev; do \
	  uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	    --no-annotate --custom-compile-command "make lock" requirements/$$name.in -o requirements/$$name.txt || exit 1; \
	done

clean: ## remove .venv and caches (never the data directory)
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis

$(VENV)/pyvenv.cfg:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "mauve needs Python 3.11 or newer: run 'make PYTHON=/path/to/python3.11 ...'" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(RUNTIME): $(VENV)/pyvenv.cfg requirements/build.txt requirements/runtime.txt pyproject.toml
	@echo "setting up $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/build.txt -r requirements/runtime.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

$(DEV): $(RUNTIME) requirements/dev.txt
	@echo "adding the test tools to $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	@touch $@
