# `make` alone lists the targets. CI runs the same ones as a person does.
SHELL := /bin/sh
.DEFAULT_GOAL := help
VENV := .venv
BIN := $(VENV)/bin
SANDBOX := $(BIN)/sandbox
# Without bytecode files every process compiles all modules and tests again: half of `test-unit`.
unexport PYTHONDONTWRITEBYTECODE
# Files of tests run side by side, one process a core; a file's tests stay together.
PYTEST := $(BIN)/python -m pytest -n auto --dist loadfile
SHELL_FILES = $$(git ls-files '*.sh' .ci)

# IMAGES takes globs of defined names, all, image references, and files with one of these a line.
# What to run: make conformance PROFILE=full HARNESSES='codex' IMAGES='alpine-*' SCENARIOS='*' JOBS=2
PROFILE ?= quick
HARNESSES ?=
IMAGES ?=
SCENARIOS ?=
JOBS ?=
OUTPUT ?=
ARGS ?=
SELECTION = $(foreach g,$(HARNESSES),--harness '$(g)') $(foreach g,$(IMAGES),--image '$(g)') \
	$(foreach g,$(SCENARIOS),--scenario '$(g)')

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  %-14s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

.PHONY: venv
venv: ## make the project's virtual environment
	@sh installers/venv.sh $(VENV)

.PHONY: conformance
conformance: venv ## engine, images, runtimes, the profile's cells, table and reports
	@$(SANDBOX) conformance --ensure-engine --profile '$(PROFILE)' $(SELECTION) \
		$(if $(JOBS),--jobs '$(JOBS)') $(if $(OUTPUT),--output '$(OUTPUT)') $(ARGS)

.PHONY: test
test: venv ## the same set-up, then the whole test suite
	@$(SANDBOX) prepare --ensure-engine
	@SANDBOX_REQUIRE_ENGINE=1 $(PYTEST) $(ARGS)

.PHONY: test-unit
test-unit: venv ## the tests that need no engine (seconds)
	@temp=$$(mktemp -d -p /dev/shm 2>/dev/null || mktemp -d); trap 'rm -rf "$$temp"' EXIT; \
	TMPDIR="$$temp" PYTEST_DEBUG_TEMPROOT="$$temp" $(PYTEST) --dist worksteal tests/unit tests/broken $(ARGS)

# KILLS='200' KILL_SEED='7': more of them, and the moments of an earlier time again
.PHONY: kill-runner
kill-runner: venv ## kill -9 of a run at 50 random moments: nothing left, nothing else touched
	@SANDBOX_REQUIRE_ENGINE=1 $(BIN)/python -m pytest tests/conformance/test_kill_runner.py \
		--kills $(or $(KILLS),50) $(if $(KILL_SEED),--kill-seed $(KILL_SEED)) $(ARGS)

.PHONY: faults
faults: venv ## every fault and hard condition: how it ends, and the longest time until it has ended
	@SANDBOX_REQUIRE_ENGINE=1 $(BIN)/python -m pytest tests/agents/test_faults.py \
		tests/conformance/test_conditions.py tests/conformance/test_kill.py --slow-faults $(ARGS)

.PHONY: at-once
at-once: venv ## the same cells one by one and 16 at once (HARNESSES, IMAGES, SCENARIOS): same verdicts
	@$(SANDBOX) prepare --ensure-engine
	@SANDBOX_REQUIRE_ENGINE=1 $(BIN)/python -m pytest tests/conformance/test_at_once_real.py \
		--at-once "--profile $(PROFILE) $(SELECTION)" $(ARGS)

.PHONY: check
check: venv ## ruff, mypy --strict, import-linter, shellcheck (dash and busybox), shfmt
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/shellcheck --shell=dash $(SHELL_FILES)
	@$(BIN)/shellcheck --shell=busybox $(SHELL_FILES)
	@$(BIN)/shfmt -d -i 4 -ln posix $(SHELL_FILES)

.PHONY: bench
bench: venv ## sandboxes, installs, cells, memory and starts beside the docker CLI and others
	@$(SANDBOX) bench --ensure-engine $(ARGS)

.PHONY: bench-scale
bench-scale: venv ## plan, shard, judge, merge, compare and report 25,000, 50,000 and 100,000 made-up cells
	@$(BIN)/python -m tests.scale.bench $(ARGS)

.PHONY: images
images: venv ## build and load the task images (IMAGES=all: the whole matrix)
	@$(SANDBOX) images build --ensure-engine $(foreach g,$(IMAGES),'$(g)')

.PHONY: runtimes
runtimes: venv ## fetch, verify and bundle the pinned runtimes
	@$(SANDBOX) runtimes fetch

.PHONY: pins
pins: venv ## list what is pinned, verify the lock and every cached byte of it, offline
	@$(SANDBOX) pins list
	@$(SANDBOX) pins verify

.PHONY: doctor
doctor: venv ## what this machine has and lacks, with cures
	@$(SANDBOX) doctor

.PHONY: sweep
sweep: venv ## remove containers, networks and volumes that dead runs left
	@$(SANDBOX) sweep

.PHONY: lock-python
lock-python: venv ## write installers/requirements.lock from pyproject.toml
	@$(BIN)/python -m pip --quiet install uv
	@{ head -n 2 installers/requirements.lock; \
	   $(BIN)/uv pip compile --quiet --universal --generate-hashes --extra dev --extra dask --python-version 3.11 \
	   --no-header --no-annotate pyproject.toml; } > installers/requirements.lock.new
	@mv installers/requirements.lock.new installers/requirements.lock

.PHONY: clean
clean: ## remove the virtual environment, results and tool caches (the shared cache stays)
	@rm -rf $(VENV) $(VENV).lock results build dist ./*.egg-info .mypy_cache .ruff_cache \
		.pytest_cache .hypothesis .import_linter_cache
