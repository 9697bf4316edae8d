# `make demo` and `make test` work from a fresh checkout: they build .venv when it is missing, and install again when
# pyproject.toml or constraints.txt change.
#
#   PYTHON    the interpreter that creates .venv (3.11 or newer)
#   PIP_ARGS  more arguments for pip; on Linux without a GPU, the CPU build of torch saves gigabytes:
#             make test PIP_ARGS="--extra-index-url https://download.pytorch.org/whl/cpu"

PYTHON ?= python3
PIP_ARGS ?=
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help demo test lint clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-6s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(STAMP) ## run the demonstration
	@$(BIN)/parsecaps demo

test: lint ## run every check: lint, types, tests and doctests
	$(BIN)/pytest -q

lint: $(STAMP) ## ruff (lint and format) and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict src

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
