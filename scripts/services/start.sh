#!/usr/bin/env bash
# start.sh: starts PostgreSQL, pgbouncer before it, RabbitMQ, Kafka and Cassandra, and says where they are. The scripts beside
# it say what can be set in the environment.
set -euo pipefail; cd "$(dirname "$0")"
./cassandra.sh start & CASSANDRA=$! # the slowest
./rabbitmq.sh start & RABBIT=$!
./kafka.sh start & KAFKA=$!
./postgres.sh start
./pgbouncer.sh start
wait "$RABBIT"; wait "$KAFKA"; wait "$CASSANDRA"
echo "PostgreSQL  postgres://postgres@127.0.0.1:${PGPORT:-15432}/postgres"
echo "pgbouncer   postgres://postgres@127.0.0.1:${BOUNCER_PORT:-16432}/postgres (pool_mode = transaction)"
echo "RabbitMQ    amqp://guest:guest@127.0.0.1:${RMQ_PORT:-5673}/"
echo "Kafka       kafka://127.0.0.1:${KAFKA_PORT:-19092}"
echo "Cassandra   scylla://127.0.0.1:${CQL_PORT:-19042}/hubbub (store.scylla.replication = {'class': 'SimpleStrategy', 'replication_factor': 1})"
