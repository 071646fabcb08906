#!/usr/bin/env bash
# stop.sh [wipe]: stops what start.sh started; with `wipe` also removes what it holds.
set -euo pipefail; cd "$(dirname "$0")"
if [ "${1:-}" = wipe ]; then
  ./pgbouncer.sh wipe; ./rabbitmq.sh wipe; ./kafka.sh wipe; ./cassandra.sh wipe; ./postgres.sh wipe
else
  ./pgbouncer.sh stop; ./rabbitmq.sh stop; ./kafka.sh stop; ./cassandra.sh stop; ./postgres.sh stop
fi
