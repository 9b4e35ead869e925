# The README's commands. Each says what it does and how long it takes.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help setup build console demo test test-rust skipped test-console test-python test-images images packages reproducible lint lint-rust lint-others format bench fuzz fuzz-build corpus mutants interop explore site lock clean

PYTHON := .venv/bin/python
# Containers often set it. Without compiled files, each of the many processes that the tests start
# compiles its imports again: 15 s of processor time for pytest's processes alone.
unexport PYTHONDONTWRITEBYTECODE
TARGET := $(or $(CARGO_TARGET_DIR),target)
SKIPPED := $(abspath $(TARGET))/skipped.txt
# About how long `make explore` runs its cases.
export EXPLORE_SECONDS ?= 60
export UNDERPASS_BIN ?= $(abspath $(TARGET))/release

# Arguments of `make bench`: tests/benchmarks/README.md.
ARGS ?= run
# How many test beds run at once: their tests wait most of the time. Long modules start early
# (tests/order.py), whatever the number of their tests.
TEST_BEDS ?= 5
ON_TEST_BEDS := testbed or node or swarm or console
# The folders that have them: each of pytest's processes imports all modules that it looks through.
WITH_TEST_BEDS := tests/console tests/e2e tests/interop tests/packaging tests/testbed
# How long each fuzz target runs, s.
FUZZ_SECONDS ?= 5

# $(call timed,what,command): runs the command and says how long it took. No comma in `what`.
timed = @printf '== %s\n' "$(1)"; start=$$SECONDS; $(2) && printf '== done in %d s: %s\n' $$((SECONDS - start)) "$(1)"

# $(call some,how many at once,which): runs pytest; PYTEST_ADDOPTS may leave no tests to run (5).
# Tests that wait for programs share the machine with others: failed tests (1) run once more, alone,
# and are reported as unsteady if they then pass.
some = { $(PYTHON) -m pytest --cache-clear $(1) $(2) || { code=$$?; [ $$code -eq 5 ] || { [ $$code -eq 1 ] && \
    echo '== what failed, once more and alone' && $(PYTHON) -m pytest --last-failed -x -v $(2) && \
    echo '== UNSTEADY: the tests just named failed beside others, and passed alone'; }; }; }

help:
	@echo "make demo    the whole system on an emulated satellite hop, until Ctrl-C (root);"
	@echo "             TRACES=http://127.0.0.1:4318 has traces of it sent to a collector"
	@echo "make test    every test; those that make network namespaces need root"
	@echo "make lint    formatting, clippy, ruff, mypy"
	@echo "make bench   the benchmarks, by themselves (root; ARGS=campaign: all of them, eleven hours, with report;"
	@echo "             ARGS='compare HEAD^': whether the way of the data is as fast as a commit ago, two hours)"
	@echo "make images  the container images of gateway, control service, PostgreSQL, firewall, NAT and DNS (docker/)"
	@echo "make packages  .deb files, wheel and sdist, with what they are made of, into $(TARGET)/packages"
	@echo "make reproducible   builds them twice from nothing, in two folders, and compares the bytes"
	@echo "make test-images   builds them and the packages, runs the composed system, installs the packages (minutes; root)"
	@echo "make fuzz    each fuzz target for FUZZ_SECONDS=$(FUZZ_SECONDS)"
	@echo "make corpus  keeps what fuzzing has found, in tests/fuzz/kept"
	@echo "make mutants changes the code, a piece at a time, to see whether a test notices (many hours, in portions:"
	@echo "             MINUTES=60; ANEW=1 begins again); SINCE=REVISION: only what has changed since"
	@echo "make interop installs the other implementations that Cargo has, and runs the tests with them (root)"
	@echo "make explore the simulations and laws over seeds of the day, EXPLORE_SECONDS=$(EXPLORE_SECONDS) or so"
	@echo "make console the operator's console, into the control service (part of build)"
	@echo "make site    the documentation as a site, into $(TARGET)/site"
	@echo "make setup   only install what is missing"
	@echo "make lock    renew requirements.lock from pyproject.toml"

setup:
	@.ci/setup

# Builds the console into the control service's package, again only when its sources have changed.
CONSOLE := control-api/underpass_control/console/index.html
CONSOLE_SOURCES := $(shell find console -name node_modules -prune -o -type f -print)

console: $(CONSOLE)

$(CONSOLE): $(CONSOLE_SOURCES) | setup
	$(call timed,building the console,console/npm ci && console/npm run build)

PROGRAMS := underpass satlink swarm

build: setup console
	$(call timed,building underpass and the programs of its tests (first time: some minutes),\
	    cargo build --locked --release $(addprefix -p ,$(PROGRAMS)))

demo: build
	@PYTHONPATH=control-api $(PYTHON) -m tests.testbed.demo

test: test-rust test-console test-python skipped

# The documentation has no examples to run, and clippy compiles the programs in examples/. Without
# both, rustdoc need not run over each library, and no program is linked that no test starts.
test-rust: setup
	$(call timed,Rust tests (first time: some minutes to compile),rm -f $(SKIPPED) && \
	    UNDERPASS_SKIPPED=$(SKIPPED) cargo test --locked --workspace --lib --bins --tests)
	@$(MAKE) --no-print-directory skipped

# Shows which of the last Rust tests could not run here, and why; pytest reports its own.
skipped:
	@if [ -s $(SKIPPED) ]; then printf '== Rust tests, or parts of them, that could not run here:\n'; sort -u $(SKIPPED); \
	    else echo '== no Rust test was skipped'; fi

test-console: console
	$(call timed,tests of the console without a browser,console/npm test)

