# Every target installs what is missing first. `make help` lists them.
SHELL := /bin/bash
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
UV_VERSION := 0.13.8
# A process that may not keep its byte code compiles all of ours at each start.
unexport PYTHONDONTWRITEBYTECODE
# Neither numpy's threads nor anybody's telemetry belong in a test.
export OMP_NUM_THREADS ?= 1
export OPENBLAS_NUM_THREADS ?= 1
export DAGSTER_DISABLE_TELEMETRY := 1
export MLFLOW_DISABLE_TELEMETRY := true
export DO_NOT_TRACK := 1

.PHONY: help install lock check checked audit format test test-real postgres test-real-kafka test-real-spark test-kubernetes test-all images bench bench-real jars lock-jars docs demo clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-18s %s\n", $$1, $$2}'

install: $(STAMP)  ## .venv from requirements.lock; seconds when up to date

# uv comes from the path or from a small environment of its own, so that Python alone is enough to begin with.
UV := $(or $(shell command -v uv),.venv-uv/bin/uv)
.venv-uv/bin/uv: requirements-uv.lock
	@echo "uv is not on the path: installing it into .venv-uv"
	@$(PYTHON) -m venv .venv-uv && .venv-uv/bin/python -m pip install --quiet --require-hashes --no-deps --requirement requirements-uv.lock
	@touch $@

$(STAMP): requirements.lock pyproject.toml Makefile | $(UV)
	@set -e; \
	  test -x $(BIN)/python || $(UV) venv --quiet --python $(PYTHON) .venv; \
	  echo "installing requirements.lock into .venv"; \
	  $(UV) pip sync --quiet --python $(BIN)/python --require-hashes --compile-bytecode requirements.lock; \
	  $(UV) pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .
	@touch $@

# KEEP=1 leaves everything open until Ctrl-C; DEPLOYMENT=simulated needs no Java and takes a minute or two.
# DEPLOYMENT=kubernetes CONTEXT=NAME [OVERLAY=FOLDER] makes namespaces on a cluster, and deletes them.
demo: install  ## from nothing to a decision that was carried out; DEPLOYMENT=local, simulated or kubernetes
	@$(BIN)/headroom demo --deployment $(or $(DEPLOYMENT),local) $(if $(filter-out 0 no false,$(KEEP)),--keep) \
	  $(if $(CONTEXT),--context $(CONTEXT)) $(if $(OVERLAY),--overlay $(OVERLAY))

lock: | $(UV)  ## resolve pyproject.toml into requirements.lock again
	$(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	  --group dev --extra postgres pyproject.toml --output-file requirements.lock
	echo uv==$(UV_VERSION) | $(UV) pip compile --quiet --universal --generate-hashes --no-emit-index-url \
	  --no-header --no-annotate - --output-file requirements-uv.lock

# The audit waits for others, so that it runs beside the rest.
check: install  ## format, lint, types, import contracts, the fast tests and known vulnerabilities, in seconds
	@$(MAKE) --no-print-directory --jobs=2 checked audit

checked: install
	$(BIN)/ruff format --quiet --check .
	$(BIN)/ruff check --quiet .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest -q -m fast --durations=0 --durations-min=1

audit: install | $(UV)  ## known vulnerabilities in requirements.lock; skipped where no advisories can be read
	@$(BIN)/python .ci/audit.py $(UV)

format: install  ## let ruff write the format
	$(BIN)/ruff format --quiet .
	$(BIN)/ruff check --quiet --fix .

# Tests of servers wait more than they compute: four processes keep two cores busy.
test: install  ## everything that needs neither Java nor a cluster
	$(BIN)/pytest -n 4 --dist worksteal -m "not real and not kubernetes"

# Kafka alone hardly computes: what needs no Spark runs beside the first of what does.
KAFKA_ALONE := $(addprefix tests/,contracts/test_broker_contract.py \
  pipelines/integrations/test_kafka.py pipelines/integrations/test_jars.py)
test-real: install postgres  ## real Kafka, Spark and Postgres on this machine
	@$(MAKE) --no-print-directory --jobs=2 test-real-kafka test-real-spark

# Root can have it installed; without it the tests of the store on Postgres are skipped.
postgres:
	@if ! ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo "installing postgresql"; apt-get update --quiet=2 && \
	  DEBIAN_FRONTEND=noninteractive apt-get install --quiet=2 --yes --no-install-recommends postgresql \
	  || echo "postgresql was not installed: the tests of the store on Postgres are skipped"; fi

test-real-kafka: install
	$(BIN)/pytest -q -m real $(KAFKA_ALONE)

test-real-spark: install
	$(BIN)/pytest -m real $(addprefix --ignore=,$(KAFKA_ALONE))

# `up` is tried twice: a busy machine may need longer than it waits. Inside the cluster's network nothing can be fetched.
CLUSTER = $(abspath $(or $(HEADROOM_TEST_CLUSTER),../shared/cluster))
test-kubernetes: install  ## a real cluster: HEADROOM_TEST_CLUSTER, or ../shared/cluster
	@if [ ! -x $(CLUSTER)/up ]; then echo "skipped: there is no test cluster in $(CLUSTER)"; \
	elif [ "$$(id -u)" != 0 ]; then echo "skipped: the test cluster needs root"; \
	else { $(CLUSTER)/up || $(CLUSTER)/up; } >/dev/null && $(BIN)/python -m pipelines.integrations.jars && \
	  HEADROOM_TEST_CLUSTER=$(CLUSTER) $(CLUSTER)/run $(BIN)/pytest -m kubernetes; fi

images: install  ## the images of deploy/, with docker, podman or buildah
	deploy/build.sh

test-all: test test-real test-kubernetes  ## all three: the test command of the README and of CI

bench: install  ## the benchmarks, into bench/results.json
	$(BIN)/python -m bench

bench-real: install  ## the long measurements on real Kafka and Spark, into bench/real.json; goes on where it stopped
	$(BIN)/python -m bench.real

jars: install  ## the jars of Kafka and of Spark's connector, into the user's cache
	$(BIN)/python -m pipelines.integrations.jars

lock-jars: install  ## compute the checksums in jars.lock again, after changing a coordinate
	$(BIN)/python -m pipelines.integrations.jars --lock

docs: install  ## the pages that are generated from the code
	$(BIN)/python -m pipelines.settings.page

clean:  ## remove the environment and all caches
	rm -rf .venv .venv-uv build *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
