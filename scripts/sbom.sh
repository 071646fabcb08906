#!/usr/bin/env bash
# sbom.sh VERSION: prints what the program is made of, as a CycloneDX 1.6 document: crates with licence and checksum, and who
# needs whom. Crates that only run while it is built (build scripts, macros) have the scope "excluded"; those that are named
# "-src" bring sources in C that become part of the program.
# The same sources give the same document.
set -euo pipefail
cd "$(dirname "$0")/.."
command -v jq >/dev/null || { echo "sbom.sh: jq is missing: apt-get install jq" >&2; exit 1; }

host="$(rustc -vV | sed -n 's/^host: //p')"
work="$(mktemp -d)"; trap 'rm -rf "$work"' EXIT
# As cargo resolves it for this program, which is less than all that the workspace could use: "NAME VERSION" in each line.
crates() {
    cargo tree --locked --package hubbub --features full --target "$host" --edges "$1" --prefix none --format '{p}' |
        awk '{ print $1, substr($2, 2) }' | sort -u
}
crates normal,no-proc-macro >"$work/linked"
crates normal,build >"$work/all"
cargo metadata --locked --format-version 1 --manifest-path crates/hubbub/Cargo.toml --features full \
    --filter-platform "$host" >"$work/metadata"
awk -F'"' '/^name = /{ n = $2 } /^version = /{ v = $2 } /^checksum = /{ print n, v, $2 }' Cargo.lock >"$work/checksums"
# What the pages bring along says its version itself.
uplot="$(sed -nE '1s/.*uPlot \(v([0-9.]+)\).*/\1/p' web/vendor/uplot/uPlot.iife.min.js)"
[ -n "$uplot" ] || { echo "sbom.sh: the version of uPlot is not in its first line" >&2; exit 1; }

jq --arg version "$1" --arg uplot "$uplot" --rawfile linked "$work/linked" --rawfile all "$work/all" \
    --rawfile checksums "$work/checksums" '
    def lines: rtrimstr("\n") | split("\n");
    def key: "\(.name) \(.version)";
    def ref: "pkg:cargo/\(.name)@\(.version | @uri)";
    # "MIT/Apache-2.0" is how crates said it before there were expressions.
    def licences: if .license then [{expression: (.license | gsub(" */ *"; " OR "))}] else [] end;
    ($linked | lines | map({(.): true}) | add) as $linked
    | ($all | lines | map({(.): true}) | add) as $all
    | ($checksums | lines | map(split(" ") | {"\(.[0]) \(.[1])": .[2]}) | add) as $checksums
    | [.packages[] | select($all[key])] as $packages
    | ($packages | map({(.id): ref}) | add) as $refs
    | ($packages[] | select(.name == "hubbub")) as $program
    | ([{name: "uplot", version: $uplot, license: "MIT"}] | map({
        type: "library", "bom-ref": "pkg:npm/\(.name)@\(.version)", name, version, scope: "required",
        licenses: licences, purl: "pkg:npm/\(.name)@\(.version)"})) as $vendored
    | {
        bomFormat: "CycloneDX", specVersion: "1.6", version: 1,
        metadata: {component: {
            type: "application", "bom-ref": ($program | ref), name: "hubbub", version: $version,
            licenses: ($program | licences), purl: ($program | ref)}},
        components: ([$packages[] | select(.name != "hubbub") | {
            type: "library", "bom-ref": ref, name, version,
            scope: (if $linked[key] or (.name | endswith("-src")) then "required" else "excluded" end),
            licenses: licences, purl: ref
        } + ($checksums[key] as $sum | if $sum then {hashes: [{alg: "SHA-256", content: $sum}]} else {} end)
          + (if .repository then {externalReferences: [{type: "vcs", url: .repository}]} else {} end)] + $vendored
        | sort_by(.["bom-ref"])),
        dependencies: ([.resolve.nodes[] | select($refs[.id]) | {
            ref: $refs[.id],
            dependsOn: ([.deps[] | select(any(.dep_kinds[]; .kind != "dev")) | $refs[.pkg] | values] | unique)
        }] | map(if .ref == ($program | ref) then .dependsOn += [$vendored[]["bom-ref"]] else . end) | sort_by(.ref))
    }' "$work/metadata"
