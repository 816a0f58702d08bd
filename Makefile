# Each target prints the commands it runs; the same ones, typed by hand, do the same without make.
PYTHON ?= python3
BIN := .venv/bin
# The first of demo-1, demo-2, ... that is not taken: every demo is a study of its own.
DEMO = $(shell n=1; while test -e "$${HSWEEP_HOME:-hsweep-home}/studies/demo-$$n"; do \
	n=$$((n + 1)); done; echo demo-$$n)

# A stamp is written after everything before it succeeded, so a venv whose installation was
# interrupted is installed again. The stamps lie inside the venv and go with it.
READY_TO_RUN := .venv/.ready-to-run
READY_TO_TEST := .venv/.ready-to-test

.PHONY: demo test test-slow chaos bench docs lint clean

demo: $(READY_TO_RUN)
	$(BIN)/hsweep run sweeps/vit_lean.py --no-reuse --study $(DEMO)

# Tests that start processes wait for them, so on two cores four at once are quicker than three.
test: $(READY_TO_TEST)
	$(BIN)/pytest -m "not slow" -n 4 --dist loadgroup

test-slow: $(READY_TO_TEST)
	$(BIN)/pytest -m slow -n 2 --dist loadgroup

# Faults put to real studies; the table of what was tried goes into the document.
chaos: $(READY_TO_TEST)
	$(BIN)/pytest tests/chaos -n 2 --dist loadgroup --chaos-table docs/reliability.md

# `make bench NAME=study` for one; all of them, and a table of all, without a name.
bench: $(READY_TO_TEST)
	$(BIN)/python -m benchmarks $(or $(NAME),suite)

# The site of docs/ into build/site.
docs: $(READY_TO_TEST)
	$(BIN)/zensical build --strict

lint: $(READY_TO_TEST)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

# Removes what this file made; the studies in hsweep-home stay.
clean:
	rm -rf .venv .cache build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/pip:
	$(PYTHON) -m venv .venv

$(READY_TO_RUN): pyproject.toml constraints.txt | $(BIN)/pip
	$(BIN)/pip install -c constraints.txt -e .
	@touch $@

$(READY_TO_TEST): pyproject.toml constraints.txt | $(BIN)/pip
	$(BIN)/pip install -c constraints.txt -e ".[test]"
	@touch $@ $(READY_TO_RUN)
