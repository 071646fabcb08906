//! A message of a queue in the working set, and its states.

use std::sync::Arc;

use hubbub_core::Timestamp;
use hubbub_core::invariant::saturate;
use hubbub_core::queue::{DeadLetter, DeadReason, Delivery, LeaseReceipt};
use tokio_postgres::Row;

use super::{GroupKey, ReceiverQueue, unsigned};
use crate::db::{DbError, PgTime, Result};

/// The state of a message, with its number in the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// May be taken, once it is the first of its group.
    Ready = 0,
    /// May not be taken before it is due.
    Delayed = 1,
    /// On lease until it is due.
    Leased = 2,
    /// Delivered too often; waits to be moved to the dead-letter queue, and does not expire any more.
    Exhausted = 3,
    /// Outlived its time; waits to be cleared away. Until then it is listed as it was.
    Expired = 4,
}

impl State {
    pub(crate) fn number(self) -> i16 {
        self as i16
    }

    fn of_number(number: i16) -> Result<Self> {
        let states = [Self::Ready, Self::Delayed, Self::Leased, Self::Exhausted, Self::Expired];
        let found = states.into_iter().find(|state| state.number() == number);
        found.ok_or_else(|| unexpected(format!("the state {number}")))
    }
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
    pub(crate) dead: Option<DeadLetter>,
    /// Under which queue the database has it.
    pub(crate) stored_in: Option<i32>,
    pub(crate) is_changed: bool,
    pub(crate) is_gone: bool,
}

fn unexpected(found: String) -> DbError {
    DbError::UnexpectedRow { what: "reading a message of a queue", found }
}

/// Why a message is a dead letter, by its number in the database.
fn reason_of(number: Option<i16>) -> Result<DeadReason> {
    match number {
        Some(0) => Ok(DeadReason::Rejected),
        Some(1) => Ok(DeadReason::LeaseExpired),
        _ => Err(unexpected(format!("the reason {number:?} of a dead letter"))),
    }
}

fn micros(time: Option<PgTime>) -> Option<i64> {
    time.map(|time| time.0.as_micros())
}

impl Message {
    /// That of a row of `queue_messages`, with or without its text.
    ///
    /// # Errors
    /// Where a column has a value that the store never writes.
    pub(crate) fn of_row(row: &Row) -> Result<Self> {
        let queue = row.get("queue");
        let dead = match row.get::<_, Option<&str>>("dead_origin") {
            None => None,
            Some(origin) => Some(DeadLetter {
                origin: origin.into(),
                reason: reason_of(row.get("dead_reason"))?,
                deliveries: saturate(row.get::<_, Option<i64>>("dead_deliveries").unwrap_or(0)),
            }),
        };
        Ok(Self {
            id: row.get("id"),
            queue,
            sender: row.get("sender"),
            receiver: row.get("receiver"),
            state: State::of_number(row.get("state"))?,
            behind: row.get("behind"),
            is_copy: row.get("is_copy"),
            deliveries: saturate(row.get::<_, i64>("deliveries")),
            earlier_deliveries: saturate(row.get::<_, i64>("earlier_deliveries")),
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
        })
    }

    /// The receipt of its newest delivery, in the history that `epoch` names.
    pub(crate) fn receipt(&self, epoch: u64) -> LeaseReceipt {
        let delivery = self.earlier_deliveries.saturating_add(self.deliveries.into());
        LeaseReceipt { id: unsigned(self.id), delivery, epoch }
    }

    /// The message as it is delivered, not on lease, with the names of its queue, sender and receiver.
    pub(crate) fn into_delivery(
        self,
        queue: Arc<str>,
        sender: Arc<str>,
        receiver: Option<Arc<str>>,
    ) -> Delivery {
        Delivery {
            id: unsigned(self.id),
            queue,
            sender,
            receiver,
            text: self.text.unwrap_or_default(),
            group: self.group,
            sent_at: Timestamp::from_micros(self.sent_at),
            deliveries: self.deliveries,
            receipt: None,
            leased_until: None,
            dead: self.dead,
        }
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
