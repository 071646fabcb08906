#!/usr/bin/env bash
# Makes what is shipped of the program in $HUBBUB_BIN, by default of a build with the profile "dist":
#   target/dist/packages/hubbub-VERSION-linux-ARCH.tar.gz  the program, manual pages, completions, units, documents
#   target/dist/packages/hubbub_VERSION_ARCH.deb           the same for Debian, with a user, a service and its configuration
#   target/dist/packages/hubbub-VERSION-linux-ARCH.oci.tar an image for containers, of the program and the libraries it needs
#   target/dist/packages/….debug.gz                        the symbols, for profilers and debuggers
#   target/dist/packages/….cdx.json                        what it is made of, with licences and checksums (CycloneDX)
#   target/dist/packages/hubbub…client…                    the clients, see scripts/pack-clients.sh
#   target/dist/packages/SHA256SUMS                        of all of them
set -euo pipefail
cd "$(dirname "$0")/.."

target="${CARGO_TARGET_DIR:-target}"
if [ -z "${HUBBUB_BIN:-}" ]; then
    cargo build --locked --profile dist -p hubbub --features full
    HUBBUB_BIN="$target/dist/hubbub"
fi
binary="$(realpath "$HUBBUB_BIN")"
out="${DIST_DIR:-$target/dist/packages}"
version="$("$binary" --version | cut -d' ' -f2)"
machine="$(uname -m)"
name="hubbub-$version-linux-$machine"
rm -rf "$out"; mkdir -p "$out"
work="$(mktemp -d)"; trap 'rm -rf "$work"' EXIT

# The program without its symbols; the link tells debuggers which file has them.
tree="$work/$name"
install -d "$tree/man/man1" "$tree/completions" "$tree/deploy" "$tree/docs"
objcopy --only-keep-debug "$binary" "$work/$name.debug"
objcopy --strip-all --add-gnu-debuglink="$work/$name.debug" "$binary" "$tree/hubbub"
gzip -nc "$work/$name.debug" >"$out/$name.debug.gz"
"$tree/hubbub" man --out "$tree/man/man1"
"$tree/hubbub" completions bash >"$tree/completions/hubbub.bash"
"$tree/hubbub" completions zsh >"$tree/completions/_hubbub"
"$tree/hubbub" completions fish >"$tree/completions/hubbub.fish"
cp README.md CHANGELOG.md LICENSE hubbub.example.toml "$tree"
cp -r deploy/* "$tree/deploy"
cp docs/*.md "$tree/docs"
cp web/hubbub.js "$tree"
tar -C "$work" --owner=0 --group=0 --sort=name -czf "$out/$name.tar.gz" "$name"

if command -v dpkg-deb >/dev/null; then
    scripts/deb.sh "$tree" "$version" "$out"
else
    echo "no Debian package: dpkg-deb is missing" >&2
fi
if command -v jq >/dev/null; then
    scripts/oci.sh "$tree" "$version" "$out"
else
    echo "no OCI image: jq is missing" >&2
fi
scripts/pack-clients.sh "$out"
scripts/sbom.sh "$version" >"$out/$name.cdx.json"
(cd "$out" && sha256sum -- * >SHA256SUMS)
ls -l "$out"
