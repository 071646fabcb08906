#!/usr/bin/env bash
# rabbitmq.sh start|stop [KILL]|vhost add|delete NAME|user add NAME PASSWORD|user grant NAME VHOST CONFIGURE WRITE READ|
# user delete NAME|ctl …|wipe: a RabbitMQ of its own on 127.0.0.1:$RMQ_PORT, user and password guest. RMQ_CONF adds lines
# to its configuration.
# It also takes the five ports behind it: streams, management, metrics, Erlang's own two. Where all are below those that
# the system gives to outgoing connections, nobody takes one while it is restarted.
set -euo pipefail; . "$(dirname "$0")/common.sh"
PORT=${RMQ_PORT:-5673}; STREAM=$((PORT+1)); MGMT=$((PORT+2)); METRICS=$((PORT+3)); DIST=$((PORT+4)); EPMD=$((PORT+5))
H=$SVC_HOME/rabbitmq-$PORT; SBIN=$(ls -d /usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin | sort -V | tail -1)
export HOME=$H LC_ALL=C.UTF-8 # a home of its own has a cookie of its own
export RABBITMQ_NODENAME=hubbub$PORT@localhost # the machine's name need not resolve
export RABBITMQ_NODE_IP_ADDRESS=127.0.0.1 RABBITMQ_NODE_PORT=$PORT RABBITMQ_DIST_PORT=$DIST
export ERL_EPMD_PORT=$EPMD ERL_EPMD_ADDRESS=127.0.0.1 # not shared with other Erlang programs
export RABBITMQ_MNESIA_BASE=$H/mnesia RABBITMQ_LOG_BASE=$H/log RABBITMQ_PID_FILE=$H/pid
export RABBITMQ_CONFIG_FILE=$H/rabbitmq.conf RABBITMQ_ADVANCED_CONFIG_FILE=$H/advanced.config
export RABBITMQ_ENABLED_PLUGINS_FILE=$H/enabled_plugins RABBITMQ_CONF_ENV_FILE=$H/none
export RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS="-kernel inet_dist_use_interface {127,0,0,1} +S 2:2 +sbwt none"
export RABBITMQ_CTL_ERL_ARGS="-kernel inet_dist_use_interface {127,0,0,1}"
export ERL_CRASH_DUMP=$H/erl_crash.dump # not where it was called
api() { curl -fsS -u guest:guest -o /dev/null -X "$1" -H 'content-type: application/json' "http://127.0.0.1:$MGMT/api/$2" "${@:3}"; }
grant() { api PUT "permissions/$2/$1" -d "{\"configure\":\"$3\",\"write\":\"$4\",\"read\":\"$5\"}"; }
running() { [ -f "$H/pid" ] && alive "$(cat "$H/pid")"; }
ready() { api GET "health/checks/port-listener/$PORT" 2>/dev/null; }
case "${1:-}" in
start)
  if running && ready; then exit 0; fi # started before is fine, too
  mkdir -p "$H/mnesia" "$H/log"; echo '[].' >"$H/advanced.config"
  echo '[rabbitmq_management,rabbitmq_prometheus,rabbitmq_stream,rabbitmq_consistent_hash_exchange].' >"$H/enabled_plugins"
  cat >"$H/rabbitmq.conf" <<C
listeners.tcp.1 = 127.0.0.1:$PORT
management.tcp.ip = 127.0.0.1
management.tcp.port = $MGMT
prometheus.tcp.ip = 127.0.0.1
prometheus.tcp.port = $METRICS
stream.listeners.tcp.1 = 127.0.0.1:$STREAM
stream.advertised_host = 127.0.0.1
stream.advertised_port = $STREAM
vm_memory_high_watermark.absolute = 1GB
disk_free_limit.absolute = 200MB
log.file.level = warning
${RMQ_CONF:-}
C
  setsid "$SBIN/rabbitmq-server" >"$H/log/out" 2>&1 </dev/null &
  P=$!
  for _ in $(seq 1800); do
    alive $P || break
    if ready; then exit 0; fi
    sleep 0.1
  done; tail -20 "$H/log/out" >&2; exit 1 ;;
stop) if [ -f "$H/pid" ]; then gone "$(cat "$H/pid")" "${2:-TERM}"; fi; rm -f "$H/pid"; epmd -port "$EPMD" -kill >/dev/null 2>&1 || true ;;
vhost)
  case "${2:-}" in
  add) api PUT "vhosts/$3"; grant guest "$3" '.*' '.*' '.*' ;;
  delete) api DELETE "vhosts/$3" ;;
  *) echo "usage: $0 vhost add|delete NAME" >&2; exit 2 ;;
  esac ;;
user)
  case "${2:-}" in
  add) api PUT "users/$3" -d "{\"password\":\"$4\",\"tags\":\"\"}" ;;
  grant) grant "${@:3}" ;;
  delete) api DELETE "users/$3" ;;
  *) echo "usage: $0 user add NAME PASSWORD|grant NAME VHOST CONFIGURE WRITE READ|delete NAME" >&2; exit 2 ;;
  esac ;;
ctl) shift; exec "$SBIN/rabbitmqctl" "$@" ;;
wipe) "$0" stop KILL 2>/dev/null || true; rm -rf "$H" ;;
*) echo "usage: $0 start|stop [KILL]|vhost …|user …|ctl …|wipe" >&2; exit 2 ;;
esac
