# make            what there is to make
# make dumbbell   set everything up and run the main job
# make test       set everything up and pass the tests

PYTHON := .venv/bin/python
CODE := topologies lab controller analysis experiments tests benchmarks

.PHONY: help setup test-setup dumbbell test lint unit system lab-debug test-stock test-host test-vagrant test-platforms bench calibrate stock-table articles clean
help:
	@sed -n 's/^# make/make/p' Makefile

setup:
	@lab/setup.sh

test-setup:
	@lab/setup.sh --tests

dumbbell: setup
	$(PYTHON) -m experiments.dumbbell $(ARGS)

# make lint       style and types
lint: test-setup
	$(PYTHON) -m ruff check $(CODE)
	$(PYTHON) -m ruff format --check $(CODE)
	$(PYTHON) -m mypy $(CODE)

# make unit       the fast tests
unit: test-setup
	$(PYTHON) -m pytest -n 2 -m "not system" --doctest-modules topologies lab analysis controller experiments tests

# make system     the tests that run the real thing in the lab kernel
system: test-setup
	$(PYTHON) -m pytest -m "system and not slow" tests

# make lab-debug  NDM-TCP in a lab kernel with memory and undefined-behaviour sanitizers (builds that kernel once, ten minutes)
lab-debug: test-setup
	$(PYTHON) -m pytest -m slow tests/kernel/test_debug_kernel.py

# make test-stock NDM-TCP, and whole runs against the lab kernel's, on the Debian kernels of this machine, in QEMU
test-stock: test-setup
	$(PYTHON) -m pytest -m slow -s tests/kernel/test_stock_kernel.py

# make test-host  runs on a host's own kernel: this machine's where it can, else a lab kernel plays it (half an hour)
test-host: test-setup
	tests/host/run.sh

# make test-vagrant   a real vagrant up of this checkout, on an emulated processor, and the main job in it (an hour; root)
test-vagrant: setup
	tests/vagrant/run.sh

# make test-platforms set-up, fast tests and main job on bare Debian 13 and Ubuntu 24.04 (half an hour; root)
test-platforms:
	tests/platforms.sh trixie noble

test: lint
	$(PYTHON) -m pytest --doctest-modules topologies lab analysis controller experiments tests

# make bench      speed of the main job, its phases, ns-3 on the same dumbbell, and of the analysis
bench: setup
	$(PYTHON) -m benchmarks.dumbbell
	$(PYTHON) -m benchmarks.analysis

# make calibrate  measure links against what was configured, and write docs/calibration.md (ten minutes)
calibrate: setup
	$(PYTHON) -m experiments.calibrate

# make stock-table run one dumbbell in the lab kernel and in a stock kernel (QEMU), and write docs/stock.md
stock-table: setup
	$(PYTHON) -m experiments.stock

# make articles   test what was published about NDM-TCP, and write docs/articles.md (an hour; goes on where it was interrupted)
articles: setup
	$(PYTHON) -m experiments.articles --report runs/articles/report.html --page docs/articles.md

# make clean      remove what this checkout made; the cache stays (lab/setup.sh --where)
clean:
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis kernel/ndm/build
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# make requirements   pin the newest allowed versions of what pyproject.toml asks for
requirements: setup
	.venv/bin/uv pip compile --quiet --upgrade pyproject.toml --group dev -o requirements.txt \
	  --python $(PYTHON) --custom-compile-command "make requirements"
