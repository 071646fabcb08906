//! The attached log, and how far each of its partitions is applied.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::TryStreamExt;
use hubbub_core::Timestamp;
use hubbub_core::invariant::{BrokenInvariant, cast, saturate};
use hubbub_core::log_position::{Attached, ExpiredRoom, LogIdentity, LogStore, NextOffset};
use hubbub_core::store::{Read, ReadError, newer_schema};

use crate::db::{Db, DbError, PAGE_ROWS, Result};
use crate::properties::{LOG, property, set_once};
use crate::read::rooms::room_id;
use crate::schema::NEWEST;
use crate::state::RoomState;
use crate::store::{Context, Scylla};

/// An attached log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Attachment {
    pub(crate) identity: LogIdentity,
    /// What is added to a record's offset, plus 1, to make its number.
    pub(crate) base: u64,
}

impl Attachment {
    /// The attached log, if there is one.
    pub(crate) async fn read(db: &Db) -> Result<Option<Self>> {
        let Some(text) = property(db, LOG).await? else { return Ok(None) };
        let parsed = Self::parse(&text);
        let parsed =
            parsed.ok_or_else(|| DbError::new("reading the attached log", format!("damaged: {text}")));
        Ok(Some(parsed?))
    }

    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.splitn(3, ' ');
        let (base, partitions) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        Some(Self { identity: LogIdentity { id: parts.next()?.to_owned(), partitions }, base })
    }

    /// The number of the record at an offset.
    pub(crate) fn seq(&self, offset: u64) -> std::result::Result<i64, BrokenInvariant> {
        cast(self.base.saturating_add(offset).saturating_add(1), "numbers of records fit in 63 bits")
    }

    /// The next offset wanted of a partition. Fails for good where a newer program has moved it: what that has written may
    /// mean nothing to this one.
    pub(crate) async fn next_offset(&self, context: &Context, part: i32) -> Result<u64> {
        let (db, what) = (&context.db, "reading a position");
        let row = db.row::<(i64, Option<i32>)>(what, &db.statements.position, (part,)).await?;
        let Some((next, schema)) = row else { return Ok(0) };
        match schema.filter(|schema| *schema > NEWEST) {
            None => Ok(next.unsigned_abs()),
            Some(newer) => {
                let reason = newer_schema(newer.into(), NEWEST.into());
                context.status.set_outdated(&reason);
                Err(DbError::new(what, reason))
            }
        }
    }

    /// Stores the next offset wanted of a partition, behind the record `seq`.
    pub(crate) async fn set_next_offset(&self, db: &Db, part: i32, next: u64, seq: i64) -> Result<()> {
        let next: i64 = saturate(next);
        db.write("writing a position", &db.statements.set_position, (part, next, NEWEST, seq)).await
    }
}

impl LogStore for Scylla {
    fn attach(&self, log: LogIdentity) -> Read<'_, Attached> {
        Box::pin(async move {
            let (db, known) = (&self.context.db, &self.context.log);
            let was_there = match known.get() {
                Some(attached) => Some(attached.clone()),
                None => Attachment::read(db).await?,
            };
            let is_new = was_there.is_none();
            let attached = match was_there {
                Some(attached) => attached,
                None => {
                    let text = format!("0 {} {}", log.partitions, log.id);
                    let text = set_once(db, LOG, &text).await?;
                    Attachment::parse(&text).ok_or(ReadError::Unavailable { reason: text })?
                }
            };
            let attached = known.get_or_init(|| attached);
            if attached.identity == log {
                self.context.attached.fetch_add(1, Ordering::AcqRel);
                self.context.is_attached.store(true, Ordering::Release);
            }
            Ok(match attached.identity == log {
                false => Attached::Other(attached.identity.clone()),
                true if is_new => Attached::New,
                true => Attached::Same,
            })
        })
    }

    fn attached(&self) -> Read<'_, Option<LogIdentity>> {
        Box::pin(
            async move { Ok(Attachment::read(&self.context.db).await?.map(|attached| attached.identity)) },
        )
    }

    fn next_offsets(&self) -> Read<'_, Vec<NextOffset>> {
        Box::pin(async move {
            let Some(log) = self.context.log.get() else { return Ok(Vec::new()) };
            let parts = self.context.parts().into_iter();
            let reading = parts.map(async |part| Ok(log.next_offset(&self.context, part).await?));
            Ok(futures_util::future::join_all(reading).await)
        })
    }

    fn next_offset(&self, partition: u32) -> Read<'_, u64> {
        Box::pin(async move {
            let Some(log) = self.context.log.get() else { return Ok(0) };
            let part = saturate(partition);
            let next = log.next_offset(&self.context, part).await;
            Ok(next.inspect_err(|error| self.context.status.report(Some(part), Err(error.to_string())))?)
        })
    }

    fn place(&self) -> Arc<str> {
        self.context.place()
    }

    fn expired(&self, partitions: &[u32]) -> Read<'_, Vec<ExpiredRoom>> {
        let partitions: BTreeSet<i32> = partitions.iter().map(|part| saturate(*part)).collect();
        Box::pin(async move { Ok(expired(&self.context, &partitions).await?) })
    }
}

/// Most rooms in one answer to what has expired.
const EXPIRED_MAX: usize = 200;
/// Longest time that a message may outlive its retention, besides an eighth of the retention: removing is dearer the fewer
/// messages go at once.
const GRACE_MAX: Duration = Duration::from_secs(3_600);

async fn expired(context: &Context, partitions: &BTreeSet<i32>) -> Result<Vec<ExpiredRoom>> {
    let (db, what) = (&context.db, "looking for expired messages");
    // A removal cannot be undone, so it needs proven time.
    let now = context.clock.proven();
    let mut found = Vec::new();
    let mut rooms =
        db.stream::<(String, Option<RoomState>)>(what, &db.statements.all_rooms, (), PAGE_ROWS).await?;
    while let Some((room, state)) = rooms.try_next().await? {
        let state = state.filter(|state| state.present && partitions.contains(&state.part));
        let Some(state) = state else { continue };
        let own = state.retention_s.map(|seconds| Duration::from_secs(seconds.unsigned_abs()));
        let Some(kept) = own.or(context.options.retention) else { continue };
        let before = earlier(now, kept);
        let is_due = state
            .first_at
            .is_some_and(|first| Timestamp::from_micros(first) < earlier(before, (kept / 8).min(GRACE_MAX)));
        if is_due {
            let (retention_s, is_own) = (kept.as_secs(), own.is_some());
            found.push(ExpiredRoom { room: room_id(&room)?, before, retention_s, is_own });
            if found.len() == EXPIRED_MAX {
                break;
            }
        }
    }
    Ok(found)
}

/// A time before another one.
pub(crate) fn earlier(time: Timestamp, by: Duration) -> Timestamp {
    Timestamp::from_micros(time.as_micros().saturating_sub(saturate(by.as_micros())))
}
