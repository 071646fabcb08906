# `make` lists what there is.

.DEFAULT_GOAL := help
SHELL := /bin/bash -euo pipefail

# One set of packages, features and one profile for every test, so that dependencies are compiled once.
ALL := --workspace --features full

# What `make test` runs against: servers of its own, on ports and in a directory that nobody else uses, empty at first.
TEST_SERVICES := SVC_HOME=/var/tmp/hubbub-test PGFSYNC=off PGPORT=15442 BOUNCER_PORT=16442 RMQ_PORT=5683 KAFKA_PORT=19102 \
	CQL_PORT=19342 CASS_FAST=1
TEST_URLS := HUBBUB_TEST_PGBOUNCER=postgres://postgres@127.0.0.1:16442 \
	HUBBUB_TEST_POSTGRES=postgres://postgres@127.0.0.1:15442/postgres HUBBUB_TEST_AMQP=amqp://guest:guest@127.0.0.1:5683/ \
	HUBBUB_TEST_KAFKA=kafka://127.0.0.1:19102 HUBBUB_TEST_CQL=127.0.0.1:19342
# What is shipped has its own OpenSSL, for Kafka's client. CI takes the system's, if it is there: building one takes minutes.
ifeq ($(CI),true)
export OPENSSL_NO_VENDOR := $(shell pkg-config --exists 'openssl >= 3' 2>/dev/null && echo 1 || echo 0)
endif
# Tests of whole processes wait more than they compute.
TEST_THREADS := RUST_TEST_THREADS=$${RUST_TEST_THREADS:-$$(($$(nproc) + 1))}

# Tests of what a measurement says, which says nothing while others use the machine.
ALONE := bottlenecks_are_named

.PHONY: help install run check test fuzz bench dist services services-stop setup lint deny

help: ## This list
	@sed -nE 's/^([a-z-]+):[^#]*## (.*)/  make \1|\2/p' Makefile | column -t -s '|'

run: ## Build and start a server on http://127.0.0.1:8080, data in ./data
	cargo run --release -p hubbub -- serve

install: setup ## Build, and install the command hubbub for you (in ~/.cargo/bin)
	cargo install --locked --path crates/hubbub

check: lint deny ## A few minutes: formatting, lints, unit tests, the embedded store on its simulated disk
	cargo test $(ALL) --lib --bins --test conformance --test crash

test: setup ## Everything: what is missing is set up, then every test of every crate and of whole processes
	scripts/beside.sh 'make --no-print-directory lint' 'scripts/services/install.sh; scripts/services/tools.sh'
	$(TEST_SERVICES) scripts/services/stop.sh wipe
	trap '$(TEST_SERVICES) scripts/services/stop.sh wipe' EXIT; \
		$(TEST_SERVICES) CASS_LAZY_SCHEMA=1 scripts/services/start.sh; export $(TEST_SERVICES) $(TEST_URLS) $(TEST_THREADS); \
		scripts/beside.sh 'cargo test --no-fail-fast $(ALL) -- --skip $(ALONE)' 'nice -n 19 fuzz/run.sh 0'; \
		cargo test $(ALL) --test process $(ALONE) -- --test-threads 1; \
		export HUBBUB_BIN="$${CARGO_TARGET_DIR:-target}/debug/hubbub"; scripts/beside.sh scripts/browser-tests.sh \
		'scripts/validators.sh; scripts/clients-test.sh; scripts/dist-test.sh'
	fuzz/run.sh 12
	$(MAKE) --no-print-directory deny

fuzz: ## A minute of fuzzing for each decoder; FUZZ_SECONDS=600 for longer
	fuzz/run.sh $(or $(FUZZ_SECONDS),60)

bench: ## The table of speed and memory, each row against this machine's own limit; ARGS="--help" for more
	cargo run --release -p hubbub -- bench suite $(ARGS)

dist: setup ## Archive, Debian package, OCI image, clients, bill of materials in target/dist/packages, with checksums
	scripts/dist.sh

services: ## Install and start PostgreSQL, pgbouncer, RabbitMQ, Kafka and Cassandra on this machine, to try things with
	scripts/services/install.sh
	scripts/services/start.sh

services-stop: ## Stop them; what they hold stays
	scripts/services/stop.sh

lint: setup
	cargo fmt --all --check
	cargo clippy $(ALL) --all-targets -- -D warnings
	@tree=$$(cargo tree --package hubbub --features full --edges normal,build,features); \
		! grep -E 'simulated-disk|fuzzing|hubbub-conformance' <<<"$$tree" || { echo "only tests may depend on this"; exit 1; }

deny: ## Licences, sources, banned crates and advisories of all dependencies (part of check and test)
	@scripts/deny.sh

# rust-toolchain.toml names the version; rustup fetches it when cargo is first called.
setup:
	@command -v cargo >/dev/null || { echo "Rust is missing, see https://rustup.rs"; exit 1; }
	@command -v cc >/dev/null && command -v c++ >/dev/null \
		|| { echo "a C and C++ compiler is missing: apt-get install g++ libc6-dev"; exit 1; }
	@cargo fmt --version >/dev/null 2>&1 && cargo clippy --version >/dev/null 2>&1 \
		|| rustup component add rustfmt clippy
