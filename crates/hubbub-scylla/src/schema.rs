//! The schema, in versions, and its migration. Each version is recorded in the table `schema_versions` when it is complete.
//!
//! Every row of the other tables belongs to one partition of the log, and is written with the number of a record of that
//! partition as its timestamp. So there are no two writers whose timestamps mean different things.

use std::collections::BTreeSet;

use hubbub_core::store::newer_schema;
use scylla::client::session::Session;
use scylla::statement::Statement;
use tokio::time::Instant;

use crate::db::{OpenError, wrong};
use crate::options::{Address, ScyllaOptions};

/// A version of the schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Version {
    /// From 1 on.
    pub number: i32,
    /// Its subject.
    pub name: &'static str,
    /// CQL statements, each of which may be repeated.
    pub statements: &'static [&'static str],
}

/// All versions, in order.
pub(crate) const VERSIONS: &[Version] = &[ROOMS, FEWER_WRITES, RETENTION, FEWER_CELLS, FENCE, SHORT_MARKS];

/// The version that this program writes.
pub(crate) const NEWEST: i32 = VERSIONS.len() as i32;

const ROOMS: Version = Version {
    number: 1,
    name: "rooms",
    statements: &[
        // What is true of the whole store: its epoch, and the log that is attached.
        "create table if not exists properties (name text primary key, value text)",
        // The next offset wanted of each partition of the log; written last.
        "create table if not exists positions (part int primary key, next_offset bigint)",
        "create type if not exists room_state (applied bigint, part int, present boolean, members_only boolean, \
         title text, retention_s bigint, head bigint, last_received bigint, floor bigint, removed bigint, \
         kept bigint, members bigint, senders bigint, first_at bigint, last_at bigint, \
         changes bigint, bucket bigint, bucket_messages bigint, bucket_bytes bigint, hour bigint)",
        // A room: everything that decisions depend on is in one partition, which changes atomically. Rows by kind:
        // 0 = bucket (number = its first message), 1 = member (name), 2 = sender (name), 3 = hour with messages (number).
        "create table if not exists rooms (room text, kind tinyint, number bigint, name text, \
         state frozen<room_state> static, seq bigint, kept bigint, texts bigint, joins bigint, \
         leaves bigint, first_at bigint, last_at bigint, primary key (room, kind, number, name))",
        // The messages of a bucket. Numbers beyond the room's head are not committed.
        "create table if not exists messages (room text, bucket bigint, seq bigint, id text, \
         user text, username text, body text, chunks int, kind tinyint, sent_at bigint, received_at bigint, \
         primary key ((room, bucket), seq))",
        // Texts that are too large for one cell.
        "create table if not exists large_texts (room text, bucket bigint, seq bigint, chunk int, body text, \
         primary key ((room, bucket), seq, chunk))",
        "create table if not exists message_ids (room text, shard smallint, id text, seq bigint, \
         received_at bigint, digest blob, primary key ((room, shard), id))",
        // Where a user's messages are, by spans of time, and which spans there are.
        "create table if not exists user_messages (user text, slot bigint, received_at bigint, room text, \
         seq bigint, bucket bigint, id text, erased bigint, primary key ((user, slot), received_at, room, seq))",
        "create table if not exists user_slots (user text, slot bigint, part int, primary key (user, slot, part))",
        // Rooms that a user has something to do with, and perhaps others.
        "create table if not exists user_rooms (user text, room text, part int, primary key (user, room))",
        // Who wrote where in an hour, and the hours that there are.
        "create table if not exists hour_users (hour bigint, part int, room text, user text, texts bigint, \
         joins bigint, leaves bigint, first_at bigint, last_at bigint, seq bigint, \
         primary key ((hour, part), room, user))",
        "create table if not exists hours (part int, hour bigint, primary key (part, hour))",
        // Names of rooms, and perhaps of deleted ones.
        "create table if not exists room_names (part int, room text, primary key (part, room))",
        // Rooms whose messages up to a number are gone and still to be removed: they were deleted, or have expired.
        "create table if not exists deleted_rooms (part int, room text, seq bigint, primary key (part, room, seq))",
    ],
};

