//! Where the time of a batch goes: planning, execution, index maintenance, commit, network, and what is left.
//!
//! `cargo run --release -p hubbub-postgres --example batch_time [BATCH] [BATCHES] [ROUNDS] [PORT]`
//! It starts a PostgreSQL of its own with `pg_stat_statements`, `fsync` on, and removes it.
//!
//! One connection writes the same statements as the store into two databases, in turn: one with the tables as they are,
//! and one whose tables of messages and ids have no index. `begin` with the locks, three statements on their way together,
//! and `commit` are three round trips.
//!
//! - planning, execution: what `pg_stat_statements` counted for the four statements, with `track_planning`
//! - index maintenance: execution with indexes less execution without; unique checks are part of it
//! - WAL: `pg_stat_wal` with `track_wal_io_timing`, of the whole server, background included
//! - commit: the time of `commit` at the client, less an empty round trip
//! - network: an empty round trip (the median of an empty statement, on this connection, between batches) times three
//! - what is left: writing out and reading in parameters, waking, the kernel's copies

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::cast_precision_loss,
    reason = "a benchmark prints figures"
)]

#[path = "../write_ways/batch.rs"]
mod batch;
#[path = "../support/database.rs"]
mod database;
#[path = "../support/figures.rs"]
mod figures;
#[path = "../support/server.rs"]
mod server;
mod split;

use std::time::Instant;

use futures_util::future::{try_join, try_join3};
use tokio_postgres::{Client, Statement};

use batch::{Batch, HEADS, ID_TYPES, IDS, INT, LOCK, LONG, MESSAGE_TYPES, MESSAGES, Param};
use database::connect;
use figures::median;
use server::Server;
use split::{Measured, print};

type Failure = Box<dyn std::error::Error + Send + Sync>;

const CONFIG: &str = "shared_preload_libraries = 'pg_stat_statements'\npg_stat_statements.track_planning = on\n\
    track_wal_io_timing = on\nshared_buffers = 512MB\nmax_wal_size = 4GB\njit = off";
/// Batches before each round, after which statements are planned once and for all and pages are in memory.
const WARM_UP: usize = 20;
/// Statements of a batch besides `begin` and `commit`.
const STATEMENTS: i64 = 4;
/// Takes every index of messages and ids away, keys too.
const WITHOUT_INDEXES: &str = "drop index messages_of_user, messages_by_time; \
    alter table message_ids drop constraint message_ids_pkey; \
    do $$ declare part name; begin \
        for part in select name from partitions loop \
            execute format('alter table %I drop constraint %I', part, part || '_pkey'); \
        end loop; end $$";

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default: usize| arguments.next().map_or(Ok(default), |text| text.parse());
    let (size, batches, rounds, port) = (number(1_000)?, number(200)?, number(5)?, number(15_790)?);
    let server = Server::new(u16::try_from(port)?, CONFIG);
    server.start()?;
    let admin = server.url("postgres");
    let (with, without) = (
        Twin::make(&admin, "hubbub_batch_time", None).await?,
        Twin::make(&admin, "hubbub_batch_time_bare", Some(WITHOUT_INDEXES)).await?,
    );
    let (mut indexed, mut bare) = (Vec::new(), Vec::new());
    for _ in 0..rounds.max(1) {
        indexed.push(with.measure(size, batches).await?);
        bare.push(without.measure(size, batches).await?);
    }
    print(size, batches, &indexed, &bare);
    server.stop()
}

/// A connection to one of the databases.
struct Twin {
    client: Client,
    lock: Statement,
    messages: Statement,
    ids: Statement,
    heads: Statement,
    empty: Statement,
}

/// Milliseconds of a batch at the client.
#[derive(Default, Clone, Copy)]
struct Watch {
    whole: f64,
    commit: f64,
    empty: f64,
}

