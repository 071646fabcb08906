#!/usr/bin/env bash
# cassandra.sh install|start|stop [KILL]|pid|nodetool …|wipe: an Apache Cassandra of its own on 127.0.0.1:$CQL_PORT, data
# centre datacenter1, no login. It also takes the ports 2,000 and 1,999 below (other nodes; CQL_STORE_PORT and the one behind
# it) and 1,000 below (JMX; CQL_JMX_PORT). CASS_SYNC=batch writes to the disk before it answers; CASS_AUTHENTICATOR says who
# may log in, CASS_CONF adds lines to its configuration.
# CASS_LAZY_SCHEMA=1 does not flush changes of the schema: tests make their keyspaces faster, but a kill loses them.
# CASS_HEAP is its heap (512m). CASS_FAST=1 compiles less: half the work of a start, for tests; not for measurements.
set -euo pipefail; HERE=$(cd "$(dirname "$0")" && pwd); . "$HERE/common.sh"
PORT=${CQL_PORT:-19042}; STORE=${CQL_STORE_PORT:-$((PORT-2000))}; JMX=${CQL_JMX_PORT:-$((PORT-1000))}; H=$SVC_HOME/cassandra-$PORT
# Shared by all instances, and keyed by what is in it. The tests' directory is wiped, this one is not.
DIST=${CASS_DIST:-/var/tmp/hubbub-dist/cassandra-$(sha256sum "$HERE/cassandra/pom.xml" | cut -c1-12)}
HEAP=${CASS_HEAP:-512m}; CONF="-Dcassandra.config=file://$H/conf/cassandra.yaml -Dlogback.configurationFile=$H/conf/logback.xml"
O=""
for p in java.base/{java.io,java.lang,java.lang.module,java.lang.reflect,java.math,java.net,java.nio,java.util,java.util.concurrent,java.util.concurrent.atomic,jdk.internal.loader,jdk.internal.ref,jdk.internal.reflect,jdk.internal.math,jdk.internal.module,jdk.internal.util.jar,sun.nio.ch} jdk.management/com.sun.management.internal
do O+=" --add-opens $p=ALL-UNNAMED"; done
for p in java.base/{jdk.internal.misc,jdk.internal.ref,java.lang.ref,sun.nio.ch} java.management.rmi/com.sun.jmx.remote.internal.rmi java.rmi/sun.rmi.{registry,server,transport.tcp} java.sql/java.sql jdk.unsupported/sun.misc jdk.compiler/com.sun.tools.javac.file jdk.attach/sun.tools.attach
do O+=" --add-exports $p=ALL-UNNAMED"; done
running() { [ -f "$H/pid" ] && alive "$(cat "$H/pid")"; }
ready() { grep -qs 'Startup complete' "$H/logs/system.log" && (exec 3<>"/dev/tcp/127.0.0.1/$PORT") 2>/dev/null; }
case "${1:-}" in
install)
  [ ! -e "$DIST/complete" ] || exit 0
  mkdir -p "$DIST"
  mvn -B -q -f "$HERE/cassandra/pom.xml" org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies \
    -DoutputDirectory="$DIST/lib" -DincludeScope=runtime
  touch "$DIST/complete" ;;
start)
  if running && ready; then exit 0; fi # started before is fine, too
  mkdir -p "$H/conf" "$H/logs"; cat >"$H/conf/cassandra.yaml" <<C