const RETENTION: Version =
    Version { number: 3, name: "retention", statements: &["alter type room_state add expired bigint"] };

const FEWER_WRITES: Version = Version {
    number: 2,
    name: "fewer writes",
    statements: &[
        // Where a user's first messages in each room are. It has the key of `user_rooms`.
        "create table if not exists user_firsts (user text, received_at bigint, room text, seq bigint, bucket bigint, \
         id text, erased bigint, primary key (user, received_at, room, seq))",
        "alter type room_state add ids bigint",
    ],
};

const FEWER_CELLS: Version = Version {
    number: 4,
    name: "fewer cells",
    statements: &[
        // The counts of a sender, in a room and in an hour. Columns of their own in rows that are older.
        "alter table rooms add counts blob",
        "alter table hour_users add counts blob",
        // Of the room, which is not in `user_rooms` only because of a user's first messages.
        "alter table user_firsts add part int",
    ],
};

const FENCE: Version = Version {
    number: 5,
    name: "fence",
    // The version that the server writes that moved the position. One that knows less goes no further from there.
    statements: &["alter table positions add version int"],
};

const SHORT_MARKS: Version = Version {
    number: 6,
    name: "short marks",
    // Read as a whole, again and again, past the marks of all that was removed. One that comes back is removed again.
    statements: &["alter table deleted_rooms with gc_grace_seconds = 3600"],
};

const KEYSPACES: &str = "select keyspace_name from system_schema.keyspaces where keyspace_name = ?";
const RECORDED_TABLE: &str =
    "select table_name from system_schema.tables where keyspace_name = ? and table_name = 'schema_versions'";
const RECORDED: &str = "create table if not exists schema_versions (part text, version int, name text, \
     primary key (part, version))";

/// Versions that are not there yet. With `run` they are executed, and the keyspace is created.
pub(crate) async fn migrate(
    session: &Session,
    address: &Address,
    options: &ScyllaOptions,
    run: bool,
) -> Result<Vec<Version>, OpenError> {
    let keyspace = &address.keyspace;
    let found = session.query_unpaged(KEYSPACES, (keyspace,)).await;
    let found = found.map_err(wrong("listing keyspaces"))?.into_rows_result();
    let is_there = found.is_ok_and(|rows| rows.rows_num() > 0);
    if run {
        let create =
            format!("create keyspace if not exists {keyspace} with replication = {}", options.replication);
        ddl(session, keyspace, if is_there { None } else { Some(create) }).await?;
    } else if !is_there {
        return Ok(VERSIONS.to_vec());
    }
    let settling = Settling::begin();
    // What another server creates at this moment is not everywhere yet.
    while let Err(error) = session.use_keyspace(keyspace, false).await {
        if !run || !settling.goes_on().await {
            return Err(wrong("using the keyspace")(error));
        }
    }
    if run {
        ddl(session, keyspace, Some(RECORDED.to_owned())).await?;
    }
    let recorded = if run || has_recorded(session, keyspace).await? {
        recorded(session).await?
    } else {
        BTreeSet::new()
    };
    if let Some(newer) = recorded.last().copied().filter(|newest| *newest > NEWEST) {
        return Err(OpenError(newer_schema(newer.into(), NEWEST.into())));
    }
    let missing: Vec<Version> =
        VERSIONS.iter().filter(|version| !recorded.contains(&version.number)).copied().collect();
    if run {
        for version in &missing {
            for statement in version.statements {
                ddl(session, keyspace, Some((*statement).to_owned())).await?;
            }
            let insert = "insert into schema_versions (part, version, name) values ('hubbub', ?, ?)";
            let inserted = session.query_unpaged(insert, (version.number, version.name)).await;
            inserted.map_err(wrong("recording the schema's version"))?;
        }
    }
    Ok(missing)
}

