# Every target sets up what it needs; nothing has to be installed by hand but Python 3.11 and a C++ compiler.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.ready

export HF_HUB_OFFLINE ?= 1
export TOKENIZERS_PARALLELISM ?= false

.PHONY: env test lint clean

env: $(STAMP)

# torch comes first and exactly: a looser requirement would pull the CUDA build.
$(STAMP): pyproject.toml constraints.txt $(wildcard kernels/CMakeLists.txt kernels/src/*)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet torch==2.13.0
	$(BIN)/pip install --quiet -c constraints.txt scikit-build-core cmake ninja
	$(BIN)/pip install --quiet -c constraints.txt --no-build-isolation -e '.[cpu,torch,dev]'
	touch $@

test: env
	$(BIN)/python -m pytest

lint: env
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
