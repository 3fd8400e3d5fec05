# Everything a user or developer runs; `make` lists it. Each target makes the environment it needs, once.

ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for python in python3 python3.13 python3.12 python3.11; do \
	"$$python" -c '$(ENOUGH)' 2>/dev/null && { echo "$$python"; break; }; done)
# Fabric's runtime 1.3, whose Spark and Delta smoke35 is about, has Python 3.11: that one where it is installed.
PYTHON35 ?= $(shell python3.11 -c 'import venv, ensurepip' 2>/dev/null && echo python3.11 || echo "$(PYTHON)")
BIN := .venv/bin
BIN35 := .venv35/bin
# What decides whether a table is right: all but what asks for a platform, a server, or no Spark.
CORE := tests/commit tests/delta tests/derived tests/feed tests/ingest tests/test_apply_property.py tests/test_exactly_once.py \
	$(addprefix tests/delivery/test_,deliver.py delta_sink.py every_receiver.py exchanged_columns.py lost_history.py stored_keys.py)
N ?= 200
MINUTES ?= 10
CYCLES ?= 10000
# Moves the clocks of Python and Java alike.
FAKETIME ?= $(firstword $(wildcard /usr/lib/*/faketime/libfaketime.so.1 /usr/lib*/faketime/libfaketime.so.1))
# Compiling all of Spark's Python takes longer than what is ever imported of it.
QUIET := --quiet --no-compile --disable-pip-version-check
# What is imported is compiled once, whatever an image says: else each worker, and each process of a test, does it anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test thorough check format docs cluster fuzz torture soak serverless history bench bench-quick smoke35 wheel release clean machine

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: .venv/local.stamp ## See it work on real data
	@$(BIN)/mirrorlib demo

test: .venv/dev.stamp ## Run the quick suite: a case of each promise
	$(BIN)/pytest -n 3 --dist loadfile --no-loadscope-reorder $(PYTEST)

thorough: override PYTEST += --thorough
thorough: test ## Run the whole suite

check: .venv/dev.stamp ## Lint, formatting, notebooks, types, import contracts
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/python tools/notebooks.py --check
	$(BIN)/yamllint --strict databricks.yml bundles
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.github-workflows bundles/github/deploy.yml
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

format: .venv/dev.stamp ## Format the code and repair what the linter can
	$(BIN)/ruff check --fix
	$(BIN)/ruff format
	$(BIN)/python tools/notebooks.py

