#!/usr/bin/env bash
# Packs the program in $HUBBUB_BIN as `make dist` would, checks the checksums and the bill of materials, installs both packages
# below scratch directories, and starts what is there.
set -euo pipefail
cd "$(dirname "$0")/.."
if ! command -v dpkg-deb >/dev/null || ! command -v objcopy >/dev/null || ! command -v jq >/dev/null; then
    missing="dpkg, binutils and jq are needed"
    if [ "${CI:-}" = true ]; then echo "packages: $missing" >&2; exit 1; fi
    printf '\n*** PACKAGES NOT TESTED: %s ***\n\n' "$missing" >&2
    exit 0
fi
scratch="$(mktemp -d)"; server=
trap '[ -z "$server" ] || kill "$server"; rm -rf "$scratch"' EXIT
packages="$scratch/packages"
DIST_DIR="$packages" scripts/dist.sh >/dev/null
(cd "$packages" && sha256sum --check --quiet SHA256SUMS)
(cd "$packages" && diff <(ls -I SHA256SUMS) <(cut -d' ' -f3 SHA256SUMS)) ||
    { echo "packages: not every file has a checksum" >&2; exit 1; }
scripts/sbom-test.sh "$packages"/hubbub-*.cdx.json
expect() { [ -e "$1" ] || { echo "packages: $1 is missing" >&2; exit 1; }; }

# Starts the program $1 with the rest as the environment, sends and reads a message, and stops it.
try() {
    local program="$1"; shift
    env "$@" "$program" serve --listen 0 --data "$scratch/data" >"$scratch/ready" 2>"$scratch/log" &
    server=$!
    for _ in $(seq 600); do [ -s "$scratch/ready" ] && break; sleep 0.1; done
    local url; url="$(cut -d' ' -f2 "$scratch/ready")"
    "$program" send lobby hello --server "$url" >/dev/null
    "$program" history lobby --server "$url" | grep hello >/dev/null
    kill "$server"; wait "$server"; server=
}

mkdir "$scratch/archive"
tar -C "$scratch/archive" --strip-components=1 -xzf "$packages"/hubbub-*.tar.gz
for file in hubbub LICENSE man/man1/hubbub-serve.1 completions/_hubbub deploy/hubbub.service docs/install.md; do
    expect "$scratch/archive/$file"
done
if nm "$scratch/archive/hubbub" 2>/dev/null | grep -q .; then echo "packages: there are symbols left" >&2; exit 1; fi
try "$scratch/archive/hubbub"

root="$scratch/root"
mkdir -p "$root/var/lib/dpkg/updates" "$root/var/lib/dpkg/info" "$root/var/lib/dpkg/triggers"
touch "$root/var/lib/dpkg/status" "$root/var/lib/dpkg/available"
# Chrootless: its scripts leave this system's users and services alone, as DPKG_ROOT tells them.
install() { dpkg --root="$root" --force-not-root --force-script-chrootless --force-depends --log=/dev/null "$@"; }
install --force-confold -i "$packages"/hubbub_*.deb >"$scratch/dpkg.log" 2>&1 || { cat "$scratch/dpkg.log" >&2; exit 1; }
for file in usr/bin/hubbub usr/share/man/man1/hubbub.1.gz usr/share/bash-completion/completions/hubbub \
    lib/systemd/system/hubbub.service etc/hubbub/hubbub.toml; do
    expect "$root/$file"
done
grep -q '^ExecStart=/usr/bin/hubbub serve$' "$root/lib/systemd/system/hubbub.service"
grep -q '^User=hubbub$' "$root/lib/systemd/system/hubbub.service"
HUBBUB_CONFIG="$root/etc/hubbub/hubbub.toml" "$root/usr/bin/hubbub" config print |
    grep -q 'data = "/var/lib/hubbub/data"  # file'
try "$root/usr/bin/hubbub" HUBBUB_CONFIG="$root/etc/hubbub/hubbub.toml"
# What the administrator wrote outlives an upgrade.
echo '# mine' >>"$root/etc/hubbub/hubbub.toml"
install --force-confold -i "$packages"/hubbub_*.deb >/dev/null 2>&1
grep -q '^# mine$' "$root/etc/hubbub/hubbub.toml"
install --remove hubbub >/dev/null 2>&1
[ ! -e "$root/usr/bin/hubbub" ] && expect "$root/etc/hubbub/hubbub.toml"
echo "packages: installed and started from the archive and from the Debian package"
