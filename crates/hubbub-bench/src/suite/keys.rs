//! Rows about keys and values.

use super::paired::Pair;
use super::{Bench, Fresh, Row};
use crate::bare::Kind;
use crate::client::Target;
use crate::client::get::get;
use crate::kv::{self, KvArgs};
use crate::ledger::sum;
use crate::limits::median;
use crate::options::arguments;
use crate::report::{Report, grouped};
use crate::spawn::Server;

/// Keys of the rows in which all are in memory.
const FEW: &str = "100000";
const VALUE_BYTES: u64 = 100;

impl Bench {
    async fn kv(&self, server: &Server, own: &[&str]) -> anyhow::Result<Report> {
        let (time, pid) = (format!("{}s", self.time.as_secs_f64()), server.pid.to_string());
        let line = ["--quiet", "--rows-max", "0", "--target", &server.url, "--server-pid", &pid];
        let common = ["--connections", "50", "--duration", &time];
        kv::measure(&arguments::<KvArgs>("kv", &[&line[..], &common, own].concat())?).await
    }

    async fn bare_kv(&self, own: &[&str]) -> anyhow::Result<Report> {
        let server = Server::bare(Kind::Kv).await?;
        let report = self.kv(&server, &[own, &["--unchecked", "--no-preload"]].concat()).await?;
        server.kill().await?;
        Ok(report)
    }

    /// All keys are in memory, because they were put there or read before.
    pub(super) async fn kv_get(&self) -> anyhow::Result<Row> {
        let (mut pair, mut hits) = (Pair::default(), Vec::new());
        let load = ["get-all", "--keys", FEW];
        for _ in 0..self.rounds {
            pair.bare.add_report(&self.bare_kv(&load).await?);
            let Fresh { server, _data } = self.fresh(&[]).await?;
            pair.real.add_report(&self.kv(&server, &load).await?);
            hits.push(hit_share(&server).await?);
            server.kill().await?;
        }
        let what = "`GET /kv/{key}` from memory, 50 connections";
        let mut row = pair.row(what, "gets/s", 0.60, "≥ 60 % of bare");
        row.note.push_str(&format!("; {:.1} % from memory", 100.0 * median(&hits)));
        Ok(row)
    }

    pub(super) async fn kv_put(&self) -> anyhow::Result<Row> {
        let mut pair = Pair::default();
        let load = ["put-all", "--keys", FEW];
        for _ in 0..self.rounds {
            pair.bare.add_report(&self.bare_kv(&load).await?);
            let Fresh { server, _data } = self.fresh(&[]).await?;
            pair.real.add_report(&self.kv(&server, &[&load[..], &["--no-preload"]].concat()).await?);
            server.kill().await?;
        }
        Ok(pair.row("`PUT /kv/{key}`, 50 connections", "puts/s", 0.45, "≥ 45 % of bare"))
    }

    /// A hundredth of the keys have place in memory.
    pub(super) async fn kv_miss(&self) -> anyhow::Result<Vec<Row>> {
        let cache = (self.keys * VALUE_BYTES / 100).to_string();
        let Fresh { server, _data } = self.fresh(&[("HUBBUB_KV_CACHE_BYTES", &cache)]).await?;
        let keys = self.keys.to_string();
        // The first run puts the keys and shows that they are what was put; the others only read.
        let first = self.kv(&server, &["get-all", "--keys", &keys]).await?;
        first.must_be_clean("reading what was put")?;
        let load = ["get-all", "--keys", &keys];
        let (mut pair, mut p99) = (Pair::default(), Vec::new());
        for _ in 0..self.rounds {
            pair.bare.add_report(&self.bare_kv(&load).await?);
            let report = self.kv(&server, &[&load[..], &["--no-preload"]].concat()).await?;
            p99.push(report.latency.p99_ms);
            pair.real.add_report(&report);
        }
        let hits = hit_share(&server).await?;
        server.kill().await?;
        let what = format!("`GET /kv/{{key}}`, {} keys, 1 % in memory", grouped(self.keys as f64));
        let mut row = pair.row(&what, "gets/s", 0.30, "≥ 30 % of bare");
        row.note.push_str(&format!("; {:.1} % from memory", 100.0 * hits));
        let p99 = median(&p99);
        let latency = Row {
            what: "the same, p99".to_owned(),
            measured: format!("{p99:.2} ms"),
            limit: String::new(),
            share: String::new(),
            target: "≤ 5 ms",
            ok: p99 > 0.0 && p99 <= 5.0,
            note: String::new(),
        };
        Ok(vec![row, latency])
    }
}

/// Share of all reads since the start that were answered from memory.
async fn hit_share(server: &Server) -> anyhow::Result<f64> {
    let metrics = get(&Target::parse(&server.url)?, "/metrics").await?;
    let count = |name: &str| sum(&metrics, name).unwrap_or(0) as f64;
    let (hits, misses) = (count("hubbub_kv_cache_hits_total"), count("hubbub_kv_cache_misses_total"));
    Ok(hits / (hits + misses).max(1.0))
}
