# Needs Python (3.11 or newer) and make, nothing else: no compiler, no toolkit.
PYTHON ?= python3
VENV   ?= .venv
WORKERS ?= 2
N       ?= 100000
BIN     = $(VENV)/bin
FILES   = tilegrad tests bench examples tools
# Compared with PyTorch also with kernels that are scheduled as for a GPU.
FOR_GPU = $(addprefix tests/nn/test_,attention.py conv.py pool.py wide_recurrent.py)
# What measures, or fills the memory of the GPU, has it for itself.
ALONE   = $(addprefix tests/gpu/test_gpu_,execution.py networks.py several.py)

.PHONY: demo test lint peers gpu-schedules features pythons other-pythons gpu-test fuzz bench format clean

demo: $(VENV)/installed ## train on the digits inside the package, show what was compiled
	$(BIN)/python -m tilegrad demo

test: lint $(if $(PEERS),$(VENV)/peers) ## every check; PEERS=1 compares with PyTorch and JAX too
	$(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal

lint: $(VENV)/testing
	$(BIN)/ruff format --check $(FILES)
	$(BIN)/ruff check $(FILES)
	$(BIN)/mypy
	$(BIN)/mypy --config-file tests/mypy.ini

peers: $(VENV)/peers ## only the tests that need PyTorch, JAX, ONNX, TensorBoard or uvicorn
	$(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal -m peers

gpu-schedules: $(VENV)/testing ## layers and networks on the CPU scheduled as for a GPU
	$(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal --target gpu $(FOR_GPU)

features: $(VENV)/testing ## what runs machine code, once for each set of processor features
	$(BIN)/python -m tests.features -n $(WORKERS) --dist worksteal

pythons: ## every test, with each Python from 3.11 to 3.14 that is installed
	$(PYTHON) tools/pythons.py $(TESTS)

other-pythons: ## some tests of every part, with each other Python that is installed; names those that are not
	$(PYTHON) tools/pythons.py --quick

gpu-test: $(VENV)/testing ## what only a machine with an NVIDIA GPU can show; leaves a record in bench/results/
	$(BIN)/python -m pip install -q -e '.[cuda]'
	$(BIN)/python -m pytest -q $(ALONE)
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -q tests/gpu $(ALONE:%=--ignore=%) -n $(WORKERS) --dist worksteal

fuzz: $(VENV)/peers ## N random programs against PyTorch; goes on where it was interrupted
	$(BIN)/python -m tests.fuzz.program_runs $(N) --workers $(WORKERS) --log fuzz.$$(git rev-parse --short HEAD).jsonl

bench: $(VENV)/peers ## every workload against its peers; writes bench/results/ and docs/performance.md
	$(BIN)/python -m bench.all
	$(BIN)/python -m bench.first_second.run --keep
	$(BIN)/python -m bench.tuned

format: $(VENV)/testing
	$(BIN)/ruff check --fix $(FILES)
	$(BIN)/ruff format $(FILES)

clean:
	rm -rf $(VENV)

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "tilegrad needs Python 3.11 or newer: make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/installed: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install -q -e .
	touch $@

$(VENV)/testing: $(VENV)/installed
	$(BIN)/python -m pip install -q -e '.[test]'
	touch $@

$(VENV)/peers: $(VENV)/testing
	$(BIN)/python -m pip install -q torch==2.13.0 jax onnx onnxruntime tensorboard uvicorn httptools uvloop
	touch $@
