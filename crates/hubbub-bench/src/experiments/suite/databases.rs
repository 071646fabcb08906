//! Rows about PostgreSQL and RabbitMQ, each against what the database or the broker does alone in the same run.

use anyhow::Context;

use super::paired::Pair;
use super::{Bench, Row};
use crate::experiments::limits::plain_rows::rows;
use crate::experiments::limits::postgres::{Database, check_durable};
use crate::host::spawn::Server;
use crate::host::temporary::Temporary;
use crate::options::arguments;
use crate::report::{Report, grouped};
use crate::statistics::median;
use crate::workloads::engine::{self, Loading};
use crate::workloads::persist::{PersistArgs, amqp};

/// The server's own queue, emptied before each round.
const QUEUE: &str = "hubbub.room.0";

impl Bench {
    pub(super) async fn databases(&self, name: &str) -> anyhow::Result<Vec<Row>> {
        check_durable(self.postgres()?).await?;
        match name {
            "pg-rows" => self.pg_rows().await,
            "pg-kv-get" => self.pg_kv_get().await,
            "pg-kv-put" => Ok(vec![self.pg_kv_put().await?]),
            "pg-kv-miss" => Ok(vec![self.pg_kv_miss("1").await?, self.pg_kv_miss("10").await?]),
            _ => self.pg_broker(name == "pg-drain").await,
        }
    }

    pub(super) fn postgres(&self) -> anyhow::Result<&str> {
        let url = self.args.postgres.as_deref();
        url.context("--postgres URL is missing: a server where databases may be made")
    }

    fn rabbitmq(&self) -> anyhow::Result<&str> {
        self.args.rabbitmq.as_deref().context("--rabbitmq URL is missing")
    }

    /// A server on an empty database, which goes after it.
    pub(super) async fn on_postgres(
        &self,
        log: Option<&str>,
    ) -> anyhow::Result<(Temporary<Database>, Server)> {
        let database = Database::fresh(self.postgres()?).await?;
        let mut env = vec![("HUBBUB_STORE", database.url.as_str())];
        env.extend(log.map(|url| ("HUBBUB_LOG", url)));
        let server = self.fresh(&env).await?;
        Ok((database, server))
    }

    async fn persist(&self, server: &Server, database: &Database, own: &[&str]) -> anyhow::Result<Report> {
        let messages = self.args.persisted.to_string();
        let line = [&["--database", &database.url, "-n", &messages], own].concat();
        server.load::<PersistArgs>(None, &line).await
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
            let (database, server) = self.on_postgres(None).await?;
            let report = self.persist(&server, &database, &["--listen", "0", "--publishers", "8"]).await?;
            pair.real.add_beside_database(&report);
            cpu.push(processor_time(&report));
            server.kill().await?;
            let (size, count) = database.message_bytes().await?;
            bytes = size as f64 / count.max(1) as f64;
            database.remove().await?;
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
            let (database, server) = self.on_postgres(Some(url)).await?;
            let (server, own) = if is_drain {
                server.kill().await?;
                let fill = ["--fill", "--log", url, "-n", &self.args.persisted.to_string()];
                let filled = engine::measure(&arguments::<Loading<PersistArgs>>("persist", &fill)?).await?;
                filled.must_be_clean("filling the broker")?;
                let env = [("HUBBUB_STORE", database.url.as_str()), ("HUBBUB_LOG", url)];
                (self.fresh(&env).await?, &["--drain", "--log", url][..])
            } else {
                (server, &["--log", url, "--listen", "0"][..])
            };
            let report = self.persist(&server, &database, own).await?;
            server.kill().await?;
            rates.push(report.rate());
            pair.real.add_beside_database(&report);
            cpu.push(processor_time(&report));
            database.remove().await?;
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
            let (database, server) = self.on_postgres(Some(url)).await?;
            let (rate, time) = (rate.to_string(), format!("{}s", self.args.time.as_secs_f64().max(10.0)));
            let own = ["--log", url, "--rate", &rate, "--duration", &time];
            let report = self.persist(&server, &database, &own).await?;
            faults.extend(report.faults());
            p99.push(report.delivery.context("nobody listened")?.latency.p99_ms);
            server.kill().await?;
            database.remove().await?;
        }
        let middle = median(&p99);
        let what = format!("from publishing to a subscriber at {}/s, p99", grouped(rate));
        let met = middle > 0.0 && middle <= 50.0 && faults.is_empty();
        let row = Row::new(what, format!("{middle:.1} ms"), "≤ 50 ms", met);
        Ok(row.noting(format!("rounds {p99:.1?}")).with_faults(faults))
    }
}

/// Of each message, by who used it.
fn processor_time(report: &Report) -> String {
    let used: Vec<String> = report.cpu_us.iter().map(|(name, us)| format!("{name} {us:.1} µs")).collect();
    format!("processor time per message: {}", used.join(", "))
}
