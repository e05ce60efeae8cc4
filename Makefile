# Two commands for a machine that has Python (3.10 or later) with pip, and nothing else:
#
#   make demo    set up, then attention at head_dim 64, 128 and 256: on the GPU if it is a supported one, else emulated
#   make test    set up, then run the tests
#
# Others: make check (lint and types), make bench (what a call costs on the host), make clean.
# Everything is installed into VENV; a second run finds it there. PYTHON chooses the interpreter.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

# With an NVIDIA driver: CuPy and cuda-core too, to run on the GPU. Without: the compiler alone.
ifneq (,$(shell command -v nvidia-smi))
DEMO_EXTRA ?= cu12
else
DEMO_EXTRA ?= nvrtc12
endif

PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --editable

.PHONY: demo test check bench clean

demo: $(VENV)/.installed-$(DEMO_EXTRA)
	$(BIN)/python -m umma_jit.demo

# One process per core: BLAS in each of them must not take all cores again.
test: $(VENV)/.installed-test
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n auto $(PYTEST_FLAGS)

check: $(VENV)/.installed-dev
	$(BIN)/python -m ruff check
	$(BIN)/python -m ruff format --check
	$(BIN)/python -m mypy

bench: $(VENV)/.installed-nvrtc12
	$(BIN)/python benchmarks/call_overhead.py

clean:
	rm -rf $(VENV) build dist

$(BIN)/python:
	$(PYTHON) -m venv $(VENV) || { $(PYTHON) -m pip install --user virtualenv && $(PYTHON) -m virtualenv $(VENV); }

$(VENV)/.installed-%: pyproject.toml | $(BIN)/python
	$(PIP_INSTALL) ".[$*]"
	@touch $@
