# normgeom: `make report` rebuilds reports/, `make test` runs the tests. Each makes .venv by itself.
#
#   PYTHON=python3.12     the interpreter the environment is made from (3.11 or newer)
#   TORCH=existing        use the torch that interpreter already has (a GPU machine) instead of the pinned one
#   ARGS="table1 --quick" arguments for the report
#   WORKERS=2             processes for the tests

PYTHON  ?= python3
WORKERS ?= 2
ARGS    ?=
BIN     := .venv/bin
STAMP   := .venv/.installed-$(or $(TORCH),pinned)

.PHONY: report test lint types check clean help

help:
	@sed -n '1,/^$$/p' Makefile

report: $(STAMP)
	$(BIN)/python -m analyses $(ARGS)

test: $(STAMP)
	$(BIN)/python -m pytest -n $(WORKERS)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

check: lint types test

$(STAMP): constraints.txt pyproject.toml Makefile
	rm -rf .venv
ifeq ($(TORCH),existing)
	$(PYTHON) -m venv --system-site-packages .venv
	grep -v '^torch==' constraints.txt > .venv/constraints.txt
else
	$(PYTHON) -m venv .venv
	cp constraints.txt .venv/constraints.txt
	$(BIN)/python -m pip install --progress-bar off --disable-pip-version-check -c .venv/constraints.txt torch
endif
	$(BIN)/python -m pip install --progress-bar off --disable-pip-version-check -c .venv/constraints.txt -e '.[dev]'
	touch $@

clean:
	rm -rf .venv build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
