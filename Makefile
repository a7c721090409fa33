# Everything a newcomer needs: `make demo` and `make test`. `make help` lists the rest.
# A step that is done leaves a stamp in .venv/.made; it is done again when what it was made from changes.

BIN := .venv/bin
MADE := .venv/.made
UV_VERSION := 0.13.8
UV := .venv/.uv/bin/uv
IVY_SETTINGS ?=
LOCK ?= requirements.lock

export UV_PYTHON_DOWNLOADS := never
export UV_NO_PROGRESS ?= 1
export UV_HTTP_TIMEOUT ?= 180
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# pip's own setting for another index serves uv too.
ifdef PIP_INDEX_URL
export UV_DEFAULT_INDEX ?= $(PIP_INDEX_URL)
endif

.DEFAULT_GOAL := help
.PHONY: jar-hashes help env lock docs spec demo up down compose-env style types imports check test cases fuzz test-all test-faults test-matrix test-versions mutants test-packaging test-containers release bench bench-all bench-peers clean

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 14

env: $(MADE)/jars $(MADE)/onlyonce ## the locked environment in .venv, and the jars
	@:

demo: env $(if $(filter s3,$(STORE)),$(MADE)/s3) $(MADE)/classes ## the whole platform on real data, shown as it goes; Ctrl-C stops it (EXIT=1: stops by itself; STORE=s3: data in an S3 of this machine)
	@$(BIN)/$(if $(filter s3,$(STORE)),python -m tests.support.demo_on_s3,onlyonce demo) $(if $(EXIT),--exit)

up: env $(MADE)/classes ## start the platform: PostgreSQL, its tables, Airflow
	@$(BIN)/onlyonce up

down: ## stop the platform; nothing is lost
	@if [ -x $(BIN)/onlyonce ]; then $(BIN)/onlyonce down; fi

compose-env: ## secrets for docker-compose.yml, made once, in .env; one that is there is never changed
	@sh docker/compose-env.sh .env

PURE := tests/unit tests/model tests/dags tests/transcripts tests/compose tests/docs tests/mutants tests/cases

# Its makers announce another product at each build. --quiet would count no warning, and so fail at none.
docs: export NO_MKDOCS_2_WARNING := 1
docs: env ## the site, in site/: every link is checked, nothing is loaded from the network
	$(BIN)/mkdocs build --strict

spec: env ## the pages that are made: the specification from its tables, and from the code cli, views and values of the reference; commit them
	$(BIN)/python -m docs.generate.specification
	$(BIN)/python -m docs.generate.reference

style: env
	$(BIN)/ruff check .
	$(BIN)/ruff format --check --quiet .

types: env
	$(BIN)/mypy

imports: env
	$(BIN)/lint-imports

check: env ## style, types, import rules, and the tests that need neither a server nor a JVM
	@$(MAKE) --no-print-directory -j 2 types style imports docs
	$(BIN)/pytest -q $(PURE) -m "not slow" -n 2 --no-loadscope-reorder

# Three sessions beside each other: fewer leave a part of two cores idle, since tests wait for processes. In the order of the folders, Airflow's
# tests first as they take longest, and the short ones last (tests/conftest.py).
BESIDE := -n 3 --no-loadscope-reorder --durations=20

PARTS := $(MADE)/broker $(MADE)/s3 $(MADE)/programs $(MADE)/classes

# The jars come while the first tests run. A download that fails is tried once more after them, and then ends the target.
test: env ## check, then each promise on real PostgreSQL, Spark and Airflow, with kills: before each commit
	@$(MAKE) --no-print-directory $(MADE)/broker $(MADE)/s3 & jars=$$!; \
		$(MAKE) --no-print-directory check; checked=$$?; wait $$jars; exit $$checked
	@$(MAKE) --no-print-directory $(PARTS)
	$(BIN)/pytest -q tests $(addprefix --ignore=,$(PURE)) -m "not slow and not whole" $(BESIDE)

cases: env ## cases that users of such systems have reported: inputs and right results as data (tests/cases)
	$(BIN)/pytest -q tests/cases

fuzz: env ## ten million hostile lines by our readers and by an independent one; the sums go to tests/fault/results.json (FUZZ="--lines 1000000")
	$(BIN)/python -m tests.fuzz $(FUZZ)

# HALF=0 or HALF=1: half of it, for a machine that has no time for all (.ci/run).
# Spark compiles its plans here (tests/support/jvm.py).
test-all: export ONLYONCE_TEST_HALF := $(HALF)
test-all: export ONLYONCE_TEST_COMPILED := 1
test-all: env $(PARTS) $(MADE)/gcs ## what `make test` leaves out: the same promises in other cases. CI runs both
	$(BIN)/pytest -q tests -m "whole and not slow" $(BESIDE)

test-faults: export ONLYONCE_FAULT_RESULTS := tests/fault/results.json
test-faults: env $(MADE)/broker $(MADE)/s3 $(MADE)/yarn $(MADE)/classes ## every kill at every step, the slow ones too; the sums go to tests/fault/results.json
	@rm -f $$ONLYONCE_FAULT_RESULTS
	$(BIN)/pytest -q tests/contract/commitlog/test_interleavings.py tests/fault/matrix -m "not slow"
	$(BIN)/pytest -q -m "fault or slow" --ignore tests/benchmarks --durations=15

MUTANTS ?=
FUZZ ?=
mutants: env $(MADE)/broker $(MADE)/s3 $(MADE)/classes ## broken builds whose verdict is missing or old; goes on after a break (MUTANTS="--minutes 30 --no-spark", or names)
	$(BIN)/python -m tests.mutants.run $(MUTANTS)

test-matrix: export ONLYONCE_FAULT_RESULTS := tests/fault/results.json
test-matrix: env ## the longest ones, in parts (ONLYONCE_FAULT_MINUTES=30): each life of an output, and the matrix of kills on Spark; goes on after a break
	$(BIN)/pytest -q -s -m slow tests/fault/lives tests/fault/test_every_spark_point.py

VERSIONS ?= oldest newest
test-versions: export TESTS := tests/dags tests/page tests/spark/run/test_spine.py
test-versions: env ## DAGs, page and a sample of Spark with the oldest and the newest Airflow 3 and Spark 4 (docs/reference/versions.md)
	@for name in $(VERSIONS); do UV=$(UV) sh tests/versions/run.sh $$name || exit 1; done

test-packaging: env ## install the wheel as pip would, newest and lowest versions, and run the tutorial's first commands (needs the network; the result is in tests/packaging/result.md)
	$(BIN)/python -m tests.packaging.check $(UV)

test-containers: env ## build the image, run docker-compose.yml, kill Spark's master and a worker, compare the results (needs a container engine; the result is in tests/containers/result.md)
	$(BIN)/python -m tests.containers.run

release: docs ## wheel, sdist, site, SBOM and checksums in dist/, and the image where a container engine runs (docs/how-to/make-a-release.md)
	UV=$(UV) sh docker/release.sh

# The tests' JVMs are short; the benchmarks' must be as in earnest.
bench: export JDK_JAVA_OPTIONS := -XX:+UseParallelGC
bench: env $(MADE)/classes ## the benchmarks; what they find is written to tests/benchmarks/results
	$(BIN)/pytest -q -s tests/benchmarks -m slow --ignore-glob "*/test_peers*.py"

bench-all: export ONLYONCE_BENCH_IDS := 1000000,10000000,100000000
bench-all: bench ## the same, and how receive grows with the catalog: up to 100 million ids (4 GB of disk, 10 minutes more)

bench-peers: export JDK_JAVA_OPTIONS := -XX:+UseParallelGC
bench-peers: env $(MADE)/broker $(MADE)/classes $(MADE)/peers ## Flink, Bytewax and Spark's own ways beside receive, on the same files (an environment of 800 MB)
	$(BIN)/pytest -q -s tests/benchmarks/test_peers.py tests/benchmarks/test_peers_kafka.py -m slow

lock: $(MADE)/uv ## make requirements.lock again from pyproject.toml, and from it docker/requirements.lock (no development packages)
	$(UV) pip compile pyproject.toml --extra dev --universal --python-version 3.11 --generate-hashes \
		--no-emit-index-url --custom-compile-command "make lock" --quiet --output-file requirements.lock
	$(UV) pip compile pyproject.toml --extra image --universal --python-version 3.11 --generate-hashes --constraint requirements.lock \
		--no-emit-index-url --custom-compile-command "make lock" --no-annotate --quiet --output-file docker/requirements.lock

clean: ## remove the environment and caches; the state in .onlyonce stays
	-@$(MAKE) --no-print-directory down
	rm -rf .venv .versions site .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis

# --- how the environment is made -------------------------------------------------------------------

$(MADE)/uv: Makefile
	@mkdir -p $(MADE)
	@for python in "$$PYTHON" python3 python3.13 python3.12 python3.11; do \
		command -v "$$python" >/dev/null && break; done; \
	command -v "$$python" >/dev/null || { echo "Python 3.11, 3.12 or 3.13 is missing (there is no python at all)." \
		"Get it: apt-get install python3 python3-venv, or brew install python@3.11." >&2; exit 1; }; \
	"$$python" onlyonce/local/prerequisites.py > $(MADE)/python
	@echo "env: uv $(UV_VERSION), by $$(cat $(MADE)/python)"
	@$(UV) --version 2>/dev/null | grep -qF "uv $(UV_VERSION) " || { \
		"$$(cat $(MADE)/python)" -m venv --clear .venv/.uv && \
		.venv/.uv/bin/pip install --quiet --retries 10 "uv==$(UV_VERSION)"; }
	@[ -x $(BIN)/python ] || $(UV) venv --quiet --allow-existing --python "$$(cat $(MADE)/python)" .venv
	@touch $@

