# `make` lists what there is.

.DEFAULT_GOAL := help
SHELL := /bin/bash -euo pipefail

# One set of packages, features and one profile for every test, so that dependencies are compiled once.
ALL := --workspace --features full

.PHONY: help run check test bench setup lint deny

help: ## This list
	@sed -nE 's/^([a-z]+):[^#]*## (.*)/  make \1|\2/p' Makefile | column -t -s '|'

run: ## Build and start a server on http://127.0.0.1:8080, data in ./data
	cargo run --release -p hubbub -- serve

check: lint ## A few minutes: formatting, lints, unit tests, the embedded store on its simulated disk
	cargo test $(ALL) --lib --bins --test conformance --test crash

test: lint ## Everything: what is missing is set up, then every test of every crate and of whole processes
	cargo test $(ALL)
	HUBBUB_BIN="$${CARGO_TARGET_DIR:-target}/debug/hubbub" scripts/browser-tests.sh
	$(MAKE) --no-print-directory deny

bench: ## The table of speed and memory, each row against this machine's own limit; ARGS="--help" for more
	cargo run --release -p hubbub -- bench suite $(ARGS)

lint: setup
	cargo fmt --all --check
	cargo clippy $(ALL) --all-targets -- -D warnings

# Licences, advisories and banned crates. Compiling the tool takes longer than all tests, so it is not done here.
deny:
	@if command -v cargo-deny >/dev/null; then cargo deny check; \
	else echo "licences and advisories not checked: cargo install --locked cargo-deny"; fi

# rust-toolchain.toml names the version; rustup fetches it when cargo is first called.
setup:
	@command -v cargo >/dev/null || { echo "Rust is missing, see https://rustup.rs"; exit 1; }
	@command -v cc >/dev/null || { echo "a C compiler is missing: apt-get install gcc libc6-dev"; exit 1; }
	@cargo fmt --version >/dev/null 2>&1 && cargo clippy --version >/dev/null 2>&1 \
		|| rustup component add rustfmt clippy
