//! What is asked of broker and database besides the server: how much waits, and what it costs.

use super::watch::Raw;

/// Where to ask; nothing is asked where nothing is known.
#[derive(Default, Clone)]
pub(crate) struct Source {
    /// A channel, and the queues whose messages are counted.
    #[cfg(feature = "amqp")]
    pub(crate) broker: Option<(lapin::Channel, Vec<String>)>,
    #[cfg(feature = "postgres")]
    pub(crate) database: Option<std::sync::Arc<tokio_postgres::Client>>,
}

#[cfg(feature = "postgres")]
const DATABASE: &str = "select d.xact_commit, d.blks_hit, d.blks_read, d.numbackends, \
     pg_database_size(d.datname), w.wal_bytes::float8, w.wal_sync \
     from pg_stat_database d, pg_stat_wal w where d.datname = current_database()";

impl Source {
    pub(super) async fn look(&self, raw: &mut Raw) {
        #[cfg(feature = "amqp")]
        if let Some((channel, queues)) = &self.broker {
            let mut waiting = 0;
            for queue in queues {
                waiting += super::amqp::depth(channel, queue).await.unwrap_or(0);
            }
            raw.figures.insert("in the broker".into(), waiting as f64);
        }
        #[cfg(feature = "postgres")]
        if let Some(client) = &self.database
            && let Ok(row) = client.query_one(DATABASE, &[]).await
        {
            let [commits, hit, blocks_read] = [0, 1, 2].map(|index| row.get::<_, i64>(index) as f64);
            raw.counters.insert("commits/s".into(), commits);
            raw.counters.insert("WAL MB/s".into(), row.get::<_, f64>(5) / 1e6);
            raw.counters.insert("WAL syncs/s".into(), row.get::<_, i64>(6) as f64);
            raw.counters.insert("blocks read/s".into(), blocks_read);
            raw.figures.insert("connections".into(), f64::from(row.get::<_, i32>(3)));
            raw.figures.insert("database MB".into(), row.get::<_, i64>(4) as f64 / 1e6);
            raw.ratios.insert("cache hits %".into(), (100.0 * hit, hit + blocks_read));
        }
        #[cfg(not(any(feature = "amqp", feature = "postgres")))]
        let _ = raw;
    }
}
