#!/usr/bin/env bash
# The chat page in headless Chromium and the JavaScript client in Node, against the server in $HUBBUB_BIN.
# Installs Chromium by apt where it is missing. Without a browser or Node: a failure under CI=true, else said aloud.
set -euo pipefail
cd "$(dirname "$0")/.."

binary="$(realpath "${HUBBUB_BIN:-target/release/hubbub}")"
[ -x "$binary" ] || { echo "there is no server at $binary: build it, or set HUBBUB_BIN" >&2; exit 1; }

give_up() {
    if [ "${CI:-}" = true ]; then
        echo "browser tests: $1" >&2
        exit 1
    fi
    printf '\n*** BROWSER TESTS SKIPPED: %s ***\n\n' "$1" >&2
    exit 0
}

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; elif command -v sudo >/dev/null; then sudo "$@"; else return 1; fi
}

find_chromium() {
    [ -n "${CHROMIUM_BIN:-}" ] && { echo "$CHROMIUM_BIN"; return; }
    command -v chromium || command -v chromium-browser || command -v google-chrome
}

install_chromium() {
    command -v apt-get >/dev/null || return 1
    echo "installing chromium" >&2
    { as_root apt-get update -qq &&
      as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium fonts-liberation; } >/dev/null
}

major="$(node --version 2>/dev/null | sed -nE 's/^v([0-9]+).*/\1/p')"
[ "${major:-0}" -ge 20 ] && command -v npm >/dev/null || give_up "Node 20 or later with npm is needed"
CHROMIUM_BIN="$(find_chromium)" || { install_chromium && CHROMIUM_BIN="$(find_chromium)"; } || give_up "there is no Chromium"
export CHROMIUM_BIN HUBBUB_BIN="$binary"

cd tests/browser
# Nothing is fetched when what is installed is what the lock file says.
cmp -s package-lock.json node_modules/.hubbub-lock || {
    npm ci --no-audit --no-fund --loglevel=error
    cp package-lock.json node_modules/.hubbub-lock
}
exec npm test --silent
