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

.PHONY: help install lock check format test test-real test-real-kafka test-real-spark test-kubernetes test-all bench bench-real jars lock-jars docs demo clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-18s %s\n", $$1, $$2}'

install: $(STAMP)  ## .venv from requirements.lock; seconds when up to date

# uv comes from the path or from a small environment of its own, so that Python alone is enough to begin with.
UV := $(or $(shell command -v uv),.venv-uv/bin/uv)
.venv-uv/bin/uv:
	@echo "uv is not on the path: installing it into .venv-uv"
	@$(PYTHON) -m venv .venv-uv && .venv-uv/bin/python -m pip install --quiet uv==$(UV_VERSION)

$(STAMP): requirements.lock pyproject.toml Makefile | $(UV)
	@set -e; \
	  test -x $(BIN)/python || $(UV) venv --quiet --python $(PYTHON) .venv; \
	  echo "installing requirements.lock into .venv"; \
	  $(UV) pip sync --quiet --python $(BIN)/python --require-hashes --compile-bytecode requirements.lock; \
	  $(UV) pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .
	@touch $@

# KEEP=1 leaves everything open until Ctrl-C; DEPLOYMENT=simulated needs no Java and two minutes.
demo: install  ## from nothing to a decision that was carried out, on real Kafka and Spark
	@$(BIN)/headroom demo --deployment $(or $(DEPLOYMENT),local) $(if $(filter-out 0 no false,$(KEEP)),--keep)

lock: | $(UV)  ## resolve pyproject.toml into requirements.lock again
	$(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	  --group dev pyproject.toml --output-file requirements.lock

check: install  ## format, lint, types, import contracts and the fast tests, in seconds
	$(BIN)/ruff format --quiet --check .
	$(BIN)/ruff check --quiet .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest -q -m fast --durations=0 --durations-min=1

format: install  ## let ruff write the format
	$(BIN)/ruff format --quiet .
	$(BIN)/ruff check --quiet --fix .

# Tests of servers wait more than they compute: three processes keep two cores busy.
test: install  ## everything that needs neither Java nor a cluster
	$(BIN)/pytest -n 3 --dist worksteal -m "not real and not kubernetes"

# Kafka alone hardly computes: what needs no Spark runs beside the first of what does.
KAFKA_ALONE := $(addprefix tests/,contracts/test_broker_contract.py \
  pipelines/integrations/test_kafka.py pipelines/integrations/test_jars.py)
test-real: install  ## real Kafka and Spark on this machine
	@$(MAKE) --no-print-directory --jobs=2 test-real-kafka test-real-spark

test-real-kafka: install
	$(BIN)/pytest -q -m real $(KAFKA_ALONE)

test-real-spark: install
	$(BIN)/pytest -m real $(addprefix --ignore=,$(KAFKA_ALONE))

test-kubernetes: install  ## a real cluster: HEADROOM_TEST_CLUSTER, or ../shared/cluster
	@grep -rq "mark\.kubernetes" tests || { echo "no test needs a cluster yet"; exit 0; }; \
	  $(BIN)/pytest -m kubernetes

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
