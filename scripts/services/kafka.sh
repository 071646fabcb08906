#!/usr/bin/env bash
# kafka.sh install|start|stop [KILL]|topic …|wipe: a Kafka of its own, one node, on 127.0.0.1:$KAFKA_PORT and the port
# behind it. `install` fetches its jars from Maven Central into $KAFKA_DIST once; `topic` is Kafka's own tool of that name.
# KAFKA_CONF adds lines to its configuration, KAFKA_FORMAT arguments to the formatting of its storage, such as users.
set -euo pipefail; . "$(dirname "$0")/common.sh"
PORT=${KAFKA_PORT:-19092}; H=$SVC_HOME/kafka-$PORT; LOG=-Dorg.slf4j.simpleLogger.defaultLogLevel=warn
DIST=${KAFKA_DIST:-/var/tmp/hubbub-dist/kafka-4.3.1}; CP="$DIST/lib/*" # of no service's home: wiping one keeps it
running() { [ -f "$H/pid" ] && alive "$(cat "$H/pid")"; }
case "${1:-}" in
install)
  if [ -e "$DIST/whole" ]; then exit 0; fi
  mkdir -p "$DIST"; cat >"$DIST/pom.xml" <<'C'
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>local</groupId><artifactId>kafka-dist</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>4.3.1</version></dependency>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>4.3.1</version></dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version></dependency>
  </dependencies>
</project>
C
  cd "$DIST"
  mvn -B -q org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies -DoutputDirectory=lib -DincludeScope=runtime
  touch whole ;;
start)
  if running; then exit 0; fi # started before is fine, too
  mkdir -p "$H"; cat >"$H/server.properties" <<C
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:$((PORT+1))
listeners=PLAINTEXT://127.0.0.1:$PORT,CONTROLLER://127.0.0.1:$((PORT+1))
advertised.listeners=PLAINTEXT://127.0.0.1:$PORT
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
log.dirs=$H/data
num.network.threads=2
num.io.threads=4
log.segment.bytes=67108864
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=1000
${KAFKA_CONF:-}
C
  [ -s "$H/data/meta.properties" ] || java -Xmx128m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 $LOG -cp "$CP" kafka.tools.StorageTool \
    format -t "$(head -c16 /dev/urandom | base64 | tr '+/' '-_' | tr -d = | sed 's/^-/A/')" -c "$H/server.properties" ${KAFKA_FORMAT:-} >"$H/format.out" 2>&1 || { tail -5 "$H/format.out" >&2; exit 1; }
  setsid java -Xms256m -Xmx512m -XX:+UseG1GC -XX:MaxGCPauseMillis=20 $LOG -cp "$CP" kafka.Kafka "$H/server.properties" >"$H/out" 2>&1 </dev/null &
  P=$!; echo $P >"$H/pid"
  for _ in $(seq 1800); do
    alive $P || break
    # Its port opens only once it serves.
    if (: </dev/tcp/127.0.0.1/"$PORT") 2>/dev/null; then exit 0; fi
    sleep 0.1
  done; tail -20 "$H/out" >&2; exit 1 ;;
stop) if [ -f "$H/pid" ]; then gone "$(cat "$H/pid")" "${2:-TERM}"; fi; rm -f "$H/pid" ;;
topic) shift; exec java -Xmx128m -XX:TieredStopAtLevel=1 $LOG -cp "$CP" org.apache.kafka.tools.TopicCommand --bootstrap-server "127.0.0.1:$PORT" "$@" ;;
wipe) "$0" stop KILL 2>/dev/null || true; rm -rf "$H" ;;
*) echo "usage: $0 install|start|stop [KILL]|topic …|wipe" >&2; exit 2 ;;
esac
