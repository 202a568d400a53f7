# libreconstruct. Two commands do everything on a fresh Debian or Ubuntu machine:
#   make demo                  reconstruct a sample capture (or your own: make demo VIDEO=my.mp4)
#   make test                  run every test of every face
# Both install what is missing (as root or through sudo), say what they do, and need no network the second time.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

export PATH := $(HOME)/.cargo/bin:$(PATH)
VIDEO ?=
OUT ?= demo
RUN_FLAGS ?=
MINUTES ?=
FUZZ_TARGETS ?=
PREFIX ?= /usr/local
DESTDIR ?=
RECONSTRUCT := target/release/reconstruct
VENV := .venv
# Two files of tests at a time: most of their time they wait, for servers, browsers and the disk. They are begun in the order of the
# command line.
PYTEST := $(VENV)/bin/python -m pytest -q --numprocesses 2 --dist loadfile --no-loadscope-reorder
# $(call files_of,FOLDER,NAMES): the files of tests of a folder, the long ones that are named first: the last of them would keep one
# process busy and leave the other idle.
files_of = $(patsubst %,$(1)/test_%.py,$(2)) $(filter-out $(patsubst %,$(1)/test_%.py,$(2)),$(sort $(wildcard $(1)/test_*.py)))
# Those of the server wait most: of two cores they keep one busy when two files are worked on, and both when four are.
PYTEST_SERVER := $(PYTEST) --numprocesses 4
# All tests share one build, in which they can make the disk fail and kill the service where something becomes durable. What stands
# around the core waits for it and for others, and compiles in half of the time if it is optimised less.
TEST_BUILD := --locked --release --workspace --exclude libreconstruct-python --features libreconstruct-server/failpoints \
	--config 'profile.release.package.libreconstruct-server.opt-level=1' --config 'profile.release.package.libreconstruct-ffi.opt-level=1'
# Of that, what tests are made of; examples are looked at by `make lint`.
TESTS := --tests
# The Python package, into the environment of the tests.
BUILD_PYTHON_PACKAGE := VIRTUAL_ENV=$(abspath $(VENV)) $(VENV)/bin/maturin develop --locked --release --features failpoints --quiet
# Of a core without its features, what has other code without one of them, and what stands beside that. It runs for seconds: not
# optimised, it is there sooner. With workspace-hack it takes the dependencies that the others have built.
BARE_BUILD := --config 'profile.release.package.libreconstruct.opt-level=0' --config 'profile.release.package.libreconstruct.codegen-units=16' --release -p libreconstruct -p workspace-hack --no-default-features --features workspace-hack/failpoints
BARE_TESTS := camera:: fiducial:: masks:: pipeline:: raster::device splats::io splats::ply splats::transform video::probe
# Of the tests over HTTP, those that are run on PostgreSQL too (`make test-many-machines` runs all that can be).
POSTGRES_TESTS := isolation.py rules_job.py rules_submit.py specification.py web.py
# The object stores on which `make test-many-machines` runs them.
TEST_STORES := s3 gs az
# Tests in Rust compare with Python tools that the environment holds.
test-rust: export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
# Many of them wait, and stand together: with two threads both would. Where there are more processors there are more threads anyhow.
ifeq ($(shell [ "$$(nproc)" -lt 4 ] && echo few),few)
test-rust: export RUST_TEST_THREADS ?= 4
endif
# gsply compiles itself with numba: 6 seconds for what takes a tenth of one here.
export NUMBA_DISABLE_JIT := 1
# Where each face notes what it skips, a file a face.
SKIPPED := $(CURDIR)/target/skipped
test-rust test-python test-c test-rest test-many-machines: export LIBRECONSTRUCT_SKIPS = $(SKIPPED)/$@
NOTE_SKIPPED = mkdir -p $(SKIPPED) && : >$(SKIPPED)/$@

.PHONY: help build mask-model demo install interop test test-build test-rust test-python test-c test-rest test-many-machines test-arm64 miri fuzz campaign campaign-many power-loss lint format clean

help: ## Show this list
	@grep -hE '^[a-z0-9-]+:.*?## ' $(MAKEFILE_LIST) | awk -F':.*?## ' '{printf "  make %-12s %s\n", $$1, $$2}'

build: ## Build the reconstruct command and the libraries
	@scripts/install-dependencies.sh build
	@echo "Building (release)"
	cargo build --locked --release -p libreconstruct-server -p libreconstruct-ffi
	-@scripts/install-mask-model.sh

mask-model: ## Install the weights that background removal needs, beside the program
	@scripts/install-dependencies.sh build
	@scripts/install-mask-model.sh

