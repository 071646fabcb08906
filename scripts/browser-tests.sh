#!/usr/bin/env bash
# The pages in headless Chromium, what people do most also in Firefox, and the JavaScript client in Node, against the server in
# $HUBBUB_BIN. Installs the browsers by apt where they are missing. Without them or Node: a failure under CI=true, else said aloud.
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

# first_of GIVEN NAME…: the program that is given, else the first of the others that is there.
first_of() {
    [ -n "$1" ] && { echo "$1"; return; }
    local name
    for name in "${@:2}"; do command -v "$name" && return; done
    return 1
}

# install PACKAGE…
install() {
    command -v apt-get >/dev/null || return 1
    echo "installing $1" >&2
    { as_root apt-get update -qq &&
      as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@"; } >/dev/null
}

find_chromium() { first_of "${CHROMIUM_BIN:-}" chromium chromium-browser google-chrome; }
find_firefox() { first_of "${FIREFOX_BIN:-}" firefox-esr firefox; }

major="$(node --version 2>/dev/null | sed -nE 's/^v([0-9]+).*/\1/p')"
[ "${major:-0}" -ge 20 ] && command -v npm >/dev/null || give_up "Node 20 or later with npm is needed"
CHROMIUM_BIN="$(find_chromium)" || { install chromium fonts-liberation && CHROMIUM_BIN="$(find_chromium)"; } || give_up "there is no Chromium"
firefox="$(find_firefox)" || { install firefox-esr && firefox="$(find_firefox)"; } || give_up "there is no Firefox"
export CHROMIUM_BIN HUBBUB_BIN="$binary"

cd tests/browser
# Nothing is fetched when what is installed is what the lock file says.
cmp -s package-lock.json node_modules/.hubbub-lock || {
    npm ci --no-audit --no-fund --loglevel=error
    cp package-lock.json node_modules/.hubbub-lock
}
unset FIREFOX_BIN
npm test --silent

FIREFOX_BIN="$firefox" npm test --silent -- page.test.mjs people.test.mjs login.test.mjs other-sites.test.mjs
