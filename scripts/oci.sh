#!/usr/bin/env bash
# Packs the program in the folder $1, of version $2, as an OCI image in the folder $3, without a container engine: on this
# machine's C library and authorities, with nothing else, not even a shell. How it runs is what deploy/Dockerfile says.
#   skopeo copy oci-archive:FILE docker-daemon:hubbub:VERSION    or: podman load --input FILE
set -euo pipefail
cd "$(dirname "$0")/.."
tree="$1" version="$2" out="$3"
machine="$(uname -m)"
work="$(mktemp -d)"; trap 'rm -rf "$work"' EXIT
root="$work/root"
said() { sed -nE "s/^$1 (.*)/\1/p" deploy/Dockerfile | tail -1; }
user="$(said USER)" home="$(said WORKDIR)"

install -d "$root"/{etc,dev,proc,sys} "$root/usr/local/bin" "$root/usr/share/doc"
install -d -m 1777 "$root/tmp"
install "$tree/hubbub" "$root/usr/local/bin"
# The libraries it is linked with, and the loader, where it looks for them; with the terms they come under.
libraries="$(ldd "$root/usr/local/bin/hubbub" | sed -nE 's/^[^/]*(\/[^ ]+) \(.*/\1/p')"
for library in $libraries; do
    install -D "$library" "$root$library"
    package="$(dpkg-query --search "*$(basename "$library")" 2>/dev/null | sed -nE '1s/:.*//p')"
    install -D -m 644 -t "$root/usr/share/doc/$package" "/usr/share/doc/$package/copyright"
done
install -D -m 644 -t "$root/etc/ssl/certs" /etc/ssl/certs/ca-certificates.crt
install -m 644 LICENSE "$root/usr/share/doc"
printf 'root:x:0:0::/:/sbin/nologin\nhubbub:x:%s:%s::%s:/sbin/nologin\n' "$user" "$user" "$home" >"$root/etc/passwd"
printf 'root:x:0:\nhubbub:x:%s:\n' "$user" >"$root/etc/group"
echo 'hosts: files dns' >"$root/etc/nsswitch.conf"

# One layer. Its data directory belongs to the server, all else to nobody it could be.
created="$(git log -1 --format=%cI 2>/dev/null || date -Iseconds)"
pack() { tar -C "$1" --sort=name --mtime="$created" --numeric-owner --owner="$2" --group="$2" "${@:3}"; }
pack "$root" 0 -cf "$work/layer" .
install -d -m 700 "$work/own$home"
pack "$work/own" "$user" --no-recursion -rf "$work/layer" ".$home"

blobs="$work/image/blobs/sha256"
mkdir -p "$blobs"
sum() { sha256sum | cut -d' ' -f1; }
# Stores standard input; prints its descriptor, of media type $1.
blob() {
    cat >"$work/blob"
    local digest; digest="$(sum <"$work/blob")"
    jq -cn --arg type "application/vnd.oci.image.$1" --arg digest "sha256:$digest" --argjson size "$(stat -c%s "$work/blob")" \
        '{mediaType: $type, digest: $digest, size: $size}'
    mv "$work/blob" "$blobs/$digest"
}
layer="$(gzip -n <"$work/layer" | blob layer.v1.tar+gzip)"
case "$machine" in x86_64) architecture=amd64 ;; aarch64) architecture=arm64 ;; *) architecture="$machine" ;; esac
read -ra environment <<<"$(said ENV)"
config="$(jq -n --arg created "$created" --arg architecture "$architecture" --arg diff "sha256:$(sum <"$work/layer")" \
    --arg user "$user" --arg home "$home" --arg volume "$(said VOLUME)" --arg port "$(said EXPOSE)/tcp" --arg stop "$(said STOPSIGNAL)" \
    --arg version "$version" --argjson entrypoint "$(said ENTRYPOINT)" --argjson cmd "$(said CMD)" \
    '{created: $created, architecture: $architecture, os: "linux",
      config: {User: $user, WorkingDir: $home, Volumes: {($volume): {}}, ExposedPorts: {($port): {}}, StopSignal: $stop,
        Env: (["PATH=/usr/local/bin"] + $ARGS.positional), Entrypoint: $entrypoint, Cmd: $cmd,
        Labels: {"org.opencontainers.image.title": "hubbub", "org.opencontainers.image.version": $version,
          "org.opencontainers.image.licenses": "Apache-2.0"}},
      rootfs: {type: "layers", diff_ids: [$diff]},
      history: [{created: $created, created_by: "scripts/oci.sh"}]}' --args "${environment[@]}" | blob config.v1+json)"
manifest="$(jq -cn --argjson config "$config" --argjson layer "$layer" \
    '{schemaVersion: 2, mediaType: "application/vnd.oci.image.manifest.v1+json", config: $config, layers: [$layer]}' |
    blob manifest.v1+json)"
jq -cn --argjson manifest "$manifest" --arg version "$version" \
    '{schemaVersion: 2, manifests: [$manifest + {annotations: {"org.opencontainers.image.ref.name": $version}}]}' \
    >"$work/image/index.json"
echo '{"imageLayoutVersion":"1.0.0"}' >"$work/image/oci-layout"
tar -C "$work/image" --sort=name --mtime="$created" --owner=0 --group=0 \
    -cf "$out/hubbub-$version-linux-$machine.oci.tar" oci-layout index.json blobs
