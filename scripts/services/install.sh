#!/usr/bin/env bash
# install.sh: installs the servers and tools that the tests run with (Debian or Ubuntu), and starts none of them. Needs root.
set -euo pipefail
get() { DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=600 install -y --no-install-recommends "$@"; }
missing() { for P in "$@"; do dpkg-query -W -f '${Status}' "$P" 2>/dev/null | grep -q '^install ok installed$' || echo "$P"; done; }
LIST=$(missing postgresql-15 pgbouncer rabbitmq-server prometheus nginx systemd curl jq openjdk-17-jdk-headless maven)
# The jars of Kafka and Cassandra come from Maven Central.
jars() { "$(dirname "$0")/kafka.sh" install; "$(dirname "$0")/cassandra.sh" install; }
if [ -z "$LIST" ]; then jars; exit 0; fi
# Installing a server would start it, unless this says no; what the machine's owner put there stays.
if [ ! -e /usr/sbin/policy-rc.d ]; then
  printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d; chmod +x /usr/sbin/policy-rc.d
  trap 'rm -f /usr/sbin/policy-rc.d' EXIT
fi
apt-get update -q
# First, so that no cluster "main" is made.
get postgresql-common
sed -i 's/^#*create_main_cluster.*/create_main_cluster = false/' /etc/postgresql-common/createcluster.conf
# shellcheck disable=SC2086
get $LIST
jars
