//! Rows about PostgreSQL and RabbitMQ, each against what the database or the broker does alone in the same run.

use anyhow::Context;

use super::paired::Pair;
use super::{Bench, Row};
use crate::bare::{Kind, select, upsert};
use crate::engine::Loading;
use crate::kv::KvArgs;
use crate::limits::plain_rows::{make_tables, puts_rate, rows, selects_rate};
use crate::limits::postgres::{Database, check_durable};
use crate::options::arguments;
use crate::persist::outcome::Outcome;
use crate::persist::{self, PersistArgs, amqp};
use crate::report::{Report, grouped};
use crate::spawn::Server;
use crate::statistics::median;

/// The server's own queue, emptied before each round.
const QUEUE: &str = "hubbub.room.0";

impl Bench {
    pub(super) async fn databases(&self, name: &str) -> anyhow::Result<Vec<Row>> {
        check_durable(self.postgres()?).await?;
        match name {
            "pg-rows" => self.pg_rows().await,
            "pg-kv-put" => Ok(vec![self.pg_kv_put().await?]),
            "pg-kv-miss" => Ok(vec![self.pg_kv_miss("1").await?, self.pg_kv_miss("10").await?]),
            _ => self.pg_broker(name == "pg-drain").await,
        }
    }

    fn postgres(&self) -> anyhow::Result<&str> {
        let url = self.args.postgres.as_deref();
        url.context("--postgres URL is missing: a server where databases may be made")
    }

    fn rabbitmq(&self) -> anyhow::Result<&str> {
        self.args.rabbitmq.as_deref().context("--rabbitmq URL is missing")
    }

    /// A server on an empty database.
    async fn on_postgres(&self, log: Option<&str>) -> anyhow::Result<(Server, Database)> {
        let database = Database::fresh(self.postgres()?).await?;
        let mut env = vec![("HUBBUB_STORE", database.url.as_str())];
        env.extend(log.map(|url| ("HUBBUB_LOG", url)));
        Ok((self.fresh(&env).await?, database))
    }

    async fn persist(&self, server: &Server, database: &Database, own: &[&str]) -> anyhow::Result<Outcome> {
        let messages = self.args.persisted.to_string();
        persist::measure_at(server, &[&["--database", &database.url, "-n", &messages], own].concat()).await
    }

    async fn empty_broker(&self) -> anyhow::Result<()> {
        use lapin::options::QueuePurgeOptions;
        let connection = amqp::connect(self.rabbitmq()?).await?;
        let channel = connection.create_channel().await?;
        // Before the server's first start there is no such queue.
        let _ = channel.queue_purge(QUEUE.into(), QueuePurgeOptions::default()).await;
        let _ = connection.close(200, "done".into()).await;
        Ok(())
    }

    async fn pg_rows(&self) -> anyhow::Result<Vec<Row>> {
        let (mut pair, mut cpu, mut bytes) = (Pair::default(), Vec::new(), 0.0);
        for _ in 0..self.args.rounds {
            pair.bare.add_rate(rows(self.postgres()?, self.args.time, None).await?.per_second);
            let (server, database) = self.on_postgres(None).await?;
            let outcome = self.persist(&server, &database, &["--listen", "0", "--publishers", "8"]).await?;
            add(&mut pair, &outcome, &mut cpu);
            server.kill().await?;
            let (size, count) = database.message_bytes().await?;
            bytes = size as f64 / count.max(1) as f64;
            database.drop().await?;
        }
        let what = "rows into PostgreSQL, direct log, ids and statistics included";
        let row = pair.row(what, "rows/s", 0.60, "≥ 60 % of plain batches");
        let what =
            format!("bytes per message in PostgreSQL, {} messages", grouped(self.args.persisted as f64));
        let met = bytes > 0.0 && bytes <= 430.0;
        let size = Row::new(what, format!("{bytes:.0}"), "≤ 430 for texts of 120 bytes", met);
        let size = size.noting("with all indexes and the table of ids").with_faults(pair.real.faults);
        Ok(vec![row.noting(cpu.join("; ")), size])
    }

    /// Everything is in the broker before the server starts (`is_drain`), or comes while it works.
    async fn pg_broker(&self, is_drain: bool) -> anyhow::Result<Vec<Row>> {
        let url = self.rabbitmq()?;
        let (mut pair, mut cpu, mut rates) = (Pair::default(), Vec::new(), Vec::new());
        for _ in 0..self.args.rounds {
            pair.bare.add_rate(amqp::bare(url, self.args.persisted, is_drain).await?);
            self.empty_broker().await?;
            let (server, database) = self.on_postgres(Some(url)).await?;
            let (server, own) = if is_drain {
                server.kill().await?;
                let fill = ["--fill", "--log", url, "-n", &self.args.persisted.to_string()];
                persist::measure(&arguments::<Loading<PersistArgs>>("persist", &fill)?).await?;
                let env = [("HUBBUB_STORE", database.url.as_str()), ("HUBBUB_LOG", url)];
                (self.fresh(&env).await?, &["--drain", "--log", url][..])
            } else {
                (server, &["--log", url, "--listen", "0"][..])
            };
            let outcome = self.persist(&server, &database, own).await?;
            server.kill().await?;
            rates.push(outcome.persisted.stored_per_second);
            add(&mut pair, &outcome, &mut cpu);
            database.drop().await?;
        }
        let (what, least, target) = if is_drain {
            ("RabbitMQ to PostgreSQL, filled before", 0.60, "≥ 60 % of RabbitMQ's consume and ack")
        } else {
            ("RabbitMQ to PostgreSQL, live", 0.65, "≥ 65 % of RabbitMQ's publish and consume")
        };
        let row = pair.row(what, "messages/s", least, target);
        let mut rows = vec![row.noting(cpu.join("; "))];
        if !is_drain {
            rows.push(self.pg_latency(url, 0.5 * median(&rates)).await?);
        }
        Ok(rows)
    }

