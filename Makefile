# Each target first creates the environment in .venv if necessary.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
INTEROP := .venv-interop
# Number of test processes; each starts its own Spark.
JOBS ?= 2
# The tests of a file share a process; tests/conftest.py sets the order of the files.
PARALLEL := -n $(JOBS) --dist loadfile --no-loadscope-reorder
# Coverage is measured from Python 3.12 on, where it costs little; before, it nearly doubles the processor time.
COVERAGE = $(shell $(BIN)/python -c 'import sys; print("--cov --cov-report=" * (sys.version_info >= (3, 12)))')
# Tests start many programs, which share the compiled modules.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test check chaos kills soak fuzz interop differential lint format notebooks docs wheel release bench java matrix lowest clean

help:
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or later is needed; this is " + sys.version.split()[0] + ". Run make PYTHON=/path/to/python3.11" if sys.version_info < (3, 11) else 0)'
	@echo "== creating the environment in $(VENV) (on first use and after changes of pyproject.toml; a minute or two)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $(STAMP)

demo: $(STAMP)  ## serve sample tables on this machine, and read them
	@$(BIN)/python scripts/java.py --quiet || echo "== the demo runs without Spark"
	@$(BIN)/python notebooks/demo.py

test: $(STAMP)  ## run the tests, with coverage from Python 3.12 on; JOBS=0 for one process
	@$(BIN)/python scripts/java.py --quiet && $(BIN)/python tests/spark_java.py
	COVERAGE_CORE=sysmon $(BIN)/python -m pytest $(PARALLEL) -m "not slow" --durations=50 $(COVERAGE)

check: lint test  ## lint, and run the tests

chaos: $(STAMP)  ## load a table through 10,000 seeded faults; CHAOS='--faults 500 --seed 7' for others
	@$(BIN)/python tests/faults/chaos.py $(CHAOS)

kills: $(STAMP)  ## kill Spark streams in the middle of 100 batches; KILLS='--kills 20 --pyspark 4.0' for others
	@$(BIN)/python scripts/java.py --quiet && $(BIN)/python tests/spark_java.py
	@$(BIN)/python tests/faults/stream_kills.py $(KILLS)

# An hour or two: everything that is too long for `test`.
soak: chaos kills  ## run chaos, kills, all tests with more examples, and a stress of many threads; SOAK='--seconds 600 forks'
	DELTA_SHARING_THOROUGH=1 $(BIN)/python -m pytest $(PARALLEL)
	@$(BIN)/python tests/faults/stress.py $(SOAK)

# atheris is guided by coverage, and has wheels for some systems only; hypothesis replaces it on others.
fuzz: $(STAMP)  ## fuzz the decoders, a minute each; FUZZ='--seconds 600 ndjson' for others
	@$(BIN)/python -c 'import atheris' 2>/dev/null || $(BIN)/python -m pip install --quiet atheris \
		|| echo "== atheris cannot be installed: hypothesis generates the inputs"
	@$(BIN)/python tests/fuzz/fuzz.py $(FUZZ)

# Not part of `test`: it needs a second environment, of half a gigabyte, from a package index.
differential: $(STAMP)  ## read the golden tables with other clients too, and compare
	@$(BIN)/python benchmarks/peer.py
	$(BIN)/python -m pytest tests/differential

lint: $(STAMP)  ## run ruff, mypy --strict and lint-imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(STAMP)  ## format the code with ruff
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

notebooks: $(STAMP)  ## run the notebooks and save their output
	@$(BIN)/python scripts/java.py --quiet
	@$(BIN)/python notebooks/execute.py

docs: $(STAMP)  ## build the documentation site into site/, with warnings as errors; DOCS=serve shows it
	@NO_MKDOCS_2_WARNING=1 PATH=$(CURDIR)/$(BIN):$$PATH $(BIN)/python -m mkdocs $(or $(DOCS),build) --strict

wheel: $(STAMP)  ## build the wheel and the source archive into dist/
	$(BIN)/python -m build

release: lint docs test matrix differential wheel  ## lint, build the site, test on every PySpark, compare, build and try the wheel
	$(BIN)/python -m twine check --strict dist/*
	rm -rf .venv-release && $(PYTHON) -m venv .venv-release
	.venv-release/bin/python -m pip install --quiet --disable-pip-version-check "$$(ls -t dist/*.whl | head -n 1)[server,delta]"
	cd .venv-release && bin/python $(CURDIR)/scripts/try_wheel.py
	rm -rf .venv-release

interop: $(INTEROP)/.ready  ## read the written logs and tables with delta-spark, deltalake and DuckDB
	@$(INTEROP)/bin/python scripts/java.py --quiet && $(INTEROP)/bin/python tests/spark_java.py
	$(INTEROP)/bin/python -m pytest tests/interop -p no:cacheprovider

# The versions of Spark and delta-spark must match; the tests fetch the jars of delta-spark from Maven Central.
$(INTEROP)/.ready: pyproject.toml Makefile
	@test -x $(INTEROP)/bin/python || $(PYTHON) -m venv $(INTEROP)
	@$(INTEROP)/bin/python -m pip install --quiet --disable-pip-version-check -e '.[server,duckdb,delta]' \
		pyspark==4.2.0 delta-spark==4.4.0 'hypothesis>=6.90' 'pytest>=8.0' 'pytest-timeout>=2.3'
	@touch $@

bench: $(STAMP)  ## compare the speed with the official client; BENCH=--quick for a short run
	@$(BIN)/python benchmarks/compare.py $(BENCH)

java: $(STAMP)  ## find a Java for Spark, or install one in the environment
	@$(BIN)/python scripts/java.py

matrix: $(STAMP)  ## run the Spark tests on every supported PySpark; MATRIX='3.5 4.0' for some
	@$(BIN)/python scripts/matrix.py $(MATRIX)

# Not part of `test`: it needs an environment of its own, of two gigabytes. It does not use the one of `test`.
lowest:  ## run each front door with the lowest versions of all dependencies; LOWEST='core duckdb' for some
	@$(PYTHON) scripts/lowest.py $(LOWEST)

clean:  ## remove everything that make created
	rm -rf $(VENV) $(INTEROP) .venv-peer .venv-spark-* .venv-lowest dist build site .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .coverage*
