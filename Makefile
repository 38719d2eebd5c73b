# make demo    what the suite is for, in ten seconds: no training, no GPU, no cluster
# make bench   train the benchmarks on this machine and show how fast it is
#              (make bench BENCHMARKS=cosmoflow SIZE=smoke: only that one, in seconds)
# make test    the suite's own tests (no cluster needed; WORKERS=2 runs fewer of them at a time)
# make quick   those of them that are quick: no interpreter is started and nothing trains
# make test-nightly    those that take too long for every change
# Each sets up everything it needs in .venv on first use and reuses it afterwards.

PYTHON ?= python3
VENV   ?= .venv
SIZE   ?= quick
DATA   ?= data
BENCHMARKS ?= $(filter-out _%,$(basename $(notdir $(wildcard models/benchmarks/*.py))))
# more arguments for pytest, as in: make bench ARGS='--mode blocking -k tuned'
ARGS   ?=
# SYSTEM_TORCH=1 uses the torch that $(PYTHON) already has (a site's module, a ROCm or vendor build)
SYSTEM_TORCH ?=

EXTRA := $(if $(SYSTEM_TORCH),job,local)
RUN   := $(VENV)/bin/python
PIP   := $(RUN) -m pip install --quiet --disable-pip-version-check --constraint environments/constraints.txt

# tests wait as well as compute, so there are more workers than cores
WORKERS ?= 4

# A test that takes longer (with its fixtures) is stopped and fails; @pytest.mark.timeout(SECONDS) gives it more time.
# It ends tests that hang: a machine that needs more for one that does not hang has make test LIMIT_S=900.
LIMIT_S ?= 300
HANGS := --timeout=$(LIMIT_S) --timeout-method=signal

# workers and the interpreters that they start share what is compiled once
unexport PYTHONDONTWRITEBYTECODE

# the slowest tests are named at the end, and build/ keeps how long each one took
TESTS = $(RUN) -m pytest tests -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(HANGS) --durations=25 \
  --durations-min=1 --junitxml=build/$@.xml

.PHONY: demo bench test quick test-nightly lint check-host check-torch data clean help
help:
	@sed -n 's/^# \(make .*\)/\1/p' Makefile

demo: $(VENV)/demo.stamp
	@$(RUN) -m tests.reporting.demo $(ARGS)

bench: check-host $(VENV)/bench.stamp data
	@$(RUN) -m models.estimate $(BENCHMARKS) --size $(SIZE)
	$(RUN) -m pytest $(BENCHMARKS:%=test_%.py) -m local --size $(SIZE) --benchmark-autosave --junitxml=runs/junit.xml $(ARGS)

data: $(VENV)/bench.stamp
	@for benchmark in $(BENCHMARKS); do \
	  $(RUN) -m models data $$benchmark --size $(SIZE) --data-dir $(DATA)/$$benchmark-$(SIZE) || exit; done

test: $(VENV)/test.stamp
	$(TESTS) -m "not nightly" $(ARGS)

quick: $(VENV)/test.stamp
	$(TESTS) -m "not slow" $(ARGS)

test-nightly: $(VENV)/test.stamp
	$(TESTS) -m nightly $(ARGS)

lint: $(VENV)/test.stamp
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy
	$(VENV)/bin/lint-imports
	$(VENV)/bin/hadolint environments/*/*Dockerfile

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "make: $(PYTHON) is $$($(PYTHON) --version 2>/dev/null || echo not here), and Python 3.11 or newer is needed:"; \
	  echo "    make $(MAKECMDGOALS) PYTHON=python3.12"; exit 2; }
	$(PYTHON) -m venv $(if $(SYSTEM_TORCH),--system-site-packages) $(VENV) || { rm -f $@; exit 2; }

$(VENV)/demo.stamp: setup.cfg environments/constraints.txt | $(VENV)/bin/python
	@echo "installing the suite into $(VENV), without torch (once; half a minute)"
	$(PIP) --editable .
	@touch $@

# `make demo` may have made the environment, which then does not see the system's torch.
$(VENV)/bench.stamp: setup.cfg environments/constraints.txt | check-torch $(VENV)/bin/python
	@echo "installing what the benchmarks need into $(VENV) (once; a few minutes)"
	$(if $(SYSTEM_TORCH),$(PYTHON) -m venv --system-site-packages $(VENV))
	$(PIP) --editable '.[$(EXTRA)]'
	@touch $@

$(VENV)/test.stamp: $(VENV)/bench.stamp
	@echo "installing what the tests need into $(VENV) (once)"
	$(PIP) --editable '.[$(EXTRA),dev]'
	@touch $@

# The torch on PyPI is built for CUDA and CPUs.
check-torch:
	@if [ -e /dev/kfd ] && [ -z "$(SYSTEM_TORCH)" ] && [ ! -e $(VENV)/bench.stamp ]; then \
	  echo "make: this machine has AMD GPUs (/dev/kfd), and the torch on PyPI cannot use them. Load or install a ROCm build of torch, then:"; \
	  echo "    make $(MAKECMDGOALS) SYSTEM_TORCH=1"; exit 2; fi

# what stands behind `make bench` on the command line, with a blank before it
TYPED := $(if $(MAKEOVERRIDES), $(strip $(MAKEOVERRIDES)))

# A login node is shared by everybody: training does not belong there.
check-host:
	@if [ -z "$(FORCE)$$SLURM_JOB_ID$$PBS_JOBID" ]; then \
	  if command -v sbatch >/dev/null 2>&1; then \
	    echo "make: sbatch is here and this is no allocation, so this looks like a login node; nothing was run. On a compute node:"; \
	    echo "    srun --nodes=1 --ntasks=1 --exclusive --time=00:30:00 --pty make bench$(TYPED)"; \
	    echo "(make bench$(TYPED) FORCE=1 runs it here all the same)"; exit 2; \
	  elif command -v qsub >/dev/null 2>&1; then \
	    echo "make: qsub is here and this is no allocation, so this looks like a login node; nothing was run. On a compute node:"; \
	    echo "    qsub -I -l select=1 -l walltime=00:30:00     and there: make bench$(TYPED)"; \
	    echo "(make bench$(TYPED) FORCE=1 runs it here all the same)"; exit 2; \
	  fi; fi

clean:
	rm -rf $(VENV) build *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
