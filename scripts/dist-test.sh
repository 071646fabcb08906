#!/usr/bin/env bash
# Packs the program in $HUBBUB_BIN as `make dist` would, checks the checksums and the bill of materials, installs both packages
# below scratch directories, unpacks the image, and starts what is there. scripts/clients-test.sh tries the clients' packages.
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

# Sends and reads a message with the program $1, once the server has told its address.
talk() {
    for _ in $(seq 600); do [ -s "$scratch/ready" ] && break; sleep 0.1; done
    local url; url="$(cut -d' ' -f2 "$scratch/ready")"
    "$1" send lobby hello --server "$url" >/dev/null
    "$1" history lobby --server "$url" | grep hello >/dev/null
}

# Starts the program $1 with the rest as the environment, talks to it, and stops it.
try() {
    local program="$1"; shift
    # The one before it may be read until the server has begun.
    rm -f "$scratch/ready"
    env "$@" "$program" serve --listen 0 --data "$scratch/data" >"$scratch/ready" 2>"$scratch/log" &
    server=$!
    talk "$program"
    kill "$server"; wait "$server"; server=
}

# Starts what is in the image $1 as its configuration says, but for the port: not as root, and nothing but the data directory and
# /tmp can be written to. Its health is checked as deploy/Dockerfile says.
try_image() {
    mkdir "$scratch/image" "$scratch/rootfs"
    tar -C "$scratch/image" -xf "$1"
    blob() { echo "$scratch/image/blobs/${1/://}"; }
    local manifest config layer
    manifest="$(blob "$(jq -r '.manifests[0].digest' "$scratch/image/index.json")")"
    config="$(blob "$(jq -r .config.digest "$manifest")")"
    layer="$(blob "$(jq -r '.layers[0].digest' "$manifest")")"
    (cd "$scratch/image/blobs/sha256" && for each in *; do echo "$each  $each"; done | sha256sum --check --quiet)
    [ "$(gzip -dc "$layer" | sha256sum | cut -d' ' -f1)" = "$(jq -r '.rootfs.diff_ids[0]' "$config" | cut -d: -f2)" ]
    tar -C "$scratch/rootfs" --numeric-owner -xpzf "$layer"
    local user environment entrypoint
    user="$(jq -r .config.User "$config")"
    mapfile -t environment < <(jq -r '.config.Env[]' "$config")
    mapfile -t entrypoint < <(jq -r '.config.Entrypoint[], .config.Cmd[]' "$config")
    [ "$user" -gt 0 ]
    rm "$scratch/ready"
    $apart bash -euc '
        apart="$1" root="$2" user="$3"; shift 3
        if [ -n "$apart" ]; then
            mount --bind "$root" "$root"; mount -o remount,bind,ro "$root"
            mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"; mount --rbind /proc "$root/proc"
            mount -t tmpfs -o "mode=700,uid=$user" tmpfs "$root/var/lib/hubbub"
            for try in / /etc /usr/local/bin; do if touch "$root$try/x" 2>/dev/null; then exit 9; fi; done
        fi
        exec env -i "$@"' - "$apart" "$scratch/rootfs" "$user" "${environment[@]}" HUBBUB_LISTEN=127.0.0.1:0 \
        "$(command -v chroot)" --userspec="$user:$user" "$scratch/rootfs" "${entrypoint[@]}" \
        >"$scratch/ready" 2>"$scratch/log" &
    server=$!
    talk "$scratch/archive/hubbub"
    local check url
    url="$(cut -d' ' -f2 "$scratch/ready")"
    mapfile -t check < <(sed -nE 's/^HEALTHCHECK .* CMD (.*)/\1/p' deploy/Dockerfile | jq -r '.[]')
    env -i "${environment[@]}" HUBBUB_SERVER="$url" "$(command -v chroot)" --userspec="$user:$user" "$scratch/rootfs" \
        "${check[@]}" >/dev/null
    grep -q "^Uid:\s$user\s$user\s$user" "/proc/$server/status"
    kill "$server"; wait "$server"; server=
}

mkdir "$scratch/archive"
tar -C "$scratch/archive" --strip-components=1 -xzf "$packages"/hubbub-*.tar.gz
for file in hubbub LICENSE man/man1/hubbub-serve.1 completions/_hubbub deploy/hubbub.service docs/install.md; do
    expect "$scratch/archive/$file"
done
if nm "$scratch/archive/hubbub" 2>/dev/null | grep -q .; then echo "packages: there are symbols left" >&2; exit 1; fi
try "$scratch/archive/hubbub"

if [ "$(id -u)" = 0 ]; then
    # Within a container there may be no mounts of one's own.
    apart="unshare --mount"
    $apart mount -t tmpfs tmpfs "$scratch/archive" 2>/dev/null || {
        apart=
        printf '\n*** IMAGE NOT STARTED READ-ONLY: nothing can be mounted here ***\n\n' >&2
    }
    try_image "$packages"/hubbub-*.oci.tar
    images="the image, "
elif [ "${CI:-}" = true ]; then
    echo "packages: starting the image takes root" >&2; exit 1
else
    printf '\n*** IMAGE NOT STARTED: that takes root ***\n\n' >&2
fi

root="$scratch/root"
mkdir -p "$root/var/lib/dpkg/updates" "$root/var/lib/dpkg/info" "$root/var/lib/dpkg/triggers"
touch "$root/var/lib/dpkg/status" "$root/var/lib/dpkg/available"
# Chrootless: its scripts leave this system's users and services alone, as DPKG_ROOT tells them.
install() { dpkg --root="$root" --force-not-root --force-script-chrootless --force-depends --log=/dev/null "$@"; }
install --force-confold -i "$packages"/hubbub_*.deb >"$scratch/dpkg.log" 2>&1 || { cat "$scratch/dpkg.log" >&2; exit 1; }
for file in usr/bin/hubbub usr/share/man/man1/hubbub.1.gz usr/share/bash-completion/completions/hubbub \
    lib/systemd/system/hubbub.service etc/hubbub/hubbub.toml usr/share/doc/hubbub/deploy/nginx.conf; do
    expect "$root/$file"
done
# Secrets are written there.
[ "$(stat -c %a "$root/etc/hubbub/hubbub.toml")" = 640 ] || { echo "packages: everybody reads hubbub.toml" >&2; exit 1; }
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
echo "packages: installed and started from the archive, ${images:-}and the Debian package"
