//! One connection that gets, puts and deletes keys.

use std::sync::Arc;

use hubbub_core::clock::{RandomSource, SeededRandom};
use hubbub_core::message::write_u64;
use parking_lot::Mutex;

use super::KeyLedger;
use super::keys::{Keys, Popularity, Seen};
use crate::client::Cause;
use crate::client::caller::Caller;
use crate::client::post::split_response;
use crate::load::message_plan::share_of;
use crate::load::pace::Due;
use crate::load::worker::Worker;
use crate::results::record::Ending;

/// Operations, in the order of their numbers in the record.
pub(super) const KINDS: [&str; 3] = ["get", "put", "delete"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    Get = 0,
    Put = 1,
    Delete = 2,
}

pub(crate) struct Common {
    pub(super) keys: Keys,
    pub(super) popularity: Popularity,
    /// How often keys are read and put; the rest are deletions.
    pub(super) get: f64,
    pub(super) put: f64,
    /// What reads showed.
    pub(super) seen: Mutex<KeyLedger>,
    /// `None` = a closed loop.
    pub(super) due: Option<Arc<Due>>,
    pub(super) connections: u64,
    /// The server is a bare one and keeps nothing.
    pub(super) is_unchecked: bool,
}

pub(super) struct Client {
    pub(super) worker: Worker,
    pub(super) common: Arc<Common>,
    /// From 0 on; this connection writes the keys whose number leaves this rest when divided by all connections.
    pub(super) who: u64,
    pub(super) random: SeededRandom,
}

impl Client {
    pub(super) async fn run(mut self) {
        let common = Arc::clone(&self.common);
        let mut caller = None;
        let mut value = Vec::new();
        while !self.worker.is_over() {
            if caller.is_none() {
                caller = self.worker.connect().await;
            }
            let Some(connected) = &mut caller else { continue };
            let mut intended_us = None;
            if let Some(due) = &common.due {
                intended_us = due.next().await;
                if intended_us.is_none() {
                    break;
                }
            }
            let (kind, key) = self.draw();
            match self.operate(connected, kind, key, intended_us, &mut value).await {
                Ok(()) => self.worker.think(&self.random).await,
                Err(cause) => {
                    caller = None;
                    self.worker.lost(cause).await;
                }
            }
        }
        self.worker.hand_over();
    }

    fn draw(&self) -> (Kind, u64) {
        let Common { keys, popularity, get, put, connections, .. } = &*self.common;
        let share = share_of(self.random.next_u64());
        let kind = if share < *get {
            Kind::Get
        } else if share < get + put {
            Kind::Put
        } else {
            Kind::Delete
        };
        let key = popularity.draw(keys.len(), &self.random);
        if kind == Kind::Get {
            return (kind, key);
        }
        // The nearest one of its own.
        let own = key - key % connections + self.who;
        (kind, if own < keys.len() { own } else { self.who.min(keys.len() - 1) })
    }

    async fn operate(
        &mut self,
        caller: &mut Caller,
        kind: Kind,
        key: u64,
        intended_us: Option<u64>,
        value: &mut Vec<u8>,
    ) -> Result<(), Cause> {
        let common = Arc::clone(&self.common);
        let keys = &common.keys;
        let floor = keys.floor(key);
        let version = if kind == Kind::Get { 0 } else { keys.next_version(key, kind == Kind::Delete) };
        value.clear();
        if kind == Kind::Put {
            keys.write_value(key, version, value);
        }
        self.write(kind, key, value, caller.out());
        let begun = self.worker.begin(intended_us);
        let heard = caller
            .answer(|bytes| {
                let Some((response, rest)) = split_response(bytes)? else { return Ok(None) };
                if response.last {
                    return Err(Cause::Closed);
                }
                if kind == Kind::Get {
                    common.see(key, floor, response.status, response.body);
                }
                Ok(Some((response.status, bytes.len() - rest.len())))
            })
            .await;
        self.worker.end(begun, kind as u8, 0, keys.settle(kind, key, version, &heard));
        heard.map(|_| ())
    }

    fn write(&self, kind: Kind, key: u64, value: &[u8], out: &mut Vec<u8>) {
        let method = ["GET ", "PUT ", "DELETE "].get(kind as usize).copied().unwrap_or_default();
        let target = &self.worker.target;
        for part in [method, &target.prefix, "/kv/"] {
            out.extend_from_slice(part.as_bytes());
        }
        self.common.keys.write_key(key, out);
        out.extend_from_slice(b" HTTP/1.1\r\nHost: ");
        out.extend_from_slice(target.host.as_bytes());
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(target.headers.as_bytes());
        if kind == Kind::Put {
            out.extend_from_slice(b"Content-Length: ");
            write_u64(value.len() as u64, out);
            out.extend_from_slice(b"\r\n");
        }
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(value);
    }
}

impl Keys {
    /// What the answer to an operation says about its key.
    fn settle(&self, kind: Kind, key: u64, version: u32, heard: &Result<u16, Cause>) -> Ending {
        match (heard, kind) {
            (Ok(200 | 404), Kind::Get) => Ending::Accepted,
            (Ok(200 | 201 | 204), Kind::Put) | (Ok(204 | 404), Kind::Delete) => {
                self.acknowledged(key, version);
                Ending::Accepted
            }
            (Ok(504) | Err(_), Kind::Put | Kind::Delete) => {
                self.lost(key);
                Ending::Unconfirmed
            }
            (Ok(_), _) => Ending::Rejected,
            (Err(_), Kind::Get) => Ending::Unconfirmed,
        }
    }
}

impl Common {
    fn see(&self, key: u64, floor: u32, status: u16, body: &[u8]) {
        let value = match status {
            200 => Some(body),
            404 => None,
            _ => return,
        };
        let found = if self.is_unchecked { Seen::Right } else { self.keys.check(key, floor, value) };
        let mut seen = self.seen.lock();
        seen.found += u64::from(value.is_some());
        seen.absent += u64::from(value.is_none());
        seen.stale += u64::from(found == Seen::Stale);
        seen.wrong += u64::from(found == Seen::Wrong);
    }
}
