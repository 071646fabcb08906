#!/usr/bin/env bash
# Checks documents with tools of others: `validators.sh` those of the server in $HUBBUB_BIN (/openapi.json and /asyncapi.json),
# `validators.sh sbom.mjs FILE` a bill of materials. Without Node: a failure under CI=true, else said aloud. (promtool reads
# /metrics in the process tests.)
set -euo pipefail
cd "$(dirname "$0")/.."

[ $# -gt 0 ] || set -- documents.mjs
if [ "$1" = documents.mjs ]; then
    HUBBUB_BIN="$(realpath "${HUBBUB_BIN:-target/release/hubbub}")"
    [ -x "$HUBBUB_BIN" ] || { echo "there is no server at $HUBBUB_BIN: build it, or set HUBBUB_BIN" >&2; exit 1; }
    export HUBBUB_BIN
fi

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
exec node "$@"
