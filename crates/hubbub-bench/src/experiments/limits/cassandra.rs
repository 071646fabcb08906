//! Cassandra without a server in front of it: the same rows into the same tables in batches of one partition each.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use futures_util::FutureExt as _;
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use hubbub_core::clock::{RandomSource, SeededRandom};
use hubbub_scylla::{ScyllaOptions, migrate, session};
use scylla::client::session::Session;
use scylla::serialize::row::SerializeRow;
use scylla::statement::batch::{Batch, BatchType};
use scylla::statement::prepared::PreparedStatement;
use tokio::task::JoinSet;

use crate::host::machine::seed;
use crate::host::temporary::{Remove, Temporary};
use crate::load::message_plan::{Shape, below};
use crate::load::room_load::join;

/// Replication of keyspaces that are measured with.
pub(crate) const REPLICATION: &str = "{'class': 'SimpleStrategy', 'replication_factor': 1}";
/// How long a statement may take: to remove a keyspace takes a while.
const PATIENCE: Duration = Duration::from_secs(60);
/// Copies of a keyspace, where there are as many nodes.
const COPIES_MAX: usize = 3;
/// Messages that are drawn at a time, as the store's own batches have at most.
const BATCH: u64 = 5_000;
/// Tasks that write, and statements that each has under way: together as many as the store has at most.
const LANES: u64 = 4;
const STATEMENTS: usize = 64;
/// Rows of a batch, as the store has at most.
const ROWS: usize = 250;
/// Messages of a bucket, and microseconds of a slot, as the store has them.
const BUCKET: i64 = 10_000;
const SLOT_US: i64 = 600_000_000;
/// Rooms, users and bytes of a text, as `bench persist` has them.
pub(crate) const ROOMS: u16 = 1_000;
const USERS: u32 = 10_000;
pub(crate) const TEXT_BYTES: usize = 120;

const MESSAGE: &str = "insert into messages (room, bucket, seq, id, user, body, kind, sent_at, received_at) \
     values (?, ?, ?, ?, ?, ?, 0, ?, ?) using timestamp ?";
const ID: &str = "insert into message_ids (room, shard, id, seq, received_at, digest) values (?, 0, ?, ?, ?, ?) \
     using timestamp ?";
const PLACE: &str = "insert into user_messages (user, slot, received_at, room, seq, bucket, id) \
     values (?, ?, ?, ?, ?, ?, ?) using timestamp ?";

/// A keyspace of its own.
pub(crate) struct Keyspace {
    session: Arc<Session>,
    name: String,
    pub(crate) url: String,
}

impl Keyspace {
    /// Names one; whoever uses it makes it. `cluster` is `scylla://USER:PASSWORD@HOST:PORT,HOST2:PORT`, as a server takes it; a
    /// keyspace behind that does not matter.
    pub(crate) async fn fresh(cluster: &str) -> anyhow::Result<Temporary<Self>> {
        let form = "the URL of Cassandra must be like scylla://HOST:PORT";
        let (scheme, rest) = cluster.split_once("://").context(form)?;
        let (hosts, _) = rest.split_once('/').unwrap_or((rest, ""));
        let name = format!("hubbub_bench_{:012x}", seed() & 0xffff_ffff_ffff);
        let url = format!("{scheme}://{hosts}/{name}");
        let options = ScyllaOptions { statement_timeout: PATIENCE, ..ScyllaOptions::new(&url) };
        let session = session(&options).await?;
        Ok(Temporary::new(Self { session: Arc::new(session), url, name }))
    }

    /// Replication over as many nodes as there are, three at most.
    pub(crate) fn replication(&self) -> String {
        let nodes = self.session.get_cluster_state().get_nodes_info().len();
        let factor = nodes.clamp(1, COPIES_MAX);
        format!("{{'class': 'NetworkTopologyStrategy', 'replication_factor': {factor}}}")
    }
}

impl Remove for Keyspace {
    async fn remove(&self) -> anyhow::Result<()> {
        let drop = format!("drop keyspace if exists {}", self.name);
        let dropped = self.session.query_unpaged(drop, &[]).await;
        dropped.with_context(|| format!("the keyspace {} could not be removed", self.name)).map(|_| ())
    }
}

