//! A publication: the messages of one submission, encoded by the submitter into one buffer.

use std::ops::Range;

use hubbub_core::{Op, OpBatch, Timestamp};
use lapin::BasicProperties;
use lapin::types::{AMQPValue, FieldTable, ShortString};

use crate::batcher::Load;
use crate::log::body;

/// Prefix of every message's routing key; the room follows.
pub(super) const KEY_PREFIX: &str = "room.";

/// Delivery mode: the broker writes the message to disk before it confirms.
const PERSISTENT: u8 = 2;

/// Header of a submission's first message: when it was published, in microseconds since 1970.
pub(super) const PUBLISHED_AT: &str = "hubbub-published-us";

#[derive(Debug)]
pub(super) struct OutgoingMessage {
    /// `None` = directly to the queue that the key names.
    pub(super) exchange: Option<ShortString>,
    pub(super) key: ShortString,
    pub(super) properties: BasicProperties,
    body: Range<usize>,
}

#[derive(Debug, Default)]
pub(super) struct Publication {
    pub(super) messages: Vec<OutgoingMessage>,
    bodies: Vec<u8>,
}

impl Publication {
    /// The messages of `ops`, addressed to `exchange`.
    pub(super) fn of_messages(ops: &OpBatch, exchange: &ShortString, now: Timestamp) -> Self {
        let mut publication =
            Self { messages: Vec::with_capacity(ops.len()), bodies: Vec::with_capacity(ops.bytes() * 2) };
        for op in ops.iter() {
            let Op::Send(send) = op else { continue };
            let mut properties = BasicProperties::default()
                .with_content_type("application/json".into())
                .with_message_id(send.id.into());
            if publication.messages.is_empty() {
                let mut headers = FieldTable::default();
                headers.insert(PUBLISHED_AT.into(), AMQPValue::LongLongInt(now.as_micros()));
                properties = properties.with_headers(headers);
            }
            let key = format!("{}{}", KEY_PREFIX, send.room).into();
            publication.push(Some(exchange.clone()), key, properties, |out| body::write(&send, out));
        }
        publication
    }

    pub(super) fn push(
        &mut self,
        exchange: Option<ShortString>,
        key: ShortString,
        properties: BasicProperties,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        let start = self.bodies.len();
        write(&mut self.bodies);
        let (properties, body) = (properties.with_delivery_mode(PERSISTENT), start..self.bodies.len());
        self.messages.push(OutgoingMessage { exchange, key, properties, body });
    }

    pub(super) fn body(&self, message: &OutgoingMessage) -> &[u8] {
        self.bodies.get(message.body.clone()).unwrap_or_default()
    }

    pub(super) fn rooms(&self) -> impl Iterator<Item = &str> {
        self.messages.iter().filter_map(|message| message.key.as_str().strip_prefix(KEY_PREFIX))
    }

    pub(super) fn load(&self) -> Load {
        Load { ops: self.messages.len(), bytes: self.bytes() }
    }

    /// Approximate memory in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bodies.len()
    }
}
