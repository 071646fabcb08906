#!/usr/bin/env bash
# sbom-test.sh FILE: the bill of materials is of its standard, names everything that is linked, and nothing that only tests use.
set -euo pipefail
cd "$(dirname "$0")/.."
sbom="$(realpath "$1")"
fail() { echo "bill of materials: $1" >&2; exit 1; }
crates() { cargo tree --locked --package hubbub --features full --prefix none --format '{p}' "$@" | cut -d' ' -f1 | sort -u; }
named() { jq -r ".components[] | select($1) | .name" "$sbom" | sort -u; }

missing="$(comm -23 <(crates --edges normal,build) <({ echo hubbub; named true; } | sort))"
[ -z "$missing" ] || fail "not in it: $missing"
# Some bring a C library, one draws the charts: none of them may be called a tool of the build.
for crate in rdkafka-sys openssl-src rustls aws-lc-sys uplot; do
    named '.scope == "required"' | grep -qx "$crate" || fail "$crate is not required"
done
for crate in proptest tokio-tungstenite hubbub-conformance; do
    ! named true | grep -qx "$crate" || fail "only tests use $crate"
done
[ "$(jq '[.components[] | select(.licenses == [])] | length' "$sbom")" = 0 ] || fail "crates without a licence"
without="$(jq -r '.components[] | select(.hashes == null) | .name' "$sbom" | grep -v -e '^hubbub-' -e '^uplot$' || true)"
[ -z "$without" ] || fail "no checksum: $without"
dangling="$(jq -r '[.metadata.component, .components[]] | map(.["bom-ref"])' "$sbom" |
    jq -r --slurpfile sbom "$sbom" '. as $known | [$sbom[0].dependencies[] | .ref, .dependsOn[]] - $known | .[]')"
[ -z "$dangling" ] || fail "dependencies without a component: $dangling"
[ "$(scripts/sbom.sh "$(jq -r .metadata.component.version "$sbom")" | sha256sum)" = "$(sha256sum <"$sbom")" ] ||
    fail "made again, it is another one"
scripts/validators.sh sbom.mjs "$sbom"