test-python: build
	@# One more than processors: now and then a test waits for a database or for time.
	$(call timed,Python tests,$(call some,-n $$(($$(nproc) + 1)) --dist worksteal,-m "not ($(ON_TEST_BEDS))"))
	$(call timed,tests on test beds,$(call some,-n $(TEST_BEDS) --dist loadfile --no-loadscope-reorder,-m "$(ON_TEST_BEDS)" $(WITH_TEST_BEDS)))

# Not part of `test`: building the images takes minutes.
test-images: build
	@.ci/setup --images
	$(call timed,building images and packages and running them,UNDERPASS_TEST_IMAGES=1 $(PYTHON) -m pytest tests/images)

# Not part of `test`: it fetches and builds foreign programs (minutes, once). Hardy's crates need
# Rust 1.95: with an older one its tests are skipped.
interop: build
	$(call timed,installing dtn7 0.21.0 into .tools,cargo install --quiet dtn7 --version 0.21.0 --locked --root .tools)
	-$(call timed,installing a node of Hardy into .tools,cargo install --quiet --path tests/interop/hardy_node --locked --root .tools)
	$(call timed,tests with other implementations,$(PYTHON) -m pytest tests/interop)

images: build
	@.ci/setup --images
	$(call timed,building the images,PYTHON=$(PYTHON) docker/build)

packages: console
	$(call timed,building the program of the packages (first time: some minutes),packaging/program)
	$(call timed,building the packages,\
	    PYTHON=$(PYTHON) UNDERPASS_BIN=$(abspath $(TARGET))/packaged/release packaging/build)

# Not part of `test`: it compiles everything twice.
reproducible: setup
	$(call timed,building the packages in two folders and comparing them,packaging/reproducible)

lint: lint-rust lint-others

lint-rust: setup
	$(call timed,cargo fmt,cargo fmt --all --check)
	$(call timed,clippy,cargo clippy --locked --workspace --all-targets -- -D warnings)

lint-others: setup console
	$(call timed,ruff,$(PYTHON) -m ruff format --check . && $(PYTHON) -m ruff check .)
	$(call timed,mypy,$(PYTHON) -m mypy)
	$(call timed,tsc,console/npm run check)

format: setup
	cargo fmt --all
	$(PYTHON) -m ruff format .
	$(PYTHON) -m ruff check --fix .

bench: PROGRAMS += chain shards
bench: build
	@.ci/setup --bench
	@PYTHONPATH=control-api $(PYTHON) -m tests.benchmarks $(ARGS)

# Stable Rust cannot link the sanitizers; coverage guidance works without them.
CARGO_FUZZ := ../../.tools/bin/cargo-fuzz fuzz
FUZZ_BUILD := --fuzz-dir . --sanitizer none

fuzz-build: setup
	@.ci/setup --fuzz
	$(call timed,building the fuzz targets,cd tests/fuzz && $(CARGO_FUZZ) build $(FUZZ_BUILD))

# Each target has one thread, so one runs per core; each is reported at its end.
fuzz: fuzz-build
	@$(PYTHON) tests/fuzz/inputs.py tests/fuzz/corpus
	$(call timed,fuzzing each target for $(FUZZ_SECONDS) s,\
	    cd tests/fuzz && $(CARGO_FUZZ) list --fuzz-dir . | xargs -n 1 -P "$$(nproc)" bash -c '\
	        told=$$($(CARGO_FUZZ) run $(FUZZ_BUILD) "$$0" -- -max_total_time=$(FUZZ_SECONDS) \
	            -rss_limit_mb=512 -verbosity=0 -print_final_stats=1 2>&1); code=$$?; \
	        printf -- "-- %s\n%s\n" "$$0" "$$told"; ((code == 0))')

# After a long `make fuzz`: stores the fewest inputs with the corpora's coverage in the repository.
corpus: setup
	@.ci/setup --fuzz
	$(call timed,keeping the corpora,cd tests/fuzz && \
	    for target in $$($(CARGO_FUZZ) list --fuzz-dir .); do \
	        $(CARGO_FUZZ) cmin $(FUZZ_BUILD) "$$target" -- -use_counters=0 -verbosity=0 || exit 1; \
	    done && ../../$(PYTHON) inputs.py corpus --keep)

# Not part of `test`: many hours, in portions.
CARGO_MUTANTS_VERSION := 27.0.0
mutants: setup
	$(call timed,installing cargo-mutants into .tools (first time: a minute),\
	    cargo install --quiet --locked --root .tools --version $(CARGO_MUTANTS_VERSION) cargo-mutants)
ifeq ($(SINCE)$(MUTANTS),)
	$(call timed,changing the code and running its tests,.ci/mutants $(if $(ANEW),--anew))
else
	@mkdir -p $(TARGET)
	$(call timed,changing the code and running its tests,\
	    $(if $(SINCE),git diff $(SINCE) -- '*.rs' >$(TARGET)/changes.diff && )\
	    .tools/bin/cargo-mutants mutants --output $(TARGET) \
	        $(if $(SINCE),--no-config --in-diff $(TARGET)/changes.diff) $(MUTANTS))
endif

explore: setup
	@.ci/explore

site: setup
	$(call timed,building the site,$(PYTHON) -m mkdocs build --quiet --site-dir $(abspath $(TARGET))/site)

lock:
	@python3 -m venv .tools/lock && .tools/lock/bin/pip --quiet install pip-tools
	.tools/lock/bin/pip-compile --quiet --upgrade --extra dev --generate-hashes --strip-extras --allow-unsafe \
	    --no-emit-find-links --no-emit-index-url --no-emit-trusted-host -o requirements.lock pyproject.toml

clean:
	cargo clean
	rm -rf .venv .tools
