//! One message.

use std::sync::Arc;

use hubbub_core::queue::{DeadReason, LeaseReceipt};
use tokio_postgres::Row;

use super::{GroupKey, ReceiverQueue, unsigned};
use crate::db::PgTime;

/// How a message stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// May be taken, once it is the first of its group.
    Ready,
    /// May not be taken before it is due.
    Delayed,
    /// On lease until it is due.
    Leased,
    /// Delivered too often; waits to be moved to the dead-letter queue.
    Exhausted,
    /// Outlived its time; waits to be cleared away. Until then it is told of as it was.
    Expired,
}

impl State {
    /// What stands in the database.
    pub(crate) fn number(self) -> i16 {
        match self {
            Self::Ready => 0,
            Self::Delayed => 1,
            Self::Leased => 2,
            Self::Exhausted => 3,
            Self::Expired => 4,
        }
    }

    /// What stands in the database, read.
    pub(crate) fn of_number(number: i16) -> Self {
        match number {
            0 => Self::Ready,
            1 => Self::Delayed,
            2 => Self::Leased,
            3 => Self::Exhausted,
            _ => Self::Expired,
        }
    }
}

/// Why and from where a message is in a dead-letter queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Dead {
    pub(crate) origin: Arc<str>,
    pub(crate) reason: DeadReason,
    pub(crate) deliveries: u32,
}

/// One message. Times are microseconds since 1970.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) id: i64,
    pub(crate) queue: i32,
    pub(crate) sender: i32,
    pub(crate) receiver: i32,
    pub(crate) state: State,
    /// Another one of its group comes first.
    pub(crate) behind: bool,
    pub(crate) is_copy: bool,
    /// Deliveries since it came into this queue, and before.
    pub(crate) deliveries: u32,
    pub(crate) earlier_deliveries: u64,
    pub(crate) sent_at: i64,
    pub(crate) due_at: Option<i64>,
    pub(crate) begun_at: Option<i64>,
    pub(crate) expires_at: Option<i64>,
    pub(crate) known_as: Option<i64>,
    pub(crate) group: Option<Arc<str>>,
    /// Bytes of its text.
    pub(crate) bytes: i64,
    pub(crate) text: Option<String>,
    /// The message to everybody it was made of, which has its text.
    pub(crate) copy_of: Option<i64>,
    pub(crate) dead: Option<Dead>,
    /// Under which queue the database has it.
    pub(crate) stored_in: Option<i32>,
    pub(crate) is_changed: bool,
    pub(crate) is_gone: bool,
}

fn micros(time: Option<PgTime>) -> Option<i64> {
    time.map(|time| time.0.as_micros())
}

impl Message {
    /// That of a row of `queue_messages`, with or without its text.
    pub(crate) fn of_row(row: &Row) -> Self {
        let count =
            |column: &str| row.get::<_, Option<i64>>(column).and_then(|count| u32::try_from(count).ok());
        let queue = row.get("queue");
        let dead = row.get::<_, Option<&str>>("dead_origin").map(|origin| Dead {
            origin: origin.into(),
            reason: match row.get("dead_reason") {
                Some(0_i16) => DeadReason::Rejected,
                _ => DeadReason::LeaseExpired,
            },
            deliveries: count("dead_deliveries").unwrap_or(0),
        });
        Self {
            id: row.get("id"),
            queue,
            sender: row.get("sender"),
            receiver: row.get("receiver"),
            state: State::of_number(row.get("state")),
            behind: row.get("behind"),
            is_copy: row.get("is_copy"),
            deliveries: count("deliveries").unwrap_or(0),
            earlier_deliveries: u64::try_from(row.get::<_, i64>("earlier_deliveries")).unwrap_or(0),
            sent_at: row.get::<_, PgTime>("sent_at").0.as_micros(),
            due_at: micros(row.get("due_at")),
            begun_at: micros(row.get("begun_at")),
            expires_at: micros(row.get("expires_at")),
            known_as: row.get("known_as"),
            group: row.get::<_, Option<&str>>("group_id").map(Arc::from),
            bytes: row.get("bytes"),
            text: row.get("text"),
            copy_of: None,
            dead,
            stored_in: Some(queue),
            is_changed: false,
            is_gone: false,
        }
    }

    /// The receipt of its newest delivery, in the history that `epoch` names.
    pub(crate) fn receipt(&self, epoch: u64) -> LeaseReceipt {
        let delivery = self.earlier_deliveries.saturating_add(self.deliveries.into());
        LeaseReceipt { id: unsigned(self.id), delivery, epoch }
    }

    pub(crate) fn receiver_queue(&self) -> ReceiverQueue {
        (self.queue, self.receiver)
    }

    /// Whether a taker may have it, but for what time brings.
    pub(crate) fn is_open(&self) -> bool {
        !self.is_gone && !self.behind && self.state == State::Ready
    }

    /// Whether it holds up others of its group.
    pub(crate) fn is_alive(&self) -> bool {
        !self.is_gone && self.state != State::Expired
    }

    pub(crate) fn is_expired(&self, now: i64) -> bool {
        self.expires_at.is_some_and(|expires| expires <= now)
    }

    /// Its group, if it has one and waits in it.
    pub(crate) fn group_key(&self) -> Option<GroupKey> {
        let group = Arc::clone(self.group.as_ref()?);
        Some(GroupKey { queue: self.queue, receiver: self.receiver, group })
    }
}
