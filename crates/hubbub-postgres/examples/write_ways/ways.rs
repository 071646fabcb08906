//! The ways to write a batch.

use futures_util::future::try_join;
use futures_util::pin_mut;
use tokio_postgres::binary_copy::BinaryCopyInWriter;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error, Statement};

use crate::Failure;
use crate::batch::{Batch, HEADS, ID_TYPES, IDS, INT, LOCK, LONG, MESSAGE_TYPES, MESSAGES, Param};

/// As [`LOCK`], for those who find out about others at the commit.
const LOOK: &str = "select no, head from rooms where no = any($1) order by no";
const STAGING: &str = "create temp table staging (room int, sender int, seq bigint, received_at timestamptz, \
     sent_at timestamptz, kind \"char\", message_id text, username text, body text, id_hash uuid) on commit delete rows";
const COPY_TO_STAGING: &str = "copy staging from stdin binary";
const IDS_OF_STAGING: &str = "insert into message_ids (room, id_hash, received_at, seq) \
     select room, id_hash, received_at, seq from staging on conflict do nothing";
const MESSAGES_OF_STAGING: &str = "insert into messages (room, sender, seq, received_at, sent_at, kind, message_id, username, body) \
     select room, sender, seq, received_at, sent_at, kind, message_id, username, body from staging";
const COPY: &str = "copy messages (room, sender, seq, received_at, sent_at, kind, message_id, username, body) \
     from stdin binary";
const CALL: &str = "select store_batch($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)";
/// What [`CALL`] calls: the same statements. The answer is how many ids were new.
pub(crate) const FUNCTION: &str = "create function store_batch(wanted int[], counts bigint[], room int[], \
        sender int[], seq bigint[], received timestamptz[], sent timestamptz[], kind \"char\"[], id text[], name text[], \
        body text[], hash uuid[]) returns bigint language plpgsql as $$ \
    declare entered bigint; \
    begin \
        perform from rooms where no = any(wanted) order by no for update; \
        insert into messages (room, sender, seq, received_at, sent_at, kind, message_id, username, body) \
            select * from unnest(room, sender, seq, received, sent, kind, id, name, body); \
        insert into message_ids (room, id_hash, received_at, seq) select * from unnest(room, hash, received, seq) \
            on conflict do nothing; \
        get diagnostics entered = row_count; \
        update rooms r set head = r.head + n.count, messages = messages + n.count \
            from unnest(wanted, counts) n (no, count) where r.no = n.no; \
        return entered; \
    end $$";

/// A way to write a batch. In each the ids are entered with ON CONFLICT DO NOTHING, and counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Unnest,
    Parsed,
    Function,
    CopyToStaging,
    CopyMessages,
    Serializable,
}

impl Way {
    /// All of them; the first is the store's, which the others are compared with.
    pub(crate) const ALL: [Self; 6] = [
        Self::Unnest,
        Self::Parsed,
        Self::Function,
        Self::CopyToStaging,
        Self::CopyMessages,
        Self::Serializable,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Unnest => "unnest, prepared, rooms locked, read committed (the store's)",
            Self::Parsed => "the same, parsed and planned each time",
            Self::Function => "the same in one stored function",
            Self::CopyToStaging => "COPY into a staging table, from there into both",
            Self::CopyMessages => "COPY straight into messages, ids by unnest",
            Self::Serializable => "unnest, prepared, nothing locked, serializable with retries",
        }
    }
}

/// A connection with its statements.
pub(crate) struct Writer {
    client: Client,
    lock: Statement,
    look: Statement,
    messages: Statement,
    ids: Statement,
    heads: Statement,
    staged_messages: Statement,
    staged_ids: Statement,
    function: Statement,
}

impl Writer {
    pub(crate) async fn new(client: Client) -> Result<Self, Failure> {
        client.batch_execute(STAGING).await?;
        Ok(Self {
            lock: client.prepare(LOCK).await?,
            look: client.prepare(LOOK).await?,
            messages: client.prepare_typed(MESSAGES, &MESSAGE_TYPES).await?,
            ids: client.prepare_typed(IDS, &ID_TYPES).await?,
            heads: client.prepare_typed(HEADS, &[INT, LONG]).await?,
            staged_messages: client.prepare(MESSAGES_OF_STAGING).await?,
            staged_ids: client.prepare(IDS_OF_STAGING).await?,
            function: client.prepare(CALL).await?,
            client,
        })
    }