impl Twin {
    async fn make(server: &str, name: &str, change: Option<&str>) -> Result<Self, Failure> {
        let url = database::make(server, name).await?;
        batch::make_tables(&url).await?;
        let client = connect(&url).await?;
        client.batch_execute(change.unwrap_or_default()).await?;
        client.batch_execute("create extension pg_stat_statements").await?;
        let indexes = "select count(*) from pg_index i join pg_partition_tree('messages') t on t.relid = i.indrelid \
                       union all \
                       select count(*) from pg_index i join pg_partition_tree('message_ids') t on t.relid = i.indrelid";
        let counts: Vec<i64> = client.query(indexes, &[]).await?.iter().map(|row| row.get(0)).collect();
        let is_as_wanted = counts.iter().all(|count| (*count == 0) == change.is_some());
        if !is_as_wanted {
            return Err(format!("{name} has {counts:?} indexes on messages and ids").into());
        }
        Ok(Self {
            lock: client.prepare(LOCK).await?,
            messages: client.prepare_typed(MESSAGES, &MESSAGE_TYPES).await?,
            ids: client.prepare_typed(IDS, &ID_TYPES).await?,
            heads: client.prepare_typed(HEADS, &[INT, LONG]).await?,
            empty: client.prepare("").await?,
            client,
        })
    }

    /// Writes batches into empty tables, and asks what that took.
    async fn measure(&self, size: usize, batches: usize) -> Result<Measured, Failure> {
        batch::empty_tables(&self.client).await?;
        for _ in 0..WARM_UP {
            self.write(size).await?;
        }
        self.client.batch_execute("select pg_stat_statements_reset()").await?;
        let wal_before = self.wal().await?;
        let mut watches = Vec::new();
        for _ in 0..batches {
            watches.push(self.write(size).await?);
        }
        let wal_after = self.wal().await?;
        let per_batch = |all: f64| all / batches as f64;
        let mean = |of: fn(&Watch) -> f64| per_batch(watches.iter().map(of).sum());
        let (planning, execution) = self.statements(batches).await?;
        Ok(Measured {
            whole: mean(|watch| watch.whole),
            commit: mean(|watch| watch.commit),
            // One that had to wait for a processor would count three times.
            empty: median(&watches.iter().map(|watch| watch.empty).collect::<Vec<_>>()),
            planning: per_batch(planning),
            execution: per_batch(execution),
            wal_write: per_batch(wal_after[0] - wal_before[0]),
            wal_sync: per_batch(wal_after[1] - wal_before[1]),
        })
    }

    async fn write(&self, size: usize) -> Result<Watch, Failure> {
        let batch = Batch::new(size);
        let millis = |since: Instant| since.elapsed().as_secs_f64() * 1e3;
        let begin = Instant::now();
        self.client.execute(&self.empty, &[]).await?;
        let empty = millis(begin);
        let begin = Instant::now();
        let client = &self.client;
        let rooms: [Param<'_>; 1] = [&batch.rooms];
        // Each is sent when it is first polled, so in this order.
        try_join(client.batch_execute("begin"), client.query(&self.lock, &rooms)).await?;
        let (messages, ids, heads) = (batch.messages(), batch.ids(), batch.heads());
        try_join3(
            client.execute(&self.messages, &messages),
            client.execute(&self.ids, &ids),
            client.execute(&self.heads, &heads),
        )
        .await?;
        let committing = Instant::now();
        client.batch_execute("commit").await?;
        Ok(Watch { whole: millis(begin), commit: millis(committing), empty })
    }

    /// Milliseconds of writing and syncing the WAL since some moment.
    async fn wal(&self) -> Result<[f64; 2], Failure> {
        // What this connection did is counted when its transaction ends, at most once a second unless told so.
        self.client.batch_execute("select pg_stat_force_next_flush()").await?;
        let row = self.client.query_one("select wal_write_time, wal_sync_time from pg_stat_wal", &[]).await?;
        Ok([row.get(0), row.get(1)])
    }

    /// Milliseconds of planning and of execution of the four statements, all batches together.
    async fn statements(&self, batches: usize) -> Result<(f64, f64), Failure> {
        let text = "select coalesce(sum(total_plan_time), 0), coalesce(sum(total_exec_time), 0), \
                        coalesce(min(calls), 0), count(*) from pg_stat_statements \
                    where dbid = (select oid from pg_database where datname = current_database()) \
                        and (query like 'insert into messages %' or query like 'insert into message_ids %' \
                            or query like 'update rooms r set head%' or query like 'select no, head%for update')";
        let row = self.client.query_one(text, &[]).await?;
        let (calls, kinds): (i64, i64) = (row.get(2), row.get(3));
        if usize::try_from(calls)? != batches || kinds != STATEMENTS {
            return Err(format!(
                "{kinds} statements were counted, one of them {calls} times in {batches} batches"
            )
            .into());
        }
        Ok((row.get(0), row.get(1)))
    }
}
