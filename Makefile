# The demo of each backend. OneFlow's CPU kernels are slow: its demo is smaller.
DEMO_torch := --hyp data/hyps/hyp.demo.yaml --img 160 --batch 16 --epochs 60
DEMO_oneflow := --hyp data/hyps/hyp.demo.yaml --img 128 --batch 16 --epochs 16
DEMO_common := --data shapes --cfg models/yolov5n.yaml --weights '' --name demo

# Both backends in turns; about ten minutes on two otherwise idle cores.
COMPARE := --data shapes --cfg models/yolov5n.yaml --img 96 --batch 8,16 --epochs 2 \
	--variants plain,fused
COMPARE_ARGS ?=
# `--seed N` tries other mutants, `--reader labels` one reader, `--mutants N` as many of each.
FUZZ_ARGS ?=

# Of `make bench-gpu`: its limit, the device, and another trainer to run beside ours.
MINUTES ?= 10
DEVICE ?= 0
OTHER ?=

# Any Python from 3.8 on; it only makes the environments in which the backends run.
PYTHON ?= python3
# Empty means both for `make setup`, torch for the other targets.
BACKEND ?=
unexport BACKEND  # docs/examples/train.sbatch reads a variable of this name, also in its tests
export PYTEST_ARGS

DEMO_BACKEND = $(or $(BACKEND),torch)

# `make check` in two parts of about the same length, one per core. The tests of benchmarks train.
CHECK_FIRST := tests/structure tests/conformance/test_conformance.py \
	$(addprefix tests/unit/,weights evaluation models report)
CHECK_SECOND := tests/unit $(addprefix --ignore=,tests/unit/benchmarks $(CHECK_FIRST))
CHECK = YOLO_BACKEND=$(DEMO_BACKEND) OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 \
	.venv/$(DEMO_BACKEND)/bin/python -m pytest -p no:cacheprovider $(PYTEST_ARGS)

# `make test`: a suite of each backend that is there, side by side.
SUITES = $(patsubst .venv/%/bin/python,suite-%,$(wildcard .venv/torch/bin/python .venv/oneflow/bin/python))

# Material for MkDocs tells of its successor in each build; pyproject.toml says why not that one.
MKDOCS = NO_MKDOCS_2_WARNING=1 .venv/docs/bin/python -m mkdocs

.PHONY: help setup demo detect compare check check-first check-second test suites fuzz lint bench bench-gpu docs docs-serve update clean

help:
	@echo 'make demo [BACKEND=oneflow]    train and validate YOLOv5n on the built-in dataset'
	@echo 'make detect [BACKEND=oneflow]  draw on its images what the newest demo finds in them'
	@echo 'make compare [COMPARE_ARGS=...]  time both backends on equal work; a table and a page'
	@echo 'make check [BACKEND=oneflow]   linters and the tests that need no training, below 2 minutes'
	@echo 'make test [PYTEST_ARGS=...]    run the tests on both backends'
	@echo 'make fuzz [FUZZ_ARGS=...]      read damaged files of every kind, about 10 minutes'
	@echo 'make lint                      run ruff and mypy'
	@echo 'make bench [BACKEND=oneflow]   time every fast path and its plain path, about 10 minutes'
	@echo 'make bench-gpu [MINUTES=10] [OTHER="python OTHER.py"]  one table for the first GPU'
	@echo 'make docs                      build the site of docs/ into site/, in English and Chinese'
	@echo 'make docs-serve                show it on this machine, and again after each change'
	@echo 'make setup [BACKEND=...]       only make the environments that the other targets use'
	@echo 'make setup WITH=extras         the same with the packages of all optional features'
	@echo 'make setup TORCH=cuda          the same with the CUDA build of PyTorch; TORCH=cpu: the CPU build'
	@echo 'make update                    write the locks of requirements/ anew, with the newest versions'
	@echo 'make clean                     remove the environments and caches; keeps runs/, datasets/'
	@echo 'PYTHON=/path/to/python3.12     with any target: the Python for .venv/torch'

setup:
	@$(PYTHON) -m duet.utils.setup.environments $(BACKEND)

