//! Rows about keys in PostgreSQL: popular ones beside the embedded store, puts and real misses against what the database does
//! alone in the same run.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

use super::paired::Pair;
use super::{Bench, Row};
use crate::client::Target;
use crate::client::caller::get;
use crate::experiments::bare::{Kind, select, upsert};
use crate::experiments::limits::plain_rows::{make_tables, puts_rate, selects_rate};
use crate::experiments::limits::postgres::Database;
use crate::host::spawn::Server;
use crate::report::{Report, grouped};
use crate::results::ledger::sum;
use crate::statistics::median;
use crate::workloads::kv::KvArgs;

/// Gets of 100 popular keys out of 100,000, and at how many connections.
const POPULAR: [&str; 6] = ["get-popular", "--keys", "100000", "--hot", "100", "--no-preload"];
const CONNECTIONS: [&str; 3] = ["1", "10", "50"];
/// How long a server may take to see whether it is the only one on its database.
const LEASE_PATIENCE: Duration = Duration::from_secs(30);

/// What was measured at one number of connections.
#[derive(Default)]
struct Popular {
    /// At the only server on a database, and at one of two, each beside the embedded store.
    only: Pair,
    of_two: Pair,
}

impl Bench {
    /// Gets of popular keys at the embedded store, at the only server on a database, and at one of two servers, in the same
    /// round.
    pub(super) async fn pg_kv_get(&self) -> anyhow::Result<Vec<Row>> {
        let mut found = CONNECTIONS.map(|connections| (connections, Popular::default()));
        for _ in 0..self.args.rounds {
            let embedded = self.fresh(&[]).await?;
            self.put_all(&embedded).await?;
            for (connections, Popular { only, of_two }) in &mut found {
                let report = self.popular(&embedded, connections).await?;
                only.bare.add_beside_database(&report);
                of_two.bare.add_beside_database(&report);
            }
            embedded.kill().await?;
            let (database, server) = self.on_postgres(None).await?;
            self.put_all(&server).await?;
            wait_exclusive(&server, true).await?;
            for (connections, Popular { only, .. }) in &mut found {
                only.real.add_beside_database(&self.popular(&server, connections).await?);
            }
            let second = self.fresh(&[("HUBBUB_STORE", &database.url)]).await?;
            wait_exclusive(&server, false).await?;
            for (connections, Popular { of_two, .. }) in &mut found {
                of_two.real.add_beside_database(&self.popular(&server, connections).await?);
            }
            second.kill().await?;
            server.kill().await?;
            database.remove().await?;
        }
        let rows = found.iter().flat_map(|(connections, Popular { only, of_two })| {
            let what = |who| {
                format!("`GET /kv/{{key}}` of popular keys on PostgreSQL, {who}, connections: {connections}")
            };
            let of_two_servers = what("one of two servers");
            [
                only.row(&what("the only server"), "gets/s", 0.85, "≥ 85 % of the embedded store"),
                match *connections {
                    "50" => of_two.row(&of_two_servers, "gets/s", 0.4, "≥ 40 % of the embedded store"),
                    _ => of_two.row(&of_two_servers, "gets/s", 0.0, "shown, beside the embedded store"),
                },
            ]
        });
        Ok(rows.collect())
    }

    async fn put_all(&self, server: &Server) -> anyhow::Result<()> {
        let put = ["get-popular", "--keys", "100000", "--hot", "100", "--duration", "500ms"];
        server.load::<KvArgs>(None, &put).await?.must_be_clean("putting the keys")
    }

    async fn popular(&self, server: &Server, connections: &str) -> anyhow::Result<Report> {
        self.load::<KvArgs>(server, &[&POPULAR[..], &["--connections", connections]].concat()).await
    }

    /// Against a server that makes one upsert, with the row of the log, for each request, over a pool of the same size;
    /// the note has what plain upserts alone reach, without a server and without a log.
    pub(super) async fn pg_kv_put(&self) -> anyhow::Result<Row> {
        let (mut pair, mut alone) = (Pair::default(), Vec::new());
        for _ in 0..self.args.rounds {
            alone.push(puts_rate(self.postgres()?, 50, 16, 100_000, self.args.time).await?);
            let database = Database::fresh(self.postgres()?).await?;
            make_tables(&database.url).await?;
            let server =
                Server::bare(Kind::Upsert, self.dir.path(), &[(upsert::DATABASE, &database.url)]).await?;
            pair.bare.add_beside_database(&self.puts(&server, &["--unchecked"]).await?);
            server.kill().await?;
            database.remove().await?;
            let (database, server) = self.on_postgres(None).await?;
            pair.real.add_beside_database(&self.puts(&server, &[]).await?);
            server.kill().await?;
            database.remove().await?;
        }
        let what = "`PUT /kv/{key}` into PostgreSQL, 50 connections";
        let row = pair.row(what, "puts/s", 4.0, "≥ 4 × one upsert per request");
        Ok(row.noting(format!("plain upserts alone {}/s", grouped(median(&alone)))))
    }

    /// Of a server without a cache, against a server that makes one prepared select for each request, both on the same
    /// database; the note has what such selects alone reach, without a server.
    pub(super) async fn pg_kv_miss(&self, connections: &str) -> anyhow::Result<Row> {
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
        database.remove().await?;
        let what = format!("`GET /kv/{{key}}` from PostgreSQL, none in memory, connections: {connections}");
        let row = pair.row(&what, "gets/s", 0.9, "≥ 90 % of one prepared select per request");
        let alone = median(&alone);
        let share = 100.0 * pair.real.median() / alone.max(1.0);
        Ok(row.noting(format!("such selects alone {}/s, of which it reaches {share:.0} %", grouped(alone))))
    }

    async fn puts(&self, server: &Server, own: &[&str]) -> anyhow::Result<Report> {
        let line = ["put-all", "--keys", "100000", "--no-preload", "--connections", "50"];
        self.load::<KvArgs>(server, &[&line[..], own].concat()).await
    }
}

/// Waits until a server has the lease of the only one on its database, or has it no more.
async fn wait_exclusive(server: &Server, is_wanted: bool) -> anyhow::Result<()> {
    let (target, begun) = (Target::parse(&server.url)?, Instant::now());
    loop {
        let lease = sum(&get(&target, "/metrics").await?, "hubbub_kv_exclusive");
        if lease.context("the server does not say whether it is the only one")? == u64::from(is_wanted) {
            return Ok(());
        }
        let still = if is_wanted { "is not the only one" } else { "still takes itself for the only one" };
        ensure!(begun.elapsed() < LEASE_PATIENCE, "the server {still} on its database");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