/// Whether anything was recorded ever. What cannot be read is not taken for an empty schema.
async fn has_recorded(session: &Session, keyspace: &str) -> Result<bool, OpenError> {
    let what = "looking for the table of the schema's versions";
    let found = session.query_unpaged(RECORDED_TABLE, (keyspace,)).await.map_err(wrong(what))?;
    Ok(found.into_rows_result().map_err(wrong(what))?.rows_num() > 0)
}

async fn recorded(session: &Session) -> Result<BTreeSet<i32>, OpenError> {
    let select = "select version from schema_versions where part = 'hubbub'";
    let rows = session.query_unpaged(select, &[]).await.map_err(wrong("reading the schema's version"))?;
    let rows = rows.into_rows_result().map_err(wrong("reading the schema's version"))?;
    let rows = rows.rows::<(i32,)>().map_err(wrong("reading the schema's version"))?;
    rows.map(|row| row.map(|(version,)| version).map_err(wrong("reading the schema's version"))).collect()
}

/// Whether a statement adds a field to a type, or a column to a table, that has it: not every server knows `if not exists`
/// there.
async fn has_field(session: &Session, keyspace: &str, statement: &str) -> Result<bool, OpenError> {
    let added = |kind| statement.strip_prefix(kind).and_then(|rest| rest.split_once(" add "));
    let field = |rest: &str| rest.split(' ').next().unwrap_or_default().to_owned();
    let what = "reading what a type or a table has";
    if let Some((name, rest)) = added("alter type ") {
        let select = "select field_names from system_schema.types where keyspace_name = ? and type_name = ?";
        let rows = session.query_unpaged(select, (keyspace, name)).await.map_err(wrong(what))?;
        let rows = rows.into_rows_result().map_err(wrong(what))?;
        let fields = rows.maybe_first_row::<(Vec<String>,)>().map_err(wrong(what))?;
        return Ok(fields.is_some_and(|(fields,)| fields.contains(&field(rest))));
    }
    let Some((name, rest)) = added("alter table ") else { return Ok(false) };
    let select = "select column_name from system_schema.columns \
         where keyspace_name = ? and table_name = ? and column_name = ?";
    let values = (keyspace, name, field(rest));
    let rows = session.query_unpaged(select, values).await.map_err(wrong(what))?;
    Ok(rows.into_rows_result().map_err(wrong(what))?.rows_num() > 0)
}

/// Executes a statement that changes the schema. Two servers may do so at the same time: both execute the same.
async fn ddl(session: &Session, keyspace: &str, cql: Option<String>) -> Result<(), OpenError> {
    let Some(cql) = cql else { return Ok(()) };
    let what = cql.split('(').next().unwrap_or_default().trim().to_owned();
    let mut statement = Statement::new(cql.as_str());
    statement.set_request_timeout(Some(DDL_TIMEOUT));
    statement.set_is_idempotent(true);
    let settling = Settling::begin();
    // Asked before each attempt: another server may have added it since.
    while !has_field(session, keyspace, &cql).await? {
        let Err(error) = session.query_unpaged(statement.clone(), &[]).await else { break };
        if !settling.goes_on().await {
            return Err(OpenError(format!("{what}: {error}")));
        }
    }
    Ok(())
}

/// The time in which a step is tried again that fails because another server changes the schema at the same moment.
pub(crate) struct Settling {
    until: Instant,
}

impl Settling {
    pub(crate) fn begin() -> Self {
        Self { until: Instant::now() + SETTLING_TIME }
    }

    /// Pauses before the next attempt; false = there is none.
    pub(crate) async fn goes_on(&self) -> bool {
        let goes_on = Instant::now() < self.until;
        if goes_on {
            tokio::time::sleep(SETTLING_PAUSE).await;
        }
        goes_on
    }
}

/// Time for changes of the schema to be known to all nodes.
const SETTLING_TIME: std::time::Duration = std::time::Duration::from_secs(5);
const SETTLING_PAUSE: std::time::Duration = std::time::Duration::from_millis(200);

/// Longest wait for a change of the schema, which all nodes must agree on.
const DDL_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(60);
