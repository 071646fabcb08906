//! What is published, prepared by whoever submits it: the bodies in one buffer, each with its key and properties.

use std::ops::Range;

use hubbub_core::{Op, OpBatch, Timestamp};
use lapin::BasicProperties;
use lapin::types::{AMQPValue, FieldTable, ShortString};

use super::body;

/// Written to disk by the broker before it confirms.
const PERSISTENT: u8 = 2;

/// When the first message of a submission was published, in microseconds since 1970.
pub(super) const PUBLISHED_AT: &str = "hubbub-published-us";

/// One message.
#[derive(Debug)]
pub(super) struct Letter {
    /// `None` = straight to the queue that the key names.
    pub(super) exchange: Option<ShortString>,
    pub(super) key: ShortString,
    pub(super) properties: BasicProperties,
    body: Range<usize>,
}

/// The messages of one submission.
#[derive(Debug, Default)]
pub(super) struct Mail {
    pub(super) letters: Vec<Letter>,
    bodies: Vec<u8>,
}

impl Mail {
    /// The messages of `ops` on their way to `exchange`.
    pub(super) fn of_messages(ops: &OpBatch, exchange: &ShortString, now: Timestamp) -> Self {
        let mut mail =
            Self { letters: Vec::with_capacity(ops.len()), bodies: Vec::with_capacity(ops.bytes() * 2) };
        for op in ops.iter() {
            let Op::Send(send) = op else { continue };
            let start = mail.bodies.len();
            body::write(&send, &mut mail.bodies);
            let mut properties = BasicProperties::default()
                .with_delivery_mode(PERSISTENT)
                .with_content_type("application/json".into())
                .with_message_id(send.id.into());
            if mail.letters.is_empty() {
                let mut headers = FieldTable::default();
                headers.insert(PUBLISHED_AT.into(), AMQPValue::LongLongInt(now.as_micros()));
                properties = properties.with_headers(headers);
            }
            let key = format!("{}{}", body::KEY_PREFIX, send.room).into();
            let body = start..mail.bodies.len();
            mail.letters.push(Letter { exchange: Some(exchange.clone()), key, properties, body });
        }
        mail
    }

    /// Adds a message for the queue `queue`.
    pub(super) fn push(&mut self, queue: &str, properties: BasicProperties, body: &[u8]) {
        let start = self.bodies.len();
        self.bodies.extend_from_slice(body);
        let (properties, body) = (properties.with_delivery_mode(PERSISTENT), start..self.bodies.len());
        self.letters.push(Letter { exchange: None, key: queue.into(), properties, body });
    }

    pub(super) fn body(&self, letter: &Letter) -> &[u8] {
        self.bodies.get(letter.body.clone()).unwrap_or_default()
    }

    /// The rooms of its messages, one after another.
    pub(super) fn rooms(&self) -> impl Iterator<Item = &str> {
        self.letters.iter().filter_map(|letter| letter.key.as_str().strip_prefix(body::KEY_PREFIX))
    }

    /// Bytes it holds in memory, in about.
    pub(super) fn bytes(&self) -> usize {
        self.bodies.len()
    }
}
