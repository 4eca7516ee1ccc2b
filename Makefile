# `make help` lists what there is. Everything runs in $(VENV), which the first target creates; to use
# an interpreter that is set up already, on a machine without network for instance, give PY=python3.

PYTHON ?= python3
VENV ?= .venv
PIP_ARGS ?=
DEMO_ARGS ?=
TEST_ARGS ?=
BENCH_ARGS ?=
NOTEBOOK_ARGS ?=

ifdef PY
READY_DEMO :=
READY_TEST :=
READY_DEV :=
else
PY := $(VENV)/bin/python
READY_DEMO := $(VENV)/.ready-demo
READY_TEST := $(VENV)/.ready-test
READY_DEV := $(VENV)/.ready-dev
endif

INSTALL := $(PY) -m pip install --quiet --disable-pip-version-check $(PIP_ARGS) -c constraints.txt
REQUIREMENTS := setup.cfg pyproject.toml constraints.txt
CUDA_SOURCES = $(shell find cuda -name '*.cu' -o -name '*.cuh')

.DEFAULT_GOAL := help
.PHONY: help demo test gpu-test sanitize docs notebooks bench lint format clean distclean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-10s %s\n", $$1, $$2}' Makefile
	@echo "DEMO_ARGS, TEST_ARGS, BENCH_ARGS and NOTEBOOK_ARGS are passed on; PYTHON is the Python for"
	@echo "the new environment, VENV its folder; PY=python3 uses an interpreter as it is."

demo: $(READY_DEMO) ## train GATv2 and GCN with dgl.nn and with dgl_flash.nn and compare
	@$(PY) -m dgl_flash.cli demo $(DEMO_ARGS)

test: $(READY_TEST) ## run every test that needs no GPU
	@OMP_NUM_THREADS=1 $(PY) -m pytest -n 2 --dist loadgroup -m "not gpu" $(TEST_ARGS)

gpu-test: $(READY_TEST) ## run the tests that need a CUDA device
	@$(PY) -m pytest -m gpu $(TEST_ARGS)

sanitize: $(READY_TEST) ## run every kernel under compute-sanitizer (of the CUDA toolkit)
	@for tool in memcheck racecheck; do \
	  PYTORCH_NO_CUDA_MEMORY_CACHING=1 compute-sanitizer --tool $$tool --error-exitcode 1 \
	    $(PY) -m tests.sanitize || exit 1; \
	done

docs: $(READY_TEST) ## write docs/layers.md from the docstrings and from what the layers do
	@$(PY) -m docs.layers

notebooks: $(READY_TEST) ## execute the notebooks top to bottom and store what they show
	@$(PY) notebooks/execute.py $(NOTEBOOK_ARGS)

bench: $(READY_TEST) ## measure on this machine's GPU; results are CSV files
	@$(PY) -m benchmarks.run $(BENCH_ARGS)

lint: $(READY_DEV) ## ruff, mypy and clang-format, without changing a file
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	@echo "clang-format --dry-run -Werror cuda"
	@$(PY) -c "import clang_format; clang_format.clang_format()" --dry-run -Werror $(CUDA_SOURCES)

# Set-up. The stamps make a second run immediate.

$(VENV)/.created:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 12))' || { \
	  echo "dgl_flash needs Python 3.10, 3.11 or 3.12, and \`$(PYTHON)\` is not one of them:"; \
	  $(PYTHON) --version; \
	  echo "name another one: make PYTHON=/path/to/python3.11 ..."; \
	  exit 1; } >&2
	@echo "creating $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.ready-demo: $(VENV)/.created $(REQUIREMENTS)
	$(call install,demo,)

$(VENV)/.ready-test: $(VENV)/.created $(REQUIREMENTS)
	$(call install,test,nvrtc)

$(VENV)/.ready-dev: $(VENV)/.created $(REQUIREMENTS)
	$(call install,dev,nvrtc)

# $(1): the extra. $(2): the extra that brings CuPy where no GPU asks for a particular one.
define install
@echo "installing dgl_flash[$(1)] and what it needs into $(VENV); the first time takes minutes"
@$(INSTALL) torch setuptools wheel
@extra=$(2); \
if nvidia-smi -L 2>/dev/null | grep -q '^GPU'; then \
  cuda=$$($(PY) -c 'import torch; print((torch.version.cuda or "none").split(".")[0])'); \
  case "$$cuda" in \
    12|13) extra=cuda$$cuda ;; \
    none) echo "There is an NVIDIA GPU, but this torch is built without CUDA: the CPU is used." ;; \
    *) echo "There is an NVIDIA GPU, but no CuPy extra for CUDA $$cuda: the CPU is used." ;; \
  esac; \
fi; \
$(INSTALL) --no-build-isolation -e ".[$(1)$${extra:+,$$extra}]"
@touch $@
endef

clean: ## remove build products and caches
	rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +

distclean: clean ## remove the environment too
	rm -rf $(VENV)
