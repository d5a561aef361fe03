# make demo   train, score, export and translate in five minutes, no download
# make test   every test
# make test-portable  the tests of layers, models, decoding, training, imports
#             and exports again, with the kernels of processors without AVX-512
# make test-backends  the layers that need no TensorFlow, on JAX and PyTorch, in
#             an environment of its own: TORCH and JAX choose other versions
# make test-oldest    layers and model on the oldest TensorFlow and Keras that
#             pyproject.toml allows, without the packages of translation, in an
#             environment of its own: TENSORFLOW, KERAS and NUMPY choose others
# make test-newest    every test, with the newest TensorFlow, Keras, SentencePiece
#             and sacreBLEU that pip finds, in an environment of its own
# make package  build wheel and source distribution, and try each in an empty
#             environment
# make check  for daily work: lint, and the tests of layers, data and documents
# make lint   ruff: rules and formatting; mypy: types
# make bench  every figure that the project aims at, ten quiet minutes
# make bench-peers  the same beside OpenNMT-tf and CTranslate2: 2.5 GB in build/
# make headline  the first updates of the recipe for Multi30k, downloaded, and
#             whether loss and BLEU are those of earlier runs: half an hour
# make golden write tests/hparam_sets.json, what each set has for the defaults,
#             and the page of hyper-parameters
# make docs   the site of docs/ in build/site, all links checked, in an
#             environment of its own
# make clean  remove what the tools and the demo wrote

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
BACKENDS := .venv-backends
JAX ?= jax
TORCH ?= torch
OLDEST := .venv-oldest
NEWEST := .venv-newest
DOCS := .venv-docs
TENSORFLOW ?= 2.18.1
KERAS ?= 3.8.0
NUMPY ?= 1.26.4
DEMO := runs/demo
PACKAGE := build/package
PROBLEM := translate_ende_phrases

# --no-loadscope-reorder keeps the order of tests/conftest.py.
PYTEST := TF_CPP_MIN_LOG_LEVEL=3 $(BIN)/python -m pytest -q \
  --numprocesses=3 --dist=loadfile --no-loadscope-reorder
# Without AVX-512, TensorFlow leaves oneDNN out by itself.
PORTABLE := TF_ENABLE_ONEDNN_OPTS=0 ONEDNN_MAX_CPU_ISA=AVX2 \
  CT2_FORCE_CPU_ISA=AVX2

.PHONY: demo test test-portable test-backends test-oldest test-newest package check lint bench bench-peers headline golden docs clean venv

venv: $(STAMP)

$(STAMP): setup.py pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; (3, 10) <= sys.version_info < (3, 14) or \
	  sys.exit("Python 3.10 to 3.13 is needed: make PYTHON=python3.12 ...")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
	  -c constraints.txt -e '.[dev,tensorboard,plots,ctranslate2,litert,serve]'
	@touch $@

demo: $(STAMP)
	rm -rf $(DEMO)
	$(BIN)/python trainer.py --problem=$(PROBLEM) \
	  --hparams_set=transformer_relative_tiny --output_dir=$(DEMO)
	$(BIN)/python decoder.py --output_dir=$(DEMO) \
	  --decode_from_file=data/$(PROBLEM)/test.source \
	  --decode_reference=data/$(PROBLEM)/test.target \
	  --decode_to_file=$(DEMO)/test.translated --score_json=$(DEMO)/score.json
	$(BIN)/python -m relpos_tf.bin.export --output_dir=$(DEMO) \
	  --export_dir=$(DEMO)/export
	@echo "Five phrases, translated by the exported SavedModel:"
	@head -n 5 data/$(PROBLEM)/test.source > $(DEMO)/five.en
	@$(BIN)/python examples/load_export.py --export_dir=$(DEMO)/export \
	  < $(DEMO)/five.en > $(DEMO)/five.de
	@paste -d '\t' $(DEMO)/five.en $(DEMO)/five.de

test: $(STAMP)
	$(PYTEST) tests

test-portable: $(STAMP)
	$(PORTABLE) $(PYTEST) tests/layers tests/models tests/decoding \
	  tests/training tests/t2t tests/export