demo: ## Reconstruct a sample capture, or VIDEO=my.mp4, into OUT=demo
	@scripts/install-dependencies.sh build
	@echo "Building (release; the first time takes some minutes)"
	@cargo build --locked --release -p libreconstruct-server -p libreconstruct-tests
	-@scripts/install-mask-model.sh
	@VIDEO="$(VIDEO)" OUT="$(OUT)" RUN_FLAGS="$(RUN_FLAGS)" scripts/demo.sh

install: ## Install the C and C++ library into PREFIX=/usr/local (and DESTDIR)
	@scripts/install-dependencies.sh build
	cargo build --locked --release -p libreconstruct-ffi
	PREFIX="$(PREFIX)" DESTDIR="$(DESTDIR)" scripts/install-library.sh
	-@scripts/install-mask-model.sh "$(DESTDIR)$(PREFIX)/share/libreconstruct"

# Each face notes what it skips. With LIBRECONSTRUCT_REQUIRE=interop,browser,gpu,captures,mask-model,encoders,postgres,stores,sandbox, or
# some of these,
# tests that lack such a thing fail instead.
test: test-rust test-python test-c test-rest ## Run all tests of every face, and list what was skipped
	@scripts/list-skipped.sh $(addprefix $(SKIPPED)/,$^)

test-rust: $(VENV)/.installed interop
	@scripts/install-dependencies.sh test
	@scripts/install-mask-model.sh
	@$(NOTE_SKIPPED)
	@echo "Rust: unit tests, documentation examples, end-to-end tests"
	cargo test $(TEST_BUILD) $(TESTS) --no-run --quiet
	PYTHONPATH=tests $(VENV)/bin/python -m stores cargo test $(TEST_BUILD) $(TESTS) | tee $(SKIPPED)/test-rust.log
	@# The examples of the C library are C: tests/c_library has them.
	cargo test $(TEST_BUILD) --exclude libreconstruct-ffi --doc | tee -a $(SKIPPED)/test-rust.log
	@echo "Rust: what is left of the core without its features"
	cargo test --locked $(BARE_BUILD) --lib -- $(BARE_TESTS)
	cargo test --locked $(BARE_BUILD) --features libreconstruct/service --lib -- is_refused_with_the_feature
	@sed -nE 's/^test (.*) \.\.\. ignored(, (.*))?$$/\1: \3/p' $(SKIPPED)/test-rust.log >>$(SKIPPED)/test-rust

# What the tests of the other faces start or load: the server, the generator of captures, the C library.
test-build: $(VENV)/.installed
	@scripts/install-dependencies.sh test
	@scripts/install-mask-model.sh
	cargo test $(TEST_BUILD) $(TESTS) --no-run --quiet
	cargo build $(TEST_BUILD) --lib --quiet

test-python: test-build interop ## Build the Python package, check its types, run its tests and those of the behaviour of all faces
	@$(NOTE_SKIPPED)
	@echo "Python: build the package; types, against the code and against the compiled module; its tests"
	@# Each keeps one processor busy: side by side.
	{ $(VENV)/bin/basedpyright --level error && $(VENV)/bin/mypy; } & types=$$!; \
	$(BUILD_PYTHON_PACKAGE); \
	wait $$types
	$(VENV)/bin/stubtest libreconstruct._native
	$(PYTEST) python/tests/test_notebooks.py tests/behaviour $(filter-out %/test_notebooks.py,$(call files_of,python/tests,engine))

test-c: test-build interop ## Build programs against the C library and run them under sanitizers
	@$(NOTE_SKIPPED)
	@echo "C and C++: build programs against the library and run them under sanitizers"
	$(PYTEST) --dist worksteal $(call files_of,tests/c_library,programs)

# A release runs more: CRASH_KILLS=200 SCHEMATHESIS_EXAMPLES=250 FAILPOINT_NAMES=all LIBRECONSTRUCT_TEST_LARGE_UPLOAD_MIB=5120.
test-rest: test-build interop ## Drive the server over HTTP, as clients do
	@$(NOTE_SKIPPED)
	@echo "REST: drive the server as clients do"
	@# With a few faults of the machine and power cuts, which take longest and so come first.
	$(PYTEST_SERVER) tests/campaign tests/power_loss tests/campaign_many $(call files_of,tests/rest,web_upload_browser takeover webhooks cloud_storage options hostile_media web_browser)
	@echo "REST: the same on PostgreSQL, the part that asks most of the rows"
	LIBRECONSTRUCT_TEST_POSTGRES=1 $(PYTEST_SERVER) $(addprefix tests/rest/test_,$(POSTGRES_TESTS))

