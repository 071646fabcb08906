#!/usr/bin/env bash
# tools.sh: builds the programs in Go that tests run (k6, and the checkers of compose files and of manifests), once for each
# version. Needs Go 1.24 or newer.
set -euo pipefail
K6=v1.8.1 COMPOSE=v2.9.0 KUBERNETES=v0.0.4 BIN=${HUBBUB_TEST_TOOLS:-/var/tmp/hubbub-tools}
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