demo:
	@$(PYTHON) -m duet.utils.setup.environments $(DEMO_BACKEND)
	@.venv/$(DEMO_BACKEND)/bin/python train.py --backend $(DEMO_BACKEND) \
		$(DEMO_common) $(DEMO_$(DEMO_BACKEND))

detect:
	@weights=$$(ls -t runs/train/demo*/weights/best.safetensors 2>/dev/null | head -n 1); \
	if [ -z "$$weights" ]; then \
		echo 'error: there are no weights of a demo: run `make demo` first' >&2; exit 2; \
	fi; \
	$(PYTHON) -m duet.utils.setup.environments $(DEMO_BACKEND) && \
	.venv/$(DEMO_BACKEND)/bin/python detect.py --backend $(DEMO_BACKEND) --weights "$$weights"

compare:
	@$(PYTHON) -m duet.utils.setup.environments
	@.venv/torch/bin/python compare.py $(COMPARE) $(COMPARE_ARGS)

check:
	@WITH=dev $(PYTHON) -m duet.utils.setup.environments $(sort torch $(DEMO_BACKEND))
	@$(MAKE) --no-print-directory --jobs=2 --output-sync lint check-first check-second

check-first:
	@$(CHECK) $(CHECK_FIRST)

check-second:
	@$(CHECK) $(CHECK_SECOND)

test:
	@WITH=dev $(PYTHON) -m duet.utils.setup.environments
	@claims=$$(mktemp -d) && trap 'rm -rf "$$claims"' EXIT && \
		TESTS_CLAIMS=$$claims $(MAKE) --no-print-directory --jobs=3 --keep-going suites

# Both suites leave their cores now and then, to wait for a process: a third one takes them then.
suites: $(SUITES) $(if $(PYTEST_ARGS),,$(if $(word 2,$(SUITES)),suite-once))

suite-%: SHELL := bash
suite-%: NAMED = $*
suite-%:
	@set -o pipefail; YOLO_BACKEND=$(NAMED) \
		OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= \
		$(START) .venv/$(NAMED)/bin/python -X warn_default_encoding -m pytest \
		-o cache_dir=.pytest_cache/$* --durations=60 --durations-min=1 $(PYTEST_ARGS) $(FILES) 2>&1 \
		| tee .venv/$*-tests.log | awk '{ print "$*: " $$0; fflush() }'

suite-once: NAMED = torch
suite-once: START = TESTS_ONCE_ALONE=1 nice -n 10
suite-once: FILES = $$(.venv/torch/bin/python -m tests.one_suite)

fuzz:
	@WITH=dev $(PYTHON) -m duet.utils.setup.environments $(DEMO_BACKEND)
	@YOLO_BACKEND=$(DEMO_BACKEND) .venv/$(DEMO_BACKEND)/bin/python -m tests.fuzz.campaign $(FUZZ_ARGS)

lint:
	@WITH=dev $(PYTHON) -m duet.utils.setup.environments torch
	@.venv/torch/bin/ruff check .
	@.venv/torch/bin/ruff format --check --quiet .
	@.venv/torch/bin/mypy

bench:
	@$(PYTHON) -m duet.utils.setup.environments $(DEMO_BACKEND)
	@.venv/$(DEMO_BACKEND)/bin/python -m benchmarks --backend $(DEMO_BACKEND) --device cpu

bench-gpu:
	@$(PYTHON) -m duet.utils.setup.environments $(DEMO_BACKEND)
	@mkdir -p runs/bench-gpu
	@.venv/$(DEMO_BACKEND)/bin/python -m benchmarks.card --backend $(DEMO_BACKEND) \
		--device $(DEVICE) --minutes $(MINUTES) --other '$(OTHER)' --json runs/bench-gpu/card.json

docs:
	@$(PYTHON) -m duet.utils.setup.environments docs
	@$(MKDOCS) build --strict

docs-serve:
	@$(PYTHON) -m duet.utils.setup.environments docs
	@$(MKDOCS) serve

update:
	@$(PYTHON) -m duet.utils.setup.lock

clean:
	@rm -rf .venv site .pytest_cache .mypy_cache .ruff_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
