#!/usr/bin/env bash
# start.sh: starts PostgreSQL, pgbouncer before it, and RabbitMQ, and says where they are. The scripts beside it say what
# can be set in the environment.
set -euo pipefail; cd "$(dirname "$0")"
./rabbitmq.sh start & RABBIT=$! # the slowest
./postgres.sh start
./pgbouncer.sh start
wait "$RABBIT"
echo "PostgreSQL  postgres://postgres@127.0.0.1:${PGPORT:-15432}/postgres"
echo "pgbouncer   postgres://postgres@127.0.0.1:${BOUNCER_PORT:-16432}/postgres (pool_mode = transaction)"
echo "RabbitMQ    amqp://guest:guest@127.0.0.1:${RMQ_PORT:-5673}/"
