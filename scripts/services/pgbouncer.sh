#!/usr/bin/env bash
# pgbouncer.sh start|lead|stop|wipe: a pooler of transactions on 127.0.0.1:$BOUNCER_PORT, before the PostgreSQL on $PGPORT;
# `lead` has a running one lead to another PostgreSQL, whose clients keep their connections.
set -euo pipefail; . "$(dirname "$0")/common.sh"
PORT=${BOUNCER_PORT:-16432}; H=$SVC_HOME/pgbouncer-$PORT; RUNAS=${PGRUNAS:-postgres}
case "${1:-}" in
start)
  if [ -f "$H/pid" ] && alive "$(cat "$H/pid")"; then exit 0; fi # started before is fine, too
  mkdir -p "$H"; chmod 755 "$SVC_HOME"; rm -f "$H/pid"
  cat >"$H/ini" <<C
[databases]
* = host=127.0.0.1 port=${PGPORT:-15432} user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = $PORT
unix_socket_dir =
auth_type = any
admin_users = postgres
pool_mode = transaction
max_client_conn = 500
default_pool_size = 20
# Databases of tests come and go.
server_idle_timeout = 1
ignore_startup_parameters = extra_float_digits
logfile = $H/log
pidfile = $H/pid
C
  [ "$(id -u)" != 0 ] || chown -R "$RUNAS": "$H"
  cd /; if [ "$(id -u)" = 0 ]; then USER_IS=(-u "$RUNAS"); else USER_IS=(); fi
  pgbouncer -q -d "${USER_IS[@]}" "$H/ini"
  for _ in $(seq 100); do
    if [ -f "$H/pid" ] && (: </dev/tcp/127.0.0.1/"$PORT") 2>/dev/null; then exit 0; fi
    sleep 0.1
  done; tail -5 "$H/log" >&2; exit 1 ;;
lead) sed -i "s/ port=[0-9]* / port=$PGPORT /" "$H/ini"; kill -HUP "$(cat "$H/pid")" ;;
stop) [ ! -f "$H/pid" ] || gone "$(cat "$H/pid")" INT; rm -f "$H/pid" ;;
wipe) "$0" stop || true; rm -rf "$H" ;;
*) echo "usage: $0 start|lead|stop|wipe" >&2; exit 2 ;;
esac
