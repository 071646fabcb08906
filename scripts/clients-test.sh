#!/usr/bin/env bash
# The clients for JavaScript, Python, Go and Rust: their tests and types, the examples of their documents, and the programme that
# drives each through faults of the server in $HUBBUB_BIN. The examples run with what is packed. CLIENT_ROUNDS=200 for longer.
# A language that is missing: a failure under CI=true, else said aloud.
set -euo pipefail
cd "$(dirname "$0")/.."

binary="$(realpath "${HUBBUB_BIN:-target/release/hubbub}")"
[ -x "$binary" ] || { echo "there is no server at $binary: build it, or set HUBBUB_BIN" >&2; exit 1; }
export HUBBUB_BIN="$binary"
built="$(realpath -m "${CARGO_TARGET_DIR:-target}")/clients"
mkdir -p "$built"

missing() {
    if [ "${CI:-}" = true ]; then echo "clients: $1" >&2; exit 1; fi
    printf '\n*** NOT TESTED: %s ***\n\n' "$1" >&2
}

drive() {
    python3 clients/conformance/examples.py "$1" "$built"
    python3 clients/conformance/run.py --client "$1" ${CLIENT_ROUNDS:+--rounds "$CLIENT_ROUNDS"}
}

javascript() (
    cd clients/javascript
    # Nothing is fetched when what is installed is what the lock file says.
    if cmp -s package-lock.json node_modules/.hubbub-lock; then npm run --silent prepare; else
        npm ci --no-audit --no-fund --loglevel=error
        cp package-lock.json node_modules/.hubbub-lock
    fi
    npm test --silent
)

environment() (
    cd clients/python
    cmp -s requirements-test.txt "$built/venv/requirements" || {
        rm -rf "$built/venv"
        python3 -m venv "$built/venv"
        "$built/venv/bin/pip" install --quiet --disable-pip-version-check -r requirements-test.txt
        cp requirements-test.txt "$built/venv/requirements"
    }
)

python() (
    # As a user would.
    "$built/venv/bin/pip" install --quiet --disable-pip-version-check --force-reinstall --no-deps "$built"/packages/*.whl
    cd clients/python
    "$built/venv/bin/mypy" hubbub
    "$built/venv/bin/python" -m unittest --quiet
)

go_client() (
    cd clients/go
    test -z "$(gofmt -l .)" || { echo "gofmt -w clients/go" >&2; exit 1; }
    go vet ./...
    go test -count=1 ./...
    go build -o "$built/go-adapter" ./conformance
)

# Its unit tests are with those of the other crates, and what it needs is compiled as for them.
rust() {
    cargo build --quiet --workspace --features full --example conformance
    cp "${CARGO_TARGET_DIR:-target}/debug/examples/conformance" "$built/rust-adapter"
}

python3 -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))' 2>/dev/null \
    || { missing "Python 3.10 or later with venv is needed to drive the clients"; exit 0; }
environment
rm -rf "$built/packages"
PYTHON="$built/venv/bin/python" scripts/pack-clients.sh "$built/packages"
major="$(node --version 2>/dev/null | sed -nE 's/^v([0-9]+).*/\1/p')"
if [ "${major:-0}" -ge 20 ] && command -v npm >/dev/null; then
    javascript
    drive javascript
else
    missing "Node 20 or later with npm is needed for the JavaScript client"
fi
python
PYTHON="$built/venv/bin/python" drive python
rust
HUBBUB_RUST_ADAPTER="$built/rust-adapter" drive rust
if command -v go >/dev/null; then
    go_client
    HUBBUB_GO_ADAPTER="$built/go-adapter" drive go
else
    missing "Go 1.23 or later is needed for the Go client"
fi