test-many-machines: test-build interop ## Drive servers on a PostgreSQL and object stores of the tests' own, with all tests of the server and those of the behaviour of all faces on PostgreSQL
	@$(NOTE_SKIPPED)
	PYTHONPATH=tests $(VENV)/bin/python -m stores cargo test $(TEST_BUILD) --lib storage::
	PYTHONPATH=tests $(VENV)/bin/python -m stores --only az --identity cargo test $(TEST_BUILD) --lib storage::object
	$(BUILD_PYTHON_PACKAGE)
	LIBRECONSTRUCT_TEST_POSTGRES=1 $(VENV)/bin/python -m pytest -q tests/behaviour
	LIBRECONSTRUCT_TEST_POSTGRES=1 $(VENV)/bin/python -m pytest -q tests/rest tests/campaign_many
	for store in $(TEST_STORES); do \
		LIBRECONSTRUCT_TEST_SERVERS=2 LIBRECONSTRUCT_TEST_POSTGRES=1 LIBRECONSTRUCT_TEST_STORAGE=$$store $(VENV)/bin/python -m pytest -q tests/rest; \
	done

# NAMES=... are parts of the names of tests, instead of those that the script has.
test-arm64: ## Run the core's tests of its instructions for aarch64, under an emulator
	@scripts/test-arm64.sh $(NAMES)

# No part of `make test`: it needs the nightly compiler.
miri: ## Run tests of unsafe code under Miri, which looks at every access to memory
	@scripts/miri.sh

campaign: test-build ## Let faults of the machine come and go over a working server for MINUTES=10, from SEED on
	cd tests && ../$(VENV)/bin/python -m campaign --minutes $(or $(MINUTES),10) $(if $(SEED),--seed $(SEED))

campaign-many: test-build ## The same over many machines that share a PostgreSQL and a storage (STORAGE=folder or s3): MINUTES=10, or until ROUNDS= are played
	cd tests && CAMPAIGN_MANY_STORAGE=$(or $(STORAGE),folder) ../$(VENV)/bin/python -m campaign_many --minutes $(if $(ROUNDS),100000 --all-rounds $(ROUNDS),$(or $(MINUTES),10)) $(if $(SEED),--seed $(SEED))

power-loss: test-build ## Cut the power of a working server at CUTS=200 moments, chosen by SEED=1
	cd tests && ../$(VENV)/bin/python -m power_loss --cuts $(or $(CUTS),200) --seed $(or $(SEED),1)

# Programs of others that read and write our files. Tests that lack one are skipped, and listed.
interop: $(VENV)/.interop tests/interop/node_modules/.package-lock.json

$(VENV)/.interop: tests/interop/requirements.lock $(VENV)/.installed
	@echo "Other programs in Python: what $< lists"
	@if scripts/install-python-packages.sh $(VENV) $<; then touch $@; else echo "They cannot be installed"; fi

tests/interop/node_modules/.package-lock.json: tests/interop/package-lock.json
	@scripts/install-dependencies.sh test
	@echo "Other programs in JavaScript: what $< lists"
	@if npm ci --prefix tests/interop --silent; then touch $@; else echo "They cannot be installed"; fi

# What the tests themselves need from PyPI; it is installed once, and again when the list changes. The lists are whole, and each
# file that pip fetches must have one of their hashes; scripts/lock-requirements.sh makes them of the short lists beside them.
$(VENV)/.installed: tests/requirements.lock tests/installer.lock
	@scripts/install-dependencies.sh test
	@echo "Python: a virtual environment in $(VENV) with what tests/requirements.lock lists"
	python3 -m venv $(VENV)
	scripts/install-python-packages.sh $(VENV) $<
	touch $@

# What it finds is run by the tests, without the engine: server/tests/fuzz_corpus.rs.
fuzz: ## Try random inputs on all that reads from outside: MINUTES=1 for each of FUZZ_TARGETS
	@scripts/install-dependencies.sh test
	@MINUTES="$(MINUTES)" FUZZ_TARGETS="$(FUZZ_TARGETS)" scripts/fuzz.sh

lint: $(VENV)/.installed ## Check format, lints, documentation and spelling as CI does
	cargo fmt --all -- --check
	cargo fmt --manifest-path fuzz/Cargo.toml -- --check
	@# The fuzz targets are a workspace of their own, whose lock file must follow the core's dependencies.
	cargo metadata --locked --format-version 1 --manifest-path fuzz/Cargo.toml >/dev/null
	$(VENV)/bin/typos
	scripts/check-features.sh
	scripts/check-sources.sh
	cargo clippy --locked --release --workspace --features libreconstruct-server/failpoints,libreconstruct-tests/studies --all-targets -- -D warnings
	scripts/lint-features.sh
	@# With the feature that clippy was run with: what it has checked need not be checked again.
	RUSTDOCFLAGS="-D warnings" cargo doc --locked --release --workspace --exclude libreconstruct-python --features libreconstruct-server/failpoints --no-deps --quiet
	@# Last, so that it is seen if it was left out.
	@scripts/check-dependencies.sh

format: ## Format all code
	cargo fmt --all
	cargo fmt --manifest-path fuzz/Cargo.toml

clean: ## Remove everything that was built
	rm -rf target $(VENV) demo tests/interop/node_modules fuzz/target
