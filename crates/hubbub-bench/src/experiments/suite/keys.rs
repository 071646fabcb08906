//! Rows about keys and values.

use super::paired::Pair;
use super::{Bench, Row};
use crate::client::Target;
use crate::client::caller::get;
use crate::experiments::bare::Kind;
use crate::host::spawn::Server;
use crate::report::{Report, grouped};
use crate::results::ledger::sum;
use crate::statistics::median;
use crate::workloads::kv::KvArgs;

/// Keys of the rows in which all are in memory.
const FEW: &str = "100000";
const VALUE_BYTES: u64 = 100;

impl Bench {
    async fn kv(&self, server: &Server, own: &[&str]) -> anyhow::Result<Report> {
        self.load::<KvArgs>(server, &[&["--connections", "50"], own].concat()).await
    }

    async fn bare_kv(&self, kind: Kind, own: &[&str]) -> anyhow::Result<Report> {
        let own = [own, &["--unchecked", "--no-preload"]].concat();
        let server = Server::bare(kind, self.dir.path(), &[]).await?;
        server.during(async |server: &Server| self.kv(server, &own).await).await
    }

    /// All keys are in memory, because they were put there or read before.
    pub(super) async fn kv_get(&self) -> anyhow::Result<Row> {
        let (mut pair, mut hits) = (Pair::default(), Vec::new());
        let load = ["get-all", "--keys", FEW];
        for _ in 0..self.args.rounds {
            pair.bare.add(&self.bare_kv(Kind::Kv, &load).await?);
            let measuring =
                async |server: &Server| Ok((self.kv(server, &load).await?, hit_share(server).await?));
            let (report, share) = self.fresh(&[]).await?.during(measuring).await?;
            pair.real.add(&report);
            hits.push(share);
        }
        let row = pair.row("`GET /kv/{key}` from memory, 50 connections", "gets/s", 0.60, "≥ 60 % of bare");
        Ok(row.noting(format!("{:.1} % from memory", 100.0 * median(&hits))))
    }

    pub(super) async fn kv_put(&self) -> anyhow::Result<Row> {
        let mut pair = Pair::default();
        let load = ["put-all", "--keys", FEW, "--no-preload", "--connections", "50"];
        for _ in 0..self.args.rounds {
            for (kind, side) in [(Kind::Kv, &mut pair.bare), (Kind::DurableKv, &mut pair.durable)] {
                side.add(&self.bare_kv(kind, &["put-all", "--keys", FEW]).await?);
            }
            pair.real.add(&self.load_fresh::<KvArgs>(&load).await?);
        }
        Ok(pair.row("`PUT /kv/{key}`, 50 connections", "puts/s", 0.75, "≥ 75 % of durable"))
    }

    /// A hundredth of the keys have place in memory.
    pub(super) async fn kv_miss(&self) -> anyhow::Result<Vec<Row>> {
        let (cache, keys) = ((self.args.keys * VALUE_BYTES / 100).to_string(), self.args.keys.to_string());
        let load = ["get-all", "--keys", &keys];
        let (mut pair, mut p99) = (Pair::default(), Vec::new());
        let measuring = async |server: &Server| {
            // The first run puts the keys and shows that they are what was put; the others only read.
            self.kv(server, &load).await?.must_be_clean("reading what was put")?;
            for _ in 0..self.args.rounds {
                pair.bare.add(&self.bare_kv(Kind::Kv, &load).await?);
                let report = self.kv(server, &[&load[..], &["--no-preload"]].concat()).await?;
                p99.push(report.latency.p99_ms);
                pair.real.add(&report);
            }
            hit_share(server).await
        };
        let server = self.fresh(&[("HUBBUB_KV_CACHE_BYTES", &cache)]).await?;
        let hits = server.during(measuring).await?;
        let what = format!("`GET /kv/{{key}}`, {} keys, 1 % in memory", grouped(self.args.keys as f64));
        let row = pair.row(&what, "gets/s", 0.30, "≥ 30 % of bare");
        let (p99, faults) = (median(&p99), pair.real.faults);
        Ok(vec![
            row.noting(format!("{:.1} % from memory", 100.0 * hits)),
            Row::new("the same, p99", format!("{p99:.2} ms"), "≤ 5 ms", p99 > 0.0 && p99 <= 5.0)
                .with_faults(faults),
        ])
    }
}

async fn hit_share(server: &Server) -> anyhow::Result<f64> {
    let metrics = get(&Target::parse(&server.url)?, "/metrics").await?;
    let count = |name: &str| sum(&metrics, name).unwrap_or(0) as f64;
    let (hits, misses) = (count("hubbub_kv_cache_hits_total"), count("hubbub_kv_cache_misses_total"));
    Ok(hits / (hits + misses).max(1.0))
}
