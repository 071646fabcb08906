#!/usr/bin/env bash
# postgres.sh start|stop [fast|immediate|KILL]|replica PORT|promote|run COMMAND…|wipe: a PostgreSQL on 127.0.0.1:$PGPORT.
# PGFSYNC=off at its first start makes it fast and unsafe: for tests of what it answers, never for benchmarks or crashes.
# PGTUNED=off leaves it PostgreSQL's own settings, PGCONF adds lines to its configuration then. `replica` makes it a
# streaming copy of the server on PORT; `run` runs a command as the user of the server, in its directory, with its tools
# at hand.
set -euo pipefail; . "$(dirname "$0")/common.sh"
PGBIN=${PGBIN:-$(ls -d /usr/lib/postgresql/*/bin | sort -V | tail -1)}; PORT=${PGPORT:-15432}
H=$SVC_HOME/postgres-$PORT; RUNAS=${PGRUNAS:-postgres}
as() { if [ "$(id -u)" = 0 ]; then setpriv --reuid="$RUNAS" --regid="$RUNAS" --init-groups env -i PATH="$PGBIN:$PATH" LC_ALL=C.UTF-8 HOME="$H" "$@"; else PATH="$PGBIN:$PATH" "$@"; fi; }
own() { mkdir -p "$H/sock"; chmod 755 "$SVC_HOME"; [ "$(id -u)" != 0 ] || chown -R "$RUNAS": "$H"; }
stop() {
  if [ "$1" != KILL ]; then as "$PGBIN/pg_ctl" -D "$H/data" -m "$1" -w -s stop; return; fi
  P=$(head -1 "$H/data/postmaster.pid"); ALL="$P $(ps -o pid= --ppid "$P" || true)"
  # shellcheck disable=SC2086
  kill -KILL $ALL 2>/dev/null || true
  for P in $ALL; do for _ in $(seq 300); do alive "$P" || break; sleep 0.1; done; done
  rm -f "$H/data/postmaster.pid" "$H/sock"/.s.PGSQL.* # a process that nobody waited for looks alive
}
cd / # the other user may not be able to read the current directory
case "$1" in
start)
  if [ ! -s "$H/data/PG_VERSION" ]; then
    own
    as "$PGBIN/initdb" -D "$H/data" -U postgres --auth=trust --encoding=UTF8 --locale=C.UTF-8 --no-sync --data-checksums >"$H/initdb.out" 2>&1
    cat >>"$H/data/postgresql.auto.conf" <<C
port = $PORT
listen_addresses = '127.0.0.1'
unix_socket_directories = '$H/sock'
C
    [ "${PGTUNED:-on}" = off ] || cat >>"$H/data/postgresql.auto.conf" <<C
max_connections = 300
shared_buffers = 512MB
effective_cache_size = 2GB
work_mem = 16MB
maintenance_work_mem = 256MB
wal_level = logical
max_wal_size = 4GB
checkpoint_timeout = 15min
random_page_cost = 1.1
jit = off
fsync = ${PGFSYNC:-on}
full_page_writes = ${PGFSYNC:-on}
synchronous_commit = ${PGFSYNC:-on}
C
    echo "${PGCONF:-}" >>"$H/data/postgresql.auto.conf"
  fi
  # Started before is fine, too.
  as "$PGBIN/pg_ctl" -D "$H/data" -s status >/dev/null 2>&1 || as "$PGBIN/pg_ctl" -D "$H/data" -l "$H/log" -w -t 30 -s start ;;
replica)
  own
  as "$PGBIN/pg_basebackup" -d "host=127.0.0.1 port=$2 user=postgres" -D "$H/data" -R -X stream -C -S "copy_$PORT" -c fast
  printf "port = $PORT\nunix_socket_directories = '$H/sock'\n" >>"$H/data/postgresql.auto.conf" # the last one counts
  as "$PGBIN/pg_ctl" -D "$H/data" -l "$H/log" -w -t 30 -s start ;;
promote) as "$PGBIN/pg_ctl" -D "$H/data" -w -s promote ;;
run) shift; cd "$H"; as "$@" ;;
stop) stop "${2:-fast}" ;;
wipe) stop immediate 2>/dev/null || true; rm -rf "$H" ;;
*) echo "usage: $0 start|stop [fast|immediate|KILL]|replica PORT|promote|run COMMAND…|wipe" >&2; exit 2 ;;
esac
