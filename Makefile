# make demo, make test, make bench and make lint do all their own set-up in .venv; a second run starts at once.
# Another Python:  make test PYTHON=python3.12
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
PIP := $(RUN) -m pip --disable-pip-version-check install --quiet -c constraints.txt

.PHONY: help demo test bench lint clean

help:
	@echo "make demo    build a small corpus, prepare, check, mirror and read it, and train on it"
	@echo "make test    all tests"
	@echo "make bench   the ratios of bench/, and the comparison with all peers: bench/RESULTS.md"
	@echo "make lint    ruff and pyright"
	@echo "make clean   remove .venv, .venv-peers and what demo made"

demo: $(VENV)/demo.stamp
	$(RUN) -m examples.demo

test: $(VENV)/test.stamp
	$(RUN) -m pytest -q

bench: $(VENV)/test.stamp
	@missed=0; for part in bench bench.packs bench.corpora bench.loader bench.frames bench.mixture bench.speech; do \
		echo "$$part"; $(RUN) -m $$part || missed=1; done; exit $$missed

lint: $(VENV)/lint.stamp
	$(RUN) -m ruff check .
	$(RUN) -m pyright --pythonpath $(RUN)

clean:
	rm -rf $(VENV) .venv-peers demo

$(RUN):
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if (3, 11) <= v[:2] <= (3, 13) else \
		"asdstore needs Python 3.11, 3.12 or 3.13; $(PYTHON) is %d.%d. Name another one: make PYTHON=python3.12" % v[:2])'
	$(PYTHON) -m venv $(VENV)

$(VENV)/demo.stamp: pyproject.toml constraints.txt | $(RUN)
	$(PIP) -e '.[media,jax]'
	@touch $@

# torch goes first and pinned: asked for as a range, pip may prefer a newer release with gigabytes of CUDA
$(VENV)/test.stamp: pyproject.toml constraints.txt | $(RUN)
	$(PIP) "$$(grep '^torch==' constraints.txt)"
	$(PIP) -e '.[test]'
	@touch $@

$(VENV)/lint.stamp: $(VENV)/test.stamp
	$(PIP) -e '.[dev]'
	@touch $@