# Without TensorFlow, so that nothing there can import it.
$(BACKENDS)/.installed: constraints.txt
	test -x $(BACKENDS)/bin/python || $(PYTHON) -m venv $(BACKENDS)
	$(BACKENDS)/bin/python -m pip install --quiet \
	  --disable-pip-version-check -c constraints.txt \
	  keras numpy absl-py pytest '$(JAX)' '$(TORCH)'
	@touch $@

test-backends: $(BACKENDS)/.installed
	for backend in jax torch; do \
	  KERAS_BACKEND=$$backend $(BACKENDS)/bin/python -m pytest -q \
	    --confcutdir=tests/backends tests/backends || exit 1; \
	done

# Installs the package with its requirements, which must allow the versions.
$(OLDEST)/.installed-$(TENSORFLOW)-$(KERAS)-$(NUMPY): pyproject.toml
	test -x $(OLDEST)/bin/python || $(PYTHON) -m venv $(OLDEST)
	rm -f $(OLDEST)/.installed-*
	$(OLDEST)/bin/python -m pip install --quiet \
	  --disable-pip-version-check -e '.[layers]' pytest \
	  tensorflow==$(TENSORFLOW) keras==$(KERAS) numpy==$(NUMPY)
	@touch $@

test-oldest: $(OLDEST)/.installed-$(TENSORFLOW)-$(KERAS)-$(NUMPY)
	TF_CPP_MIN_LOG_LEVEL=3 $(OLDEST)/bin/python -m pytest -q \
	  tests/layers tests/backends tests/models/transformer*_test.py

test-newest:
	$(MAKE) VENV=$(NEWEST) venv
	$(NEWEST)/bin/python -m pip install --disable-pip-version-check --upgrade \
	  tensorflow tensorflow-text keras sentencepiece sacrebleu
	$(MAKE) VENV=$(NEWEST) test

# Away from the sources, so that nothing finds them.
package:
	rm -rf $(PACKAGE)
	$(PYTHON) -m venv $(PACKAGE)/build
	$(PACKAGE)/build/bin/python -m pip install --quiet \
	  --disable-pip-version-check build
	$(PACKAGE)/build/bin/python -m build --outdir $(PACKAGE)/dist .
	for file in $(PACKAGE)/dist/*; do \
	  $(PYTHON) -m venv --clear $(PACKAGE)/env && \
	  $(PACKAGE)/env/bin/python -m pip install --quiet \
	    --disable-pip-version-check -c constraints.txt "$$file[translate]" && \
	  cd $(PACKAGE) && rm -rf data runs && \
	  env/bin/relpos-trainer --help > /dev/null && \
	  env/bin/python -c 'import relpos_tf.layers' && \
	  env/bin/relpos-trainer --schedule=train --train_steps=2 && \
	  echo "twenty-one days" | env/bin/relpos-decoder && \
	  cd $(CURDIR) || exit 1; \
	done

check: lint
	$(PYTEST) tests/conformance tests/data tests/layers

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(STAMP)
	$(BIN)/python benchmarks/summary.py

bench-peers: $(STAMP)
	$(BIN)/python benchmarks/peers/build.py build/peers
	$(BIN)/python benchmarks/summary.py --peers=build/peers

headline: $(STAMP)
	rm -rf runs/headline
	$(BIN)/python trainer.py --problem=translate_ende_multi30k \
	  --hparams_set=transformer_relative_multi30k \
	  --hparams=activation_dtype=bfloat16,average_epochs=0 \
	  --train_steps=500 --random_seed=4 --noxla_compile --output_dir=runs/headline
	$(BIN)/python benchmarks/headline.py runs/headline

golden: $(STAMP)
	$(BIN)/python -m tests.hparam_sets_test

$(DOCS)/.installed: constraints.txt
	test -x $(DOCS)/bin/python || $(PYTHON) -m venv $(DOCS)
	$(DOCS)/bin/python -m pip install --quiet --disable-pip-version-check \
	  -c constraints.txt mkdocs-material 'mkdocstrings[python]' ruff
	@touch $@

docs: $(DOCS)/.installed
	NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs build --strict

clean:
	rm -rf $(DEMO) build dist *.egg-info .pytest_cache .ruff_cache
	rm -rf .hypothesis
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +
