#!/usr/bin/env bash
# deb.sh TREE VERSION OUT: makes a Debian package of the unpacked release archive TREE in the directory OUT.
set -euo pipefail
tree="$1" version="$2" out="$3"
arch="$(dpkg --print-architecture)"
root="$(mktemp -d)"; trap 'rm -rf "$root"' EXIT
chmod 755 "$root"

install -Dm755 "$tree/hubbub" "$root/usr/bin/hubbub"
for page in "$tree"/man/man1/*.1; do
    install -Dm644 "$page" "$root/usr/share/man/man1/$(basename "$page")"
done
gzip -n9 "$root"/usr/share/man/man1/*.1
install -Dm644 "$tree/completions/hubbub.bash" "$root/usr/share/bash-completion/completions/hubbub"
install -Dm644 "$tree/completions/_hubbub" "$root/usr/share/zsh/vendor-completions/_hubbub"
install -Dm644 "$tree/completions/hubbub.fish" "$root/usr/share/fish/vendor_completions.d/hubbub.fish"
install -Dm644 "$tree/LICENSE" "$root/usr/share/doc/hubbub/copyright"
install -Dm644 "$tree/CHANGELOG.md" "$root/usr/share/doc/hubbub/CHANGELOG.md"
cp -r "$tree/docs" "$root/usr/share/doc/hubbub/docs"
for example in nginx.conf load-balancer.conf Caddyfile postgresql.conf prometheus/prometheus.yml prometheus/alerts.yml; do
    install -Dm644 "$tree/deploy/$example" "$root/usr/share/doc/hubbub/examples/$example"
done
cp -r "$tree/deploy/grafana" "$root/usr/share/doc/hubbub/examples/grafana"
# The documents link to ../deploy/… and ../web/….
ln -s examples "$root/usr/share/doc/hubbub/deploy"
for file in hubbub.js app/ids.js; do
    install -Dm644 "$(dirname "$0")/../web/$file" "$root/usr/share/doc/hubbub/web/$file"
done

# Settings stand in a file of the administrator, which upgrades do not overwrite. Secrets go there: postinst gives it to the group.
install -d "$root/etc/hubbub"
sed 's|^#data = .*|data = "/var/lib/hubbub/data"|' "$tree/hubbub.example.toml" >"$root/etc/hubbub/hubbub.toml"
grep -qx 'data = "/var/lib/hubbub/data"' "$root/etc/hubbub/hubbub.toml"
chmod 640 "$root/etc/hubbub/hubbub.toml"
# A user of its own, so that administrators can act as that user on the data.
install -d "$root/lib/systemd/system"
for unit in "$tree"/deploy/*.service "$tree"/deploy/*.timer; do
    sed -e 's|/usr/local/bin/|/usr/bin/|' \
        -e 's|^Environment=HUBBUB_DATA=.*|Environment=HUBBUB_CONFIG=/etc/hubbub/hubbub.toml|' \
        "$unit" >"$root/lib/systemd/system/$(basename "$unit")"
done
sed -i 's|^DynamicUser=yes|User=hubbub\nGroup=hubbub|' "$root/lib/systemd/system/hubbub.service"

install -d "$root/DEBIAN"
find "$root/etc" -type f -printf '/etc/%P\n' >"$root/DEBIAN/conffiles"
cat >"$root/DEBIAN/control" <<CONTROL
Package: hubbub
Version: $version
Architecture: $arch
Maintainer: Hubbub <hubbub@localhost>
Installed-Size: $(du -sk "$root" | cut -f1)
Depends: adduser, libc6 (>= 2.34)
Recommends: ca-certificates
Section: net
Priority: optional
Description: durable messaging server: chat rooms, queues and keys
 An acknowledged message is on disk, is delivered once and in order, and every
 client that reconnects continues without a gap. HTTP, WebSocket and a line
 protocol; an embedded store, or PostgreSQL and RabbitMQ.
CONTROL
# With DPKG_ROOT, the package is unpacked for another system, whose users and services are not those of this one.
cat >"$root/DEBIAN/postinst" <<'SCRIPT'
#!/bin/sh
set -e
if [ "$1" = configure ] && [ -z "$DPKG_ROOT" ]; then
    getent passwd hubbub >/dev/null ||
        adduser --system --group --quiet --home /var/lib/hubbub --no-create-home hubbub
    if [ -e /etc/hubbub/hubbub.toml ] && ! dpkg-statoverride --list /etc/hubbub/hubbub.toml >/dev/null; then
        chown root:hubbub /etc/hubbub/hubbub.toml
        chmod 640 /etc/hubbub/hubbub.toml
    fi
    if [ -d /run/systemd/system ]; then
        systemctl daemon-reload
        if [ -z "$2" ]; then systemctl enable --quiet --now hubbub; else systemctl try-restart hubbub; fi
    fi
fi
SCRIPT
cat >"$root/DEBIAN/prerm" <<'SCRIPT'
#!/bin/sh
set -e
if [ "$1" = remove ] && [ -z "$DPKG_ROOT" ] && [ -d /run/systemd/system ]; then
    systemctl disable --quiet --now hubbub
fi
SCRIPT
# Data stays, even after a purge: deleting it is the administrator's decision.
cat >"$root/DEBIAN/postrm" <<'SCRIPT'
#!/bin/sh
set -e
if [ -z "$DPKG_ROOT" ] && [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
SCRIPT
chmod 755 "$root"/DEBIAN/post* "$root"/DEBIAN/prerm
dpkg-deb --root-owner-group -Zgzip --build "$root" "$out/hubbub_${version}_$arch.deb" >/dev/null