cluster_name: hubbub
num_tokens: 1
initial_token: 0
auto_bootstrap: false
partitioner: org.apache.cassandra.dht.Murmur3Partitioner
endpoint_snitch: SimpleSnitch
seed_provider: [{class_name: org.apache.cassandra.locator.SimpleSeedProvider, parameters: [{seeds: "127.0.0.1:$STORE"}]}]
listen_address: 127.0.0.1
storage_port: $STORE
ssl_storage_port: $((STORE+1))
rpc_address: 127.0.0.1
native_transport_port: $PORT
start_native_transport: true
authenticator: ${CASS_AUTHENTICATOR:-AllowAllAuthenticator}
authorizer: AllowAllAuthorizer
data_file_directories: [$H/data]
commitlog_directory: $H/commitlog
saved_caches_directory: $H/saved_caches
hints_directory: $H/hints
cdc_raw_directory: $H/cdc_raw
commitlog_sync: ${CASS_SYNC:-periodic}
$([ "${CASS_SYNC:-periodic}" = batch ] || echo 'commitlog_sync_period: 1000ms')
commitlog_segment_size: 64MiB
commitlog_disk_access_mode: legacy
memtable_heap_space: 128MiB
memtable_offheap_space: 128MiB
file_cache_size: 64MiB
networking_cache_size: 32MiB
key_cache_size: 16MiB
concurrent_reads: 8
concurrent_writes: 8
concurrent_compactors: 1
batch_size_warn_threshold: 64KiB
batch_size_fail_threshold: 1024KiB
hinted_handoff_enabled: false
auto_snapshot: false
read_request_timeout: 20000ms
range_request_timeout: 20000ms
write_request_timeout: 20000ms
truncate_request_timeout: 60000ms
request_timeout: 20000ms
periodic_commitlog_sync_lag_block: 10000ms
${CASS_CONF:-}
C
  cat >"$H/conf/logback.xml" <<C
<configuration><appender name='F' class='ch.qos.logback.core.FileAppender'><file>$H/logs/system.log</file><encoder><pattern>%-5level [%thread] %date{ISO8601} %F:%L - %msg%n</pattern></encoder></appender><root level='INFO'><appender-ref ref='F'/></root></configuration>
C
  rm -f "$H/logs/system.log"
  # shellcheck disable=SC2086
  setsid java ${CASS_FAST:+-XX:TieredStopAtLevel=1} ${CASS_LAZY_SCHEMA:+-Dcassandra.test.flush_local_schema_changes=false} -Xms$HEAP -Xmx$HEAP -Xss512k -XX:+UseG1GC -XX:MaxDirectMemorySize=512m \
    -XX:+ExitOnOutOfMemoryError -javaagent:"$(ls "$DIST"/lib/jamm-*.jar)" $O -Djdk.attach.allowAttachSelf=true $CONF \
    -Dcassandra.storagedir="$H" -Dcassandra-foreground=yes -Dcassandra.jmx.local.port=$JMX -Dcassandra.ring_delay_ms=100 \
    -Dcassandra.skip_wait_for_gossip_to_settle=0 -Dcassandra.superuser_setup_delay_ms=0 -Djava.io.tmpdir="$H" \
    -Dio.netty.tryReflectionSetAccessible=true -Djava.net.preferIPv4Stack=true \
    -cp "$DIST/lib/*" org.apache.cassandra.service.CassandraDaemon >"$H/logs/out" 2>&1 </dev/null &
  P=$!; echo $P >"$H/pid"
  for _ in $(seq 1800); do
    alive $P || break
    if ready; then exit 0; fi
    sleep 0.1
  done; tail -n 20 "$H/logs/out" "$H/logs/system.log" >&2; exit 1 ;;
stop) if [ -f "$H/pid" ]; then gone "$(cat "$H/pid")" "${2:-TERM}"; fi; rm -f "$H/pid" ;;
pid) cat "$H/pid" ;;
nodetool)
  shift; mkdir -p "$H/home/.cassandra"
  # shellcheck disable=SC2086
  exec java -Xmx128m $O $CONF -Duser.home="$H/home" -cp "$DIST/lib/*" org.apache.cassandra.tools.NodeTool -h 127.0.0.1 -p $JMX "$@" ;;
wipe) "$0" stop KILL 2>/dev/null || true; rm -rf "$H" ;;
*) echo "usage: $0 install|start|stop [KILL]|pid|nodetool …|wipe" >&2; exit 2 ;;
esac