docs: .venv/dev.stamp ## Build the documentation's site in build/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# Spark leaves 170 MB of jars in its own folder for each application on such a cluster.
cluster: .venv/dev.stamp ## Run the core suite on a Spark whose executors are processes of their own: longer than `make test`
	MIRRORLIB_MASTER='local-cluster[2,1,2048]' $(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder $(CORE) $(PYTEST)
	rm -rf .venv/lib/python3*/site-packages/pyspark/work

serverless: .venv/dev.stamp ## Run the core suite on compute that lets nobody configure a session: longer than `make test`
	MIRRORLIB_COMPUTE=serverless $(BIN)/pytest -n 3 --dist loadfile --no-loadscope-reorder $(CORE) $(PYTEST)

torture: .venv/dev.stamp ## Kill runs at N random moments, a third by each of three tests (N=200)
	MIRRORLIB_TORTURE=$$((($(N) + 2) / 3)) $(BIN)/pytest --thorough -n 2 --dist load -m torture --timeout 0

fuzz: .venv/dev.stamp ## Damage files, metadata, names and journals for MINUTES (MINUTES=10)
	MIRRORLIB_FUZZ=$(MINUTES) $(BIN)/pytest --thorough -n 0 -s tests/test_fuzz.py

# Monotonic clocks and the times of files are left alone: waits take as long as they say, and etags stay.
soak: .venv/dev.stamp ## Live through a day of CYCLES polls in which anything happens (CYCLES=10000: an hour)
	@test -n "$(FAKETIME)" || { echo "make soak needs libfaketime: install it (Debian, Ubuntu: apt-get install faketime)"; exit 1; }
	clock=$$(mktemp) && echo +0 > $$clock && \
	MIRRORLIB_SOAK=$(CYCLES) LD_PRELOAD=$(FAKETIME) FAKETIME_TIMESTAMP_FILE=$$clock FAKETIME_NO_CACHE=1 NO_FAKE_STAT=1 \
	FAKETIME_DONT_FAKE_MONOTONIC=1 FAKETIME_FORCE_MONOTONIC_FIX=0 $(BIN)/pytest --thorough -n 0 -s tests/test_soak.py

history: .venv/dev.stamp ## Read a history of N random commits in random windows (N=10000: an hour and a half)
	MIRRORLIB_HISTORY=$(N) $(BIN)/pytest --thorough -n 2 --dist load tests/feed/test_long_history.py

bench: .venv/dev.stamp .venv-iceberg/stamp ## Measure against the MERGE recipe and peers: two hours
	$(BIN)/python -m benchmarks --peers --rounds 5 --results

bench-quick: .venv/dev.stamp ## See that every workload runs and ends equal, in minutes
	$(BIN)/python -m benchmarks --peers --quick

smoke35: .venv35/dev.stamp ## Run all smoke tests, thorough ones too, on Spark 3.5 and Delta 3.3
	$(BIN35)/pytest -m smoke --thorough -n 2 --dist loadfile $(PYTEST)

wheel: ## Build the wheel into dist/stamped/, with a version for each content
	@"$(PYTHON)" tools/wheel.py

release: .venv/release.stamp ## Build wheel and sdist, and test them in environments of their own
	$(BIN)/python tools/release.py

clean: ## Remove the environments and what the tools left behind
	rm -rf .venv .venv35 .venv-iceberg .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache build dist

# One clear line instead of a stack trace when this machine lacks something.
machine:
	@test -n "$(PYTHON)" && "$(PYTHON)" -c '$(ENOUGH)' || \
		{ echo "mirrorlib needs Python 3.11 or newer: install it (Debian, Ubuntu: apt-get install python3 python3-venv), or name it: make PYTHON=/path/to/python3"; exit 1; }
	@"$(PYTHON)" -c 'import venv, ensurepip' 2>/dev/null || \
		{ echo "This Python cannot make environments: install its venv module (Debian, Ubuntu: apt-get install python3-venv)"; exit 1; }
	@java=$${JAVA_HOME:+$$JAVA_HOME/bin/}java; \
		version=$$("$$java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p'); \
		test "$${version:-0}" -ge 17 || \
		{ echo "mirrorlib's local Spark needs Java 17 or newer: install it (Debian, Ubuntu: apt-get install openjdk-17-jre-headless; macOS: brew install openjdk@17)"; exit 1; }

.venv/bin/python: | machine
	"$(PYTHON)" -m venv .venv

.venv/local.stamp: pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install $(QUIET) --editable '.[local]'
	@touch $@

.venv/dev.stamp: pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install $(QUIET) --editable '.[local,dev]'
	@! command -v npm >/dev/null || npm install --silent --no-audit --no-fund --prefix .venv/azurite azurite@3 || \
		echo "azurite could not be installed: the tests of Azure are left out"
	@touch .venv/local.stamp $@

# Iceberg 1.12 supports Spark up to 4.1.
.venv-iceberg/stamp: | machine
	"$(PYTHON)" -m venv .venv-iceberg
	.venv-iceberg/bin/python -m pip install $(QUIET) pyspark==4.1.4 pyarrow
	@touch $@

.venv/release.stamp: .venv/dev.stamp
	$(BIN)/python -m pip install $(QUIET) build check-wheel-contents twine
	@touch $@

.venv35/dev.stamp: pyproject.toml | machine
	test -x $(BIN35)/python || "$(PYTHON35)" -m venv .venv35
	$(BIN35)/python -m pip install $(QUIET) --editable '.[local35,dev]'
	@touch $@