    async fn pg_latency(&self, url: &str, rate: f64) -> anyhow::Result<Row> {
        let (mut p99, mut faults) = (Vec::new(), Vec::new());
        for _ in 0..self.args.rounds {
            self.empty_broker().await?;
            let (server, database) = self.on_postgres(Some(url)).await?;
            let (rate, time) = (rate.to_string(), format!("{}s", self.args.time.as_secs_f64().max(10.0)));
            let own = ["--log", url, "--rate", &rate, "--duration", &time];
            let outcome = self.persist(&server, &database, &own).await?;
            p99.push(outcome.arrival_latency.p99_ms);
            faults.extend(outcome.faults.iter().cloned());
            server.kill().await?;
            database.drop().await?;
        }
        let middle = median(&p99);
        let what = format!("from publishing to a subscriber at {}/s, p99", grouped(rate));
        let met = middle > 0.0 && middle <= 50.0 && faults.is_empty();
        let row = Row::new(what, format!("{middle:.1} ms"), "≤ 50 ms", met);
        Ok(row.noting(format!("rounds {p99:.1?}")).with_faults(faults))
    }

    /// Against a server that makes one upsert, with the row of the log, for each request, over a pool of the same size;
    /// the note has what plain upserts alone reach, without a server and without a log.
    async fn pg_kv_put(&self) -> anyhow::Result<Row> {
        let (mut pair, mut alone) = (Pair::default(), Vec::new());
        for _ in 0..self.args.rounds {
            alone.push(puts_rate(self.postgres()?, 50, 16, 100_000, self.args.time).await?);
            let database = Database::fresh(self.postgres()?).await?;
            make_tables(&database.url).await?;
            let server =
                Server::bare(Kind::Upsert, self.dir.path(), &[(upsert::DATABASE, &database.url)]).await?;
            pair.bare.add_beside_database(&self.puts(&server, &["--unchecked"]).await?);
            server.kill().await?;
            database.drop().await?;
            let (server, database) = self.on_postgres(None).await?;
            pair.real.add_beside_database(&self.puts(&server, &[]).await?);
            server.kill().await?;
            database.drop().await?;
        }
        let what = "`PUT /kv/{key}` into PostgreSQL, 50 connections";
        let row = pair.row(what, "puts/s", 4.0, "≥ 4 × one upsert per request");
        Ok(row.noting(format!("plain upserts alone {}/s", grouped(median(&alone)))))
    }

    /// Of a server without a cache, against a server that makes one prepared select for each request, both on the same
    /// database; the note has what such selects alone reach, without a server.
    async fn pg_kv_miss(&self, connections: &str) -> anyhow::Result<Row> {
        let (mut pair, mut alone) = (Pair::default(), Vec::new());
        let load = ["get-all", "--keys", "100000", "--connections", connections];
        let database = Database::fresh(self.postgres()?).await?;
        let env = [("HUBBUB_STORE", database.url.as_str()), ("HUBBUB_KV_CACHE_BYTES", "0")];
        let server = self.fresh(&env).await?;
        // The first run puts the keys, and shows that they are what was put; the others only read.
        self.load::<KvArgs>(&server, &load).await?.must_be_clean("reading what was put")?;
        let load = [&load[..], &["--no-preload"]].concat();
        for _ in 0..self.args.rounds {
            let callers = connections.parse().context("connections")?;
            alone.push(selects_rate(&database.url, callers, select::SELECT, self.args.time).await?);
            let bare =
                Server::bare(Kind::Select, self.dir.path(), &[(upsert::DATABASE, &database.url)]).await?;
            pair.bare.add_beside_database(&self.load::<KvArgs>(&bare, &load).await?);
            bare.kill().await?;
            pair.real.add_beside_database(&self.load::<KvArgs>(&server, &load).await?);
        }
        server.kill().await?;
        database.drop().await?;
        let what = format!("`GET /kv/{{key}}` from PostgreSQL, none in memory, connections: {connections}");
        let row = pair.row(&what, "gets/s", 0.9, "≥ 90 % of one prepared select per request");
        Ok(row.noting(format!("such selects alone {}/s", grouped(median(&alone)))))
    }

    async fn puts(&self, server: &Server, own: &[&str]) -> anyhow::Result<Report> {
        let line = ["put-all", "--keys", "100000", "--no-preload", "--connections", "50"];
        self.load::<KvArgs>(server, &[&line[..], own].concat()).await
    }
}

fn add(pair: &mut Pair, outcome: &Outcome, cpu: &mut Vec<String>) {
    pair.real.add_rate(outcome.persisted.stored_per_second);
    pair.real.faults.extend_from_slice(&outcome.faults);
    let used: Vec<String> = outcome
        .persisted
        .series
        .iter()
        .filter(|series| series.name.ends_with(" CPU"))
        .map(|series| {
            let us = 1e6 * series.average / outcome.persisted.stored_per_second.max(1.0);
            format!("{} {us:.1} µs", series.name.trim_end_matches(" CPU"))
        })
        .collect();
    cpu.push(format!("processor time per message: {}", used.join(", ")));
}
