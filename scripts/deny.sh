#!/usr/bin/env bash
# What may be depended on, by deny.toml: licences, sources and banned crates of everything that the workspace can use; and what
# RustSec knows against it, if its database can be fetched.
# Without cargo-deny: a failure under CI=true, else said aloud (scripts/services/tools.sh builds it).
set -euo pipefail
cd "$(dirname "$0")/.."
deny="${HUBBUB_TEST_TOOLS:-/var/tmp/hubbub-tools}/cargo-deny"
[ -x "$deny" ] || deny="$(command -v cargo-deny)" || {
    missing="there is no cargo-deny: scripts/services/tools.sh builds it"
    if [ "${CI:-}" = true ]; then echo "dependencies: $missing" >&2; exit 1; fi
    printf '\n*** DEPENDENCIES NOT CHECKED: %s ***\n\n' "$missing" >&2
    exit 0
}
said="$(mktemp)"; trap 'rm -f "$said"' EXIT
# Duplicates are only warned of; nobody reads them where all is well.
check() { "$deny" --log-level error check --hide-inclusion-graph "$@" >"$said" 2>&1 || { cat "$said" >&2; exit 1; }; }
check licenses bans sources
if GIT_TERMINAL_PROMPT=0 timeout 60 "$deny" fetch db >"$said" 2>&1; then
    check advisories
    echo "dependencies: licences, sources, bans and advisories are as deny.toml says"
else
    echo "dependencies: licences, sources and bans are as deny.toml says"
    printf '\n*** ADVISORIES NOT CHECKED: their database cannot be fetched ***\n\n' >&2
fi
