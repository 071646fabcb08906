//! The attached log, and how far each of its partitions is applied.

use std::sync::atomic::Ordering;

use hubbub_core::invariant::{BrokenInvariant, cast, saturate};
use hubbub_core::log_position::{Attached, LogIdentity, LogStore};
use hubbub_core::store::{Read, ReadError};

use crate::db::{Db, DbError, Result};
use crate::store::Scylla;

/// The name of the log among the store's properties.
const LOG: &str = "log";

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

    /// The next offset wanted of a partition.
    pub(crate) async fn next_offset(&self, db: &Db, part: i32) -> Result<u64> {
        let row = db.row::<(i64,)>("reading a position", &db.statements.position, (part,)).await?;
        Ok(row.map_or(0, |(next,)| next.unsigned_abs()))
    }

    /// Stores the next offset wanted of a partition, behind the record `seq`.
    pub(crate) async fn set_next_offset(&self, db: &Db, part: i32, next: u64, seq: i64) -> Result<()> {
        let next: i64 = saturate(next);
        db.write("writing a position", &db.statements.set_position, (part, next, seq)).await
    }
}

/// A property of the store.
pub(crate) async fn property(db: &Db, name: &str) -> Result<Option<String>> {
    let row = db.row::<(String,)>("reading a property", &db.statements.property, (name,)).await?;
    Ok(row.map(|(value,)| value))
}

/// Sets a property that has no value yet, and returns the one it has. The only lightweight transaction: two servers may
/// start at the same time.
pub(crate) async fn set_property(db: &Db, name: &'static str, value: &str) -> Result<String> {
    db.write("setting a property", &db.statements.set_property, (name, value)).await?;
    let found = property(db, name).await?;
    found.ok_or_else(|| DbError::new("setting a property", format!("{name} was set, and is not there")))
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
                    let text = set_property(db, LOG, &text).await?;
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

    fn next_offsets(&self) -> Read<'_, Vec<u64>> {
        Box::pin(async move {
            let Some(log) = self.context.log.get() else { return Ok(Vec::new()) };
            let parts = self.context.parts().into_iter().map(|part| log.next_offset(&self.context.db, part));
            Ok(futures_util::future::try_join_all(parts).await?)
        })
    }
}
