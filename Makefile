# make demo and make test need Python 3.11+ and nothing else; each makes the virtual environment it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: help flower demo peers-demo test peer-tests check quick coverage lint format docs pages imports structure bench bench-history bench-exact bench-bounds bench-shapes bench-tables bench-rounds bench-columns bench-streams bench-masks bench-engines bench-dask bench-asked bench-daal bench-peers bench-follow bench-page bench-rehearsal bench-gpu attack fuzz faults driver mutations trials clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV)/.report ## 20 nodes find the components of 1,797 handwritten digits; picture in out/
	$(BIN)/eigenmesh demo

peers-demo: $(VENV)/.peers ## five real peers with certificates; one is killed and restarted on the way
	$(BIN)/eigenmesh demo --peers 5

# Many tests wait for processes, so there are more workers than cores; those of a file share what it has launched.
test: $(VENV)/.dev ## all tests
	$(BIN)/python -m pytest -n 4 --dist loadfile --no-loadscope-reorder -q

peer-tests: $(VENV)/.dev .venv-scanpy/.made ## scikit-learn's own tests of PCA on ours, and scanpy's results beside ours
	$(BIN)/python -m pytest -q -n 0 tests/other_tools/peer_scikit_learn.py
	.venv-scanpy/bin/python -m pytest -q -c /dev/null --rootdir=. -p no:cacheprovider tests/other_tools/peer_scanpy.py
	.venv-scanpy/bin/python -m pytest -q -c /dev/null --rootdir=. -p no:cacheprovider -o pythonpath=tests \
	  tests/estimator/test_columns_of_frames.py -k AnnData

# mypy keeps one core busy for a while; the tests have the other, and then both.
check: $(VENV)/.dev ## lint, types and the quick tests
	@$(MAKE) --no-print-directory -j 2 lint quick

quick: $(VENV)/.dev
	$(BIN)/python -m pytest -n 2 --dist worksteal -q -m 'not slow'

coverage: $(VENV)/.dev ## all tests, and which lines of src they leave out; fewer than 95 % covered is an error
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -n 4 --dist loadfile --no-loadscope-reorder -q
	$(BIN)/coverage combine -q
	$(BIN)/coverage report

lint: $(VENV)/.dev ## ruff, and mypy --strict on src
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.dev ## let ruff put the code in order
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/.dev ## HTML pages in docs/_build, with the pictures that take seconds; warnings are errors
	$(BIN)/python tools/pictures.py
	rm -rf docs/api/classes
	$(BIN)/sphinx-build -W --keep-going -q -b html docs docs/_build/html
	$(BIN)/python tools/check_docs.py docs/_build/html

pages: $(VENV)/.dev ## run the code in README.md and docs, and put in what it prints
	$(BIN)/python tools/pages.py
	$(BIN)/python tools/settings_tables.py

imports: $(VENV)/.made ## who imports whom in src, and the picture of it for the docs; an arrow upwards is an error
	$(BIN)/python tools/import_graph.py

structure: $(VENV)/.dev ## files, lines, doors and chains of src, and the files on the path of a fit, beside the figures of last time
	$(BIN)/python tools/structure.py

# The newest commit of each of STEPS equal parts of HISTORY, all in one environment that asv makes.
HISTORY ?= HEAD~200..HEAD
STEPS ?= 10

bench-history: $(VENV)/.dev ## the core over the last commits, by asv; the curve goes to docs/images/history.svg
	$(PIP) --editable '.[bench]'
	$(BIN)/asv machine --yes --machine one >/dev/null
	$(BIN)/asv run --machine one --steps $(STEPS) $(HISTORY)
	$(BIN)/python benchmarks/history.py

bench: $(VENV)/.dev ## cost of an iteration against its floor, and the large cases
	$(BIN)/python benchmarks/core.py

bench-exact: $(VENV)/.dev ## rounds, bytes, time and memory of the exact solvers
	$(BIN)/python benchmarks/exact.py

bench-rounds: $(VENV)/.dev ## rounds from start to certificate on MNIST, CIFAR-10 and HapMap3
	$(BIN)/python benchmarks/rounds.py

bench-streams: $(VENV)/.dev ## streams: MNIST in 60 batches, alarms, and more samples than memory
	$(BIN)/python benchmarks/streams.py mnist
	$(BIN)/python benchmarks/streams.py drift
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/streams.py memory

bench-columns: $(VENV)/.dev ## columns split over sites: MNIST on 8, HapMap3 on 11, simulated and as peers
	$(BIN)/python benchmarks/columns.py

bench-masks: $(VENV)/.dev ## cost of masks: an average at one site, MNIST by digit, the same bits over engines
	$(BIN)/python benchmarks/masks.py

bench-bounds: $(VENV)/.dev ## products, words and rounds of fits beside the least that any method needs
	$(BIN)/python benchmarks/bounds.py

