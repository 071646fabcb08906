#!/usr/bin/env bash
# tools.sh: builds the programs that tests run, once for each version: in Go k6 and the checkers of compose files and of
# manifests, in Rust cargo-deny. Needs Go 1.24 or newer.
set -euo pipefail
K6=v1.8.1 COMPOSE=v2.9.0 KUBERNETES=v0.0.4 DENY=0.20.2 BIN=${HUBBUB_TEST_TOOLS:-/var/tmp/hubbub-tools}
mkdir -p "$BIN"
build() { # NAME MODULE VERSION BUILT-AS
  if [ -x "$BIN/$1" ] && [ "$(cat "$BIN/$1.version" 2>/dev/null)" = "$3" ]; then return; fi
  GOBIN=$BIN go install "$2@$3"
  [ "$4" = "$1" ] || mv "$BIN/$4" "$BIN/$1"
  echo "$3" >"$BIN/$1.version"
}
command -v go >/dev/null || { echo "tools.sh: no Go here; install Go 1.24 or newer" >&2; exit 1; }
build compose-spec github.com/compose-spec/compose-go/v2/cmd "$COMPOSE" cmd
build k6 go.k6.io/k6 "$K6" k6
build kubectl-validate sigs.k8s.io/kubectl-validate "$KUBERNETES" kubectl-validate
if [ ! -x "$BIN/cargo-deny" ] || [ "$(cat "$BIN/cargo-deny.version" 2>/dev/null)" != "$DENY" ]; then
  # Not optimized: that takes longer than all its runs together.
  work=$(mktemp -d "$BIN/deny.XXXXXX"); trap 'rm -rf "$work"' EXIT
  CARGO_PROFILE_DEV_DEBUG=0 CARGO_INCREMENTAL=0 CARGO_TARGET_DIR="$work/target" \
    cargo install --quiet --locked --debug --root "$work" "cargo-deny@$DENY"
  mv "$work/bin/cargo-deny" "$BIN/cargo-deny"
  echo "$DENY" >"$BIN/cargo-deny.version"
fi
