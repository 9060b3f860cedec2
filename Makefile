# make demo | make test | make lint: each makes its own environment in .venv first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
INTEROP := .venv-interop
# Processes that the tests run in; each has a Spark of its own.
JOBS ?= 2
# A file's tests share a process; files run in the order that tests/conftest.py gives them.
PARALLEL := -n $(JOBS) --dist loadfile --no-loadscope-reorder
# From Python 3.12 on coverage costs little; before, it nearly doubles the processor time of the tests it measures.
COVERAGE_CORE = $(shell $(BIN)/python -c 'import sys; print("COVERAGE_CORE=sysmon" * (sys.version_info >= (3, 12)))')
# Tests start many programs: none of them should compile the package again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test check chaos fuzz interop differential lint format notebooks wheel release bench java matrix clean

help:
	@echo "make demo      set up, serve real Delta tables on loopback, read them as a client"
	@echo "make test      set up and run every test, the quick ones with coverage; JOBS=0 for one process"
	@echo "make check     lint, and the tests that are quick: before each commit"
	@echo "make differential  read the golden tables with other clients too, and compare"
	@echo "make chaos     load a table through 10,000 seeded faults; CHAOS='--faults 500 --seed 7' for others"
	@echo "make fuzz      fuzz the decoders, a minute each; FUZZ='--seconds 600 ndjson' for others"
	@echo "make lint      set up, then ruff, mypy --strict and the import floors"
	@echo "make format    let ruff lay out the code"
	@echo "make notebooks run the notebooks and write their output back"
	@echo "make wheel     build the wheel and the source archive into dist/"
	@echo "make release   lint, test, build, check the archives, try the wheel in a new environment"
	@echo "make interop   open what we write with delta-spark, deltalake and DuckDB"
	@echo "make bench     measure against the reference client; BENCH=--quick for a short run"
	@echo "make java      find a Java for Spark, or set one up in the environment"
	@echo "make matrix    run the Spark tests on every supported PySpark; MATRIX='3.5 4.0' picks some"
	@echo "make clean     remove everything that make made"

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or later is needed; this is " + sys.version.split()[0] + ". Say make PYTHON=/path/to/python3.11" if sys.version_info < (3, 11) else 0)'
	@echo "== making the environment in $(VENV) (the first time, and when pyproject.toml changed; a minute or two)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $(STAMP)

demo: $(STAMP)
	@$(BIN)/python scripts/java.py --quiet || echo "== the demo goes without Spark"
	@$(BIN)/python notebooks/demo.py

test: $(STAMP)
	@$(BIN)/python scripts/java.py --quiet
	$(COVERAGE_CORE) $(BIN)/python -m pytest $(PARALLEL) -m "not slow" --cov --cov-report=
	$(BIN)/python -m pytest $(PARALLEL) -m slow

# Before each commit: all tests but those marked `slow`, without coverage.
check: lint
	@$(BIN)/python scripts/java.py --quiet
	$(BIN)/python -m pytest $(PARALLEL) -m "not slow"

chaos: $(STAMP)
	@$(BIN)/python tests/faults/chaos.py $(CHAOS)

# atheris measures coverage and has wheels for some systems only; without it hypothesis finds the inputs.
fuzz: $(STAMP)
	@$(BIN)/python -c 'import atheris' 2>/dev/null || $(BIN)/python -m pip install --quiet atheris \
		|| echo "== atheris does not install here: hypothesis finds the inputs"
	@$(BIN)/python tests/fuzz/fuzz.py $(FUZZ)

# Apart from `test`: it needs a second environment, of half a gigabyte, from a package index.
differential: $(STAMP)
	@$(BIN)/python benchmarks/peer.py
	$(BIN)/python -m pytest tests/differential

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

notebooks: $(STAMP)
	@$(BIN)/python scripts/java.py --quiet
	@$(BIN)/python notebooks/execute.py

wheel: $(STAMP)
	$(BIN)/python -m build

# Builds, checks what an index would check, and uses the wheel in an environment that has nothing else.
release: lint test wheel
	$(BIN)/python -m twine check --strict dist/*
	rm -rf .venv-release && $(PYTHON) -m venv .venv-release
	.venv-release/bin/python -m pip install --quiet --disable-pip-version-check "$$(ls -t dist/*.whl | head -n 1)[server,delta]"
	cd .venv-release && bin/python $(CURDIR)/scripts/try_wheel.py
	rm -rf .venv-release

interop: $(INTEROP)/.ready
	DELTA_SHARING_INTEROP=1 $(INTEROP)/bin/python -m pytest tests/interop -p no:cacheprovider

# Spark and delta-spark have to fit each other; delta-spark's jars come from Maven Central, and Java 17 must be there.
$(INTEROP)/.ready: pyproject.toml
	@test -x $(INTEROP)/bin/python || $(PYTHON) -m venv $(INTEROP)
	@$(INTEROP)/bin/python -m pip install --quiet --disable-pip-version-check -e '.[server,duckdb]' \
		pyspark==4.2.0 delta-spark==4.4.0 deltalake pytest pytest-timeout
	@touch $@

bench: $(STAMP)
	@$(BIN)/python benchmarks/compare.py $(BENCH)

java: $(STAMP)
	@$(BIN)/python scripts/java.py

matrix: $(STAMP)
	@$(BIN)/python scripts/matrix.py $(MATRIX)

clean:
	rm -rf $(VENV) $(INTEROP) .venv-peer .venv-spark-* dist build .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
