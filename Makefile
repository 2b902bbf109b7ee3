# Everything runs inside .venv, which the first target that needs it creates.

PYTHON ?= python3
WORKERS ?= 2
PYTEST_ARGS ?=
DEMO_MODEL ?= inception-v3
DEMO_BUDGET ?= 45s
DEMO_DEVICES ?= --device A=cpu:core=0 --device B=cpu:core=1
DEMO_ARGS ?=
DEMO_TORCH_ARGS ?=
DEMO := build/demo
BENCH_ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help demo test lint format docs wheel screenshots bench clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

demo: $(INSTALLED) ## place Inception-V3 with OpenVINO, split two PyTorch models over two ranks, and run all for real
	@mkdir -p $(DEMO)
	test -f $(DEMO)/model.xml || $(BIN)/loadmaster zoo export $(DEMO_MODEL) $(DEMO)/model.xml
	$(BIN)/loadmaster warm --model concurrent
	$(BIN)/loadmaster optimize $(DEMO)/model.xml $(DEMO_DEVICES) --budget $(DEMO_BUDGET) $(DEMO_ARGS) \
		-o $(DEMO)/plan.json --report $(DEMO)/report.html
	$(BIN)/python -m benchmarks.torch_demo --folder $(DEMO) $(DEMO_TORCH_ARGS)
	@echo "Look at the report: $(abspath $(DEMO)/report.html)"

test: $(INSTALLED) ## run the tests (WORKERS=2, PYTEST_ARGS='-k serial')
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(PYTEST_ARGS)

lint: $(INSTALLED) ## check formatting, lint rules, types and what imports what
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

format: $(INSTALLED) ## format the code and apply the safe lint fixes
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

docs: $(INSTALLED) ## build the documentation into build/site; warnings are errors
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	$(BIN)/loadmaster bench board docs/benchmark/*.jsonl -o build/site/benchmark/board.html --reports 350

wheel: ## build the wheel, and try it in an empty environment without extras
	rm -rf build/wheel
	$(PYTHON) -m pip wheel --quiet --disable-pip-version-check --no-deps -w build/wheel .
	$(PYTHON) -m venv build/wheel/env
	build/wheel/env/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt build/wheel/*.whl
	build/wheel/env/bin/python tools/try_wheel.py

screenshots: $(INSTALLED) ## make the pictures of README and documentation afresh
	$(BIN)/python -m benchmarks.screenshots

bench: $(INSTALLED) ## measure the kernels against their references (BENCH_ARGS='...')
	$(BIN)/python -m benchmarks.kernels $(BENCH_ARGS)

clean: ## remove the environment, the caches and what was built
	rm -rf $(VENV) build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find src tests benchmarks -depth -name __pycache__ -exec rm -rf {} +

# Reinstalled whenever the dependencies or their pins change.
$(INSTALLED): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@
