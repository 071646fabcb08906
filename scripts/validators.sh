#!/usr/bin/env bash
# Checks what the server in $HUBBUB_BIN says of itself with tools of others: /openapi.json and /asyncapi.json.
# Without Node: a failure under CI=true, else said aloud. (promtool reads /metrics in the process tests.)
set -euo pipefail
cd "$(dirname "$0")/.."

binary="$(realpath "${HUBBUB_BIN:-target/release/hubbub}")"
[ -x "$binary" ] || { echo "there is no server at $binary: build it, or set HUBBUB_BIN" >&2; exit 1; }

major="$(node --version 2>/dev/null | sed -nE 's/^v([0-9]+).*/\1/p')"
if [ "${major:-0}" -lt 20 ] || ! command -v npm >/dev/null; then
    missing="Node 20 or later with npm is needed"
    if [ "${CI:-}" = true ]; then echo "validators: $missing" >&2; exit 1; fi
    printf '\n*** DOCUMENTS NOT VALIDATED: %s ***\n\n' "$missing" >&2
    exit 0
fi

cd tests/validators
# Nothing is fetched when what is installed is what the lock file says.
cmp -s package-lock.json node_modules/.hubbub-lock || {
    npm ci --no-audit --no-fund --loglevel=error
    cp package-lock.json node_modules/.hubbub-lock
}
HUBBUB_BIN="$binary" exec npm test --silent