/// Messages per second that concurrent prepared batches of one partition each reach into the tables that have a row for each
/// message: messages, ids and users' messages; and how many messages these were.
pub(crate) async fn rows_rate(cluster: &str, time: Duration) -> anyhow::Result<(f64, u64)> {
    let keyspace = Keyspace::fresh(cluster).await?;
    let options = ScyllaOptions { replication: REPLICATION.to_owned(), ..ScyllaOptions::new(&keyspace.url) };
    migrate(&options, true).await?;
    keyspace.session.use_keyspace(&keyspace.name, false).await?;
    // Where the replicas of what was just made are.
    keyspace.session.refresh_metadata().await?;
    let prepare = async |cql: &str| keyspace.session.prepare(cql).await.context("preparing a statement");
    let writer = Arc::new(Writer {
        messages: prepare(MESSAGE).await?,
        ids: prepare(ID).await?,
        places: prepare(PLACE).await?,
        session: Arc::clone(&keyspace.session),
        shape: Shape::of_residents(seed(), USERS, TEXT_BYTES),
    });
    let (begun, rows) = (Instant::now(), Arc::new(AtomicU64::new(0)));
    let mut tasks = JoinSet::new();
    for lane in 0..LANES {
        let (writer, rows) = (Arc::clone(&writer), Arc::clone(&rows));
        tasks.spawn(async move {
            let (mut seqs, mut index, random) = (HashMap::new(), lane, SeededRandom::new(seed()));
            while begun.elapsed() < time {
                let drawn = writer.draw(lane, &mut index, &random, &mut seqs);
                writer.write(&drawn).await?;
                rows.fetch_add(drawn.len() as u64, Ordering::Relaxed);
            }
            Ok(())
        });
    }
    join(tasks).await?;
    let rows = rows.load(Ordering::Relaxed);
    let rate = rows as f64 / begun.elapsed().as_secs_f64();
    keyspace.remove().await?;
    Ok((rate, rows))
}

struct Writer {
    session: Arc<Session>,
    messages: PreparedStatement,
    ids: PreparedStatement,
    places: PreparedStatement,
    shape: Shape,
}

/// A message to write.
struct Drawn<'w> {
    room: String,
    user: String,
    id: String,
    body: &'w str,
    bucket: i64,
    seq: i64,
    at: i64,
}

impl Writer {
    /// Messages of the rooms of one lane, which are not those of another, as in the store.
    fn draw(
        &self,
        lane: u64,
        index: &mut u64,
        random: &SeededRandom,
        seqs: &mut HashMap<u16, i64>,
    ) -> Vec<Drawn<'_>> {
        let at = crate::host::machine::now().as_micros();
        let mut draw = || {
            let room = below(random.next_u64(), ROOMS.into()) / LANES * LANES + lane;
            let job = self.shape.draw(random, *index, room as u16);
            *index += LANES;
            let seq = seqs.entry(job.room).or_default();
            *seq += 1;
            let mut id = Vec::new();
            self.shape.write_id(job.index, &mut id);
            Drawn {
                room: self.shape.room_name(job.room),
                user: format!("user{}", job.user),
                id: String::from_utf8_lossy(&id).into_owned(),
                body: self.shape.text(&job),
                bucket: (*seq - 1) / BUCKET * BUCKET + 1,
                seq: *seq,
                at,
            }
        };
        (0..BATCH).map(|_| draw()).collect()
    }

    async fn write(&self, drawn: &[Drawn<'_>]) -> anyhow::Result<()> {
        let (mut of_rooms, mut of_users) = (HashMap::new(), HashMap::new());
        for message in drawn {
            let Drawn { room, user, id, body, bucket, seq, at } = message;
            let digest: &[u8] = &[7; 16];
            let (messages, ids): &mut (Vec<_>, Vec<_>) = of_rooms.entry((room, bucket)).or_default();
            messages.push((room, bucket, seq, id, user, *body, at, at, seq));
            ids.push((room, id, seq, at, digest, seq));
            let slot = at.div_euclid(SLOT_US);
            let places: &mut Vec<_> = of_users.entry(user).or_default();
            places.push((user, slot, at, room, seq, bucket, id, seq));
        }
        let mut batches = Vec::new();
        for (messages, ids) in of_rooms.values() {
            batches.extend(messages.chunks(ROWS).map(|rows| self.batch(&self.messages, rows).boxed()));
            batches.extend(ids.chunks(ROWS).map(|rows| self.batch(&self.ids, rows).boxed()));
        }
        for places in of_users.values() {
            batches.extend(places.chunks(ROWS).map(|rows| self.batch(&self.places, rows).boxed()));
        }
        stream::iter(batches).buffer_unordered(STATEMENTS).try_collect().await
    }

    async fn batch<R: SerializeRow>(&self, statement: &PreparedStatement, rows: &[R]) -> anyhow::Result<()> {
        if let [row] = rows {
            self.session.execute_unpaged(statement, row).await?;
            return Ok(());
        }
        let mut batch = Batch::new(BatchType::Unlogged);
        rows.iter().for_each(|_| batch.append_statement(statement.clone()));
        self.session.batch(&batch, rows).await?;
        Ok(())
    }
}