    /// Writes a batch, again and again until no other is in its way; the answer is how often that was.
    pub(crate) async fn write(&self, way: Way, batch: &Batch) -> Result<u64, Failure> {
        let mut retries = 0;
        loop {
            let done = match self.send(way, batch).await {
                Ok(entered) => self.client.batch_execute("commit").await.map(|()| entered),
                Err(error) => Err(error),
            };
            match done {
                Ok(entered) if entered == batch.seq.len() as u64 => return Ok(retries),
                Ok(entered) => return Err(format!("{entered} ids of {} were new", batch.seq.len()).into()),
                Err(error) if is_conflict(&error) => retries += 1,
                Err(error) => return Err(error.into()),
            }
            self.client.batch_execute("rollback").await?;
        }
    }

    /// Begins, together with the first statement, and sends the others. How many ids were new.
    async fn send(&self, way: Way, batch: &Batch) -> Result<u64, Error> {
        let client = &self.client;
        let begin = client.batch_execute(match way {
            Way::Serializable => "begin isolation level serializable",
            _ => "begin",
        });
        let rooms: [Param<'_>; 1] = [&batch.rooms];
        let (messages, ids, heads) = (batch.messages(), batch.ids(), batch.heads());
        match way {
            Way::Unnest | Way::Serializable => {
                let first = if way == Way::Unnest { &self.lock } else { &self.look };
                try_join(begin, client.query(first, &rooms)).await?;
                let (_, entered, _) = tokio::try_join!(
                    client.execute(&self.messages, &messages),
                    client.execute(&self.ids, &ids),
                    client.execute(&self.heads, &heads),
                )?;
                Ok(entered)
            }
            Way::Parsed => {
                try_join(begin, client.query_typed(LOCK, &[(&batch.rooms, INT)])).await?;
                let (_, entered, _) = tokio::try_join!(
                    parsed(client, MESSAGES, &MESSAGE_TYPES, &messages),
                    parsed(client, IDS, &ID_TYPES, &ids),
                    parsed(client, HEADS, &[INT, LONG], &heads),
                )?;
                Ok(entered)
            }
            Way::Function => {
                let mut params: Vec<Param<'_>> = vec![&batch.rooms, &batch.counts];
                params.extend(messages);
                params.push(&batch.hash);
                let (_, row) = try_join(begin, client.query_one(&self.function, &params)).await?;
                Ok(row.get::<_, i64>(0).unsigned_abs())
            }
            Way::CopyToStaging => {
                try_join(begin, client.query(&self.lock, &rooms)).await?;
                copy(client, COPY_TO_STAGING, batch, true).await?;
                let (_, entered, _) = tokio::try_join!(
                    client.execute(&self.staged_messages, &[]),
                    client.execute(&self.staged_ids, &[]),
                    client.execute(&self.heads, &heads),
                )?;
                Ok(entered)
            }
            Way::CopyMessages => {
                try_join(begin, client.query(&self.lock, &rooms)).await?;
                copy(client, COPY, batch, false).await?;
                let (entered, _) =
                    tokio::try_join!(client.execute(&self.ids, &ids), client.execute(&self.heads, &heads))?;
                Ok(entered)
            }
        }
    }
}

/// Whether another transaction was in the way. Of statements on their way together those behind the one that failed only
/// say that something failed.
fn is_conflict(error: &Error) -> bool {
    let conflicts = [
        SqlState::T_R_SERIALIZATION_FAILURE,
        SqlState::T_R_DEADLOCK_DETECTED,
        SqlState::IN_FAILED_SQL_TRANSACTION,
    ];
    error.code().is_some_and(|code| conflicts.contains(code))
}

async fn parsed(client: &Client, text: &str, types: &[Type], params: &[Param<'_>]) -> Result<u64, Error> {
    let typed: Vec<_> = params.iter().copied().zip(types.iter().cloned()).collect();
    client.execute_typed(text, &typed).await
}

async fn copy(client: &Client, text: &str, batch: &Batch, with_hash: bool) -> Result<(), Error> {
    let mut types = vec![
        Type::INT4,
        Type::INT4,
        Type::INT8,
        Type::TIMESTAMPTZ,
        Type::TIMESTAMPTZ,
        Type::CHAR,
        Type::TEXT,
        Type::TEXT,
        Type::TEXT,
    ];
    types.extend(with_hash.then_some(Type::UUID));
    let writer = BinaryCopyInWriter::new(client.copy_in(text).await?, &types);
    pin_mut!(writer);
    let numbers = batch.room.iter().zip(&batch.sender).zip(&batch.seq).zip(&batch.time).zip(&batch.kind);
    let strings = batch.id.iter().zip(&batch.name).zip(&batch.body).zip(&batch.hash);
    for (((((room, sender), seq), time), kind), (((id, name), body), hash)) in numbers.zip(strings) {
        let row: [Param<'_>; 10] = [room, sender, seq, time, time, kind, id, name, body, hash];
        writer.as_mut().write(row.get(..types.len()).unwrap_or(&row)).await?;
    }
    writer.finish().await.map(drop)
}
