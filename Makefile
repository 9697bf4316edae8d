# `make demo` and `make test` work from a fresh checkout: they build .venv when it is missing, and install again when
# pyproject.toml or constraints.txt change.
#
#   PYTHON    the interpreter that creates .venv (3.11 or newer)
#   PIP_ARGS  more arguments for pip; on Linux without a GPU, the CPU build of torch saves gigabytes:
#             make test PIP_ARGS="--extra-index-url https://download.pytorch.org/whl/cpu"
#   WORKERS   how many processes share out the tests, each with one thread (auto: one for each core)

PYTHON ?= python3
PIP_ARGS ?=
WORKERS ?= auto
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help demo test lint docs page notebooks clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(STAMP) ## run the demonstration
	@$(BIN)/parsecaps demo

test: lint ## run every check: lint, types, tests and doctests
	OMP_NUM_THREADS=1 $(BIN)/pytest -q -n $(WORKERS) --dist loadfile

lint: $(STAMP) ## ruff (lint and format) and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict src

docs: $(STAMP) ## build the documentation: open build/site/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

page: $(STAMP) ## build the scripts of the pages and the schema of their document (needs npm)
	cd page && npm ci --no-audit --no-fund && npm run check && npm run build
	$(BIN)/python -m tests.report.make_schema

notebooks: $(STAMP) ## run the notebooks of examples and keep what they show (some minutes)
	$(BIN)/python -m examples.make_outputs

clean: ## remove .venv, caches and build products
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "parsecaps needs Python 3.11 or newer, and $(PYTHON) is not; try: make PYTHON=python3.12" >&2; exit 1; }
	@echo "installing parsecaps into $(VENV) (the first time takes a minute or two)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip --disable-pip-version-check install -qq $(PIP_ARGS) -c constraints.txt -e '.[dev]'
	@touch $@