$(MADE)/packages: $(LOCK) | $(MADE)/uv
	@echo "env: packages of $(LOCK)"
	@for attempt in 1 2 3; do $(UV) pip sync --quiet --python $(BIN)/python --require-hashes $(LOCK) && exit 0; done; exit 1
	@touch $@

$(MADE)/onlyonce: $(MADE)/packages pyproject.toml
	@$(UV) pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation -e .
	@touch $@

# Whether a folder has the jars of a list and no others, by our own hashes (Ivy checks only what the repository says of itself). A list without hashes passes.
SHA256 := $(shell command -v sha256sum || echo shasum -a 256)
hashes = { [ ! -e $(1:.xml=.sha256) ] || (cd $(2) && LC_ALL=C $(SHA256) *.jar) | cmp -s - $(1:.xml=.sha256) \
	|| { echo "The jars in $(2) are not those of $(1:.xml=.sha256). Delete the folder and run the same command again;" \
		"if they differ again, the repository has other files: use none of them." >&2; exit 1; }; }

jar-hashes: ## compare the jars in JARS (.venv/jars) with our hashes of them
	@$(call hashes,docker/ivy.xml,$(or $(JARS),.venv/jars))

# Resolved by the Ivy inside pyspark: $(1) is the file that lists the jars, $(2) the folder they are put into.
define resolve
	@echo "env: jars of $(1)"
	@java=$${JAVA_HOME:+$$JAVA_HOME/bin/}java; \
	for attempt in 1 2 3; do \
		"$$java" -cp "$$(echo .venv/lib/python*/site-packages/pyspark/jars/ivy-*.jar)" org.apache.ivy.Main \
			$(if $(IVY_SETTINGS),-settings $(IVY_SETTINGS)) -ivy $(1) -cache "$(CURDIR)/.venv/ivy" \
			-retrieve '$(2)/[artifact]-[revision].[ext]' -types jar bundle -sync > .venv/ivy.log 2>&1 \
		&& { $(call hashes,$(1),$(2)); touch $@; exit 0; }; \
		echo "env: the jars did not come (attempt $$attempt of 3)" >&2; \
	done; \
	tail -n 20 .venv/ivy.log >&2; \
	echo "The jars of $(1) are missing; nothing was changed. Look at .venv/ivy.log, see that the network" \
		"works (IVY_SETTINGS=<file> names another repository), then run the same command again." >&2; exit 1
endef

$(MADE)/peers: $(MADE)/packages tests/benchmarks/peers/requirements.txt tests/benchmarks/peers/jars.xml
	@echo "env: other engines, in .venv/peers"
	@$(UV) venv --quiet --allow-existing --python $(BIN)/python .venv/peers
	@$(UV) pip install --quiet --python .venv/peers/bin/python -r tests/benchmarks/peers/requirements.txt
	$(call resolve,tests/benchmarks/peers/jars.xml,.venv/peers/jars)

$(MADE)/jars: $(MADE)/packages docker/ivy.xml
	$(call resolve,docker/ivy.xml,.venv/jars)

$(MADE)/s3: $(MADE)/packages docker/s3.xml
	$(call resolve,docker/s3.xml,.venv/jars-s3)

$(MADE)/yarn: $(MADE)/packages docker/yarn.xml
	$(call resolve,docker/yarn.xml,.venv/yarn)

$(MADE)/gcs: $(MADE)/packages docker/gcs.xml
	$(call resolve,docker/gcs.xml,.venv/jars-gs)

$(MADE)/broker: $(MADE)/packages docker/broker.xml
	$(call resolve,docker/broker.xml,.venv/broker)

# Once, before workers of pytest wait for one another. Without Go the tests that need a program say so.
GO_SOURCES := $(wildcard tests/*/*.go tests/*/*/*.go tests/*/go.* tests/*/*/go.*)
$(MADE)/programs: $(MADE)/packages tests/support/go_programs.py $(GO_SOURCES)
	@echo "env: the servers of the tests that are Go"
	@$(BIN)/python -m tests.support.go_programs
	@touch $@

# Spark starts a third sooner with it, and works without. Where S3's jars are, there is one for them too.
$(MADE)/classes: $(MADE)/jars $(wildcard $(MADE)/s3) $(MADE)/onlyonce onlyonce/engine/class_archive.py
	@echo "env: the archive of Spark's classes"
	@$(BIN)/python -m onlyonce.engine.class_archive > .venv/class_archive.log 2>&1 || tail -n 1 .venv/class_archive.log
	@[ ! -e $(MADE)/s3 ] || ONLYONCE_DATA=s3://any $(BIN)/python -m onlyonce.engine.class_archive > .venv/class_archive.log 2>&1 || tail -n 1 .venv/class_archive.log
	@touch $@
