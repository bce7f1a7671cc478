# Every task of development. `make help` lists them.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUNTIME := $(VENV)/.runtime
DEV := $(VENV)/.dev
DOCS := $(VENV)/.docs
# Tests that take minutes: killed processes, power cuts, failing disks, random schedules, upgrades, large data, generated
# requests, and flows of whole services: backups and erasing under load, deletion, imports and exports, agents, restarts.
PROOFS := tests/faults tests/properties tests/upgrades tests/contracts/test_large_warehouse.py \
  $(foreach flow,archiving backup backup_s3 conformance demo erasing export export_history import_events import_formats \
  mcp_service order_of_arrival read_service,tests/flows/test_$(flow).py)
# Flows that also run on servers: `make engines` takes a few, because contract suites cover the engines; `make nightly` takes all.
FLOWS := events keys webhooks
ALL_FLOWS := $(FLOWS) access app_page apps archiving dashboard departures export_history first_event metrics payments_page \
  publishing quotas signing_in webhook_commands webhook_secrets
# The longest tests on servers begin first, so that no process is alone with them at the end.
SLOW_FIRST := $(foreach name,every_server server_backup rolling shared_limits commands moving leaving,tests/engines/test_$(name).py)
# The tests sync thousands of small files: keep them in memory if there is room, so that a busy disk does not slow them.
ROOM_KB := $(shell df -Pk /dev/shm 2>/dev/null | awk 'NR == 2 { print $$4 }')
IN_MEMORY := $(shell [ "$(or $(ROOM_KB),0)" -gt 4000000 ] && echo PYTEST_DEBUG_TEMPROOT=/dev/shm)

# Without compiled modules every process that a test starts would compile hundreds of them again.
unexport PYTHONDONTWRITEBYTECODE

# `make bench engines` and the like: the words after `bench` name benchmarks, not targets.
ifeq (bench,$(firstword $(MAKECMDGOALS)))
BENCHMARKS := $(wordlist 2,$(words $(MAKECMDGOALS)),$(MAKECMDGOALS))
.PHONY: $(BENCHMARKS)
$(BENCHMARKS): bench ; @:
else
.PHONY: engines cluster
engines: $(DEV) ## run the tests of stores and services on real servers (PostgreSQL, NATS, chDB over HTTP)
	$(IN_MEMORY) $(BIN)/python -m pytest -m servers -p no:randomly -n 3 --dist loadfile --no-loadscope-reorder $(SLOW_FIRST) tests/engines tests/contracts
	$(IN_MEMORY) $(BIN)/python -m pytest --on-servers -m 'not embedded' -n 3 --dist worksteal $(foreach flow,$(FLOWS),tests/flows/test_$(flow).py)

cluster: $(DEV) ## lose, cut off, pause and fill nodes, and move their clocks, in a cluster of network namespaces (root; Debian: iproute2, faketime)
	$(IN_MEMORY) $(BIN)/python -m pytest -n 2 --dist worksteal tests/cluster

.PHONY: clients clients-python clients-typescript
clients: clients-python clients-typescript ## build and test the client libraries; packages go to ./dist (needs Node and npm)

clients-python: $(DEV)
	cd clients/python && ../../$(BIN)/python -m hatchling build --directory ../../dist
	cd clients/python && ../../$(BIN)/python -m mypy src tests/typing_sample.py
	$(IN_MEMORY) $(BIN)/python -m pytest -n 2 --dist loadfile clients/python/tests

clients-typescript: $(RUNTIME)
	cd clients/typescript && npm ci --no-progress && npm run build && npm run check && npm test
	mkdir -p dist && cd clients/typescript && npm pack --pack-destination ../../dist
endif

.DEFAULT_GOAL := help
.PHONY: help setup serve test proofs browser container check prove bench docs examples screenshots dist dist-test nightly release lock clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: $(RUNTIME) ## create .venv with .venv/bin/mauve (quick if nothing changed)

serve: $(RUNTIME) ## run the service on embedded engines (data in ./mauve-data)
	@exec $(BIN)/mauve serve

test: $(DEV) ## run the tests
	$(IN_MEMORY) $(BIN)/python -m pytest -p no:schemathesis -m 'not servers' -n 4 --dist loadfile --no-loadscope-reorder $(addprefix --ignore ,tests/browser tests/cluster tests/container tests/dist tests/docs tests/engines $(PROOFS))

proofs: $(DEV) ## run slow flows and the fault tests: thousands of schedules, dozens of kills, power cuts (as root), backups under load
	$(BIN)/python -m pytest -n 2 --dist worksteal $(PROOFS)

browser: $(DEV) ## test the pages in Chromium (Debian: apt-get install chromium)
	$(BIN)/python -m pytest tests/browser

container: $(DEV) ## build the image and run it, and check the files in deploy (root; Debian: buildah mmdebstrap systemd caddy nginx-light)
	$(BIN)/python -m pytest tests/container

check: $(DEV) ## lint, types, import rules, workflow files
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml

prove: $(DEV) ## run the long form of every fault test: a million schedules, a thousand kills and power cuts (about an hour; root)
	$(BIN)/python -m pytest --prove -m prove -n 2 --dist worksteal --timeout 86400 -v --ignore tests/cluster
	$(IN_MEMORY) $(BIN)/python -m pytest --prove -m prove -n 2 --dist worksteal --timeout 86400 -v tests/cluster

bench: $(DEV) ## run the benchmarks, or some: make bench reads; make bench engines compares servers with files, cluster measures several machines
	$(BIN)/python -m bench $(BENCHMARKS)

docs: $(DOCS) ## build the documentation site; the service then serves it at /docs/index.html
	$(BIN)/python docs/site/build.py

examples: docs ## run every code block of the documents against a service, and test the site (needs chromium, Node and npm)
	cd clients/typescript && npm ci --no-progress && npm run build
	cd tests/docs/node && npm ci --no-progress
	$(IN_MEMORY) $(BIN)/python -m pytest tests/docs

screenshots: $(DEV) ## retake the pictures in docs/pictures (needs chromium)
	$(BIN)/python docs/screenshots.py

dist: $(RUNTIME) ## build the wheel and the source distribution of the service into ./dist
	$(BIN)/python -m hatchling build --directory dist

dist-test: $(DEV) ## build the wheel, install it outside the checkout and run the service from it
	$(BIN)/python -m pytest tests/dist

nightly: $(DEV) container ## run what is too long for every change: the container, and every flow on servers
	$(MAKE) engines FLOWS="$(ALL_FLOWS)"

release: $(DEV) ## check that a release can be made, build and try all its packages, run `make nightly`; publishes nothing
	$(BIN)/python .ci/release.py
	$(MAKE) nightly

lock: ## resolve requirements/*.in into hash-pinned files (needs uv)
	@for name in build runtime dev docs; do \
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

$(DOCS): $(DEV) requirements/docs.txt
	@echo "adding the generator of the documentation to $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/docs.txt
	@touch $@