bench-shapes: $(VENV)/.dev ## time and memory of fits of many shapes against scikit-learn
	$(BIN)/python benchmarks/shapes.py

bench-tables: $(VENV)/.dev ## the whole command on text tables against pandas and scikit-learn
	$(BIN)/python benchmarks/tables.py

bench-engines: $(VENV)/.dev ## an iteration and an average over MPI against the bare exchange, 8 ranks
	$(BIN)/python benchmarks/engines.py

bench-dask: $(VENV)/.dev ## Dask against dask-ml, and data larger than the workers' memory
	$(BIN)/python benchmarks/dask_engine.py

bench-asked: $(VENV)/.dev ## the same fit on Dask, Ray and Spark, beside their own PCA
	$(BIN)/python benchmarks/asked.py

bench-daal: $(VENV)/.dev .venv-daal/.made ## correlation PCA on two MPI ranks against daal4py
	$(BIN)/python benchmarks/daal.py --daal .venv-daal/bin/python

bench-peers: $(VENV)/.dev ## a round of peers against bare mutual-TLS sockets, and with latency
	$(BIN)/python benchmarks/peers.py

bench-page: $(VENV)/.dev ## what events and the live page cost a run
	$(BIN)/python benchmarks/page.py

bench-follow: $(VENV)/.dev ## peers that stay: 100 batches, 20 kills, 50 bad files, one site joins and one leaves
	$(BIN)/python benchmarks/follow.py
	$(BIN)/python benchmarks/follow.py --keep --seed 1
	$(BIN)/python benchmarks/follow.py --batches 60 --kills 0 --repairs 50

bench-rehearsal: $(VENV)/.dev ## what eigenmesh site rehearse forecasts, against a real run with 20 ms a link
	$(BIN)/python benchmarks/rehearsal.py

bench-gpu: $(VENV)/.dev ## on a GPU: an iteration against the bare product, a fit against covariance and eigh
	$(BIN)/python benchmarks/gpu.py
	$(BIN)/python benchmarks/gpu_fit.py

attack: $(VENV)/.dev ## 20,000 random problems that are made to mislead the certificate
	$(BIN)/python benchmarks/attack.py --problems 20000

fuzz: $(VENV)/.dev ## a million random messages to the decoder of the wire
	$(BIN)/python benchmarks/fuzz_wire.py --inputs 1000000

faults: $(VENV)/.made ## 100,000 rehearsals of a run of sites with faults, on all cores
	$(BIN)/python tests/harness --seeds 0:100000 --workers 0

driver: $(VENV)/.dev ## the real TLS driver: 20,000 connections that close, are reset or stall at any byte
	$(BIN)/python benchmarks/driver.py --faults 20000

mutations: $(VENV)/.made ## take one safeguard of the sites' protocol away at a time: which seed notices
	$(BIN)/python tools/mutations.py --workers 0

trials: $(VENV)/.dev ## 200 runs of five real peers with faults: kills, pauses, clocks (apt install libfaketime), damaged files, relays, proxies (apt install tinyproxy)
	$(BIN)/python benchmarks/trials.py --trials 200 --workers 2

clean: ## remove what the targets made
	rm -rf $(VENV) .venv-daal .venv-flower .venv-scanpy .asv out docs/_build docs/gallery docs/api/classes .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(VENV)/.made:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "eigenmesh needs Python 3.11 or newer; say which with: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)
	touch $@

# daal4py asks for an older scikit-learn and for MPICH.
.venv-daal/.made:
	$(PYTHON) -m venv .venv-daal
	.venv-daal/bin/python -m pip install --quiet scikit-learn-intelex daal4py mpich packaging 'scikit-learn==1.5.2'
	touch $@

# Flower asks for older versions of typer and rich.
flower: .venv-flower/.made ## an environment with Flower, for its tests

.venv-flower/.made: pyproject.toml
	$(PYTHON) -m venv .venv-flower
	.venv-flower/bin/python -m pip install --quiet --editable '.[flower]'
	touch $@

# AnnData asks for pandas 2.
.venv-scanpy/.made: pyproject.toml
	$(PYTHON) -m venv .venv-scanpy
	.venv-scanpy/bin/python -m pip install --quiet --disable-pip-version-check scanpy pytest polars --editable '.[hdf5,parquet]'
	touch $@

$(VENV)/.report: $(VENV)/.made pyproject.toml
	$(PIP) --editable '.[report]'
	touch $@

$(VENV)/.peers: $(VENV)/.made pyproject.toml
	$(PIP) --editable '.[peers]'
	touch $@

$(VENV)/.dev: $(VENV)/.made pyproject.toml
	$(PIP) --editable '.[dev]'
	touch $@ $(VENV)/.report $(VENV)/.peers
