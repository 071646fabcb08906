//! Connections that the administrator sees and may close: sockets and streams. Requests that wait are not among them.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hubbub_core::{RoomId, Timestamp, UserId};
use schemars::JsonSchema;
use serde::Serialize;

use super::Auth;
use super::caller::RightsSource;
use super::session::Watched;

/// Rooms that are named of each connection; the others are counted.
pub(crate) const ROOMS_NAMED: usize = 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub(crate) enum ConnectionKind {
    WebSocket,
    Line,
    // Server-Sent Events of a room.
    RoomEvents,
    // Those of changes of keys.
    KeyEvents,
    Dashboard,
}

/// What is known of an open connection, whoever uses it.
pub(crate) struct Listed {
    number: u64,
    kind: ConnectionKind,
    address: IpAddr,
    opened_at: Timestamp,
    followed: Mutex<Followed>,
}

/// The rooms a connection follows.
#[derive(Debug, Clone, Default)]
pub(crate) struct Followed {
    pub(crate) count: usize,
    /// At most [`ROOMS_NAMED`] of them.
    pub(crate) first: Vec<RoomId>,
}

impl Listed {
    pub(crate) fn new(auth: &Auth, kind: ConnectionKind, address: IpAddr) -> Arc<Self> {
        let (number, opened_at) = (auth.sessions.next_number(), auth.now());
        Arc::new(Self { number, kind, address, opened_at, followed: Mutex::default() })
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Notes which rooms it follows now.
    pub(crate) fn follow<'a>(&self, rooms: impl ExactSizeIterator<Item = &'a RoomId>) {
        let count = rooms.len();
        *self.lock() = Followed { count, first: rooms.take(ROOMS_NAMED).cloned().collect() };
    }

    fn lock(&self) -> MutexGuard<'_, Followed> {
        self.followed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An open connection at one moment.
pub(crate) struct Connection {
    pub(crate) number: u64,
    pub(crate) kind: ConnectionKind,
    pub(crate) address: IpAddr,
    pub(crate) opened_at: Timestamp,
    /// `None` = the administrator, or nobody has said a name.
    pub(crate) user: Option<UserId>,
    /// The API key it was opened with.
    pub(crate) key_id: Option<Box<str>>,
    pub(crate) followed: Followed,
}

impl Connection {
    /// `None` = it is not listed.
    pub(super) fn of(number: u64, watched: &Watched) -> Option<Self> {
        let listed = watched.listed.as_deref()?;
        let key_id = match watched.access.as_deref().map(|access| &access.source) {
            Some(RightsSource::Key(id)) => Some(id.clone()),
            _ => None,
        };
        let Listed { kind, address, opened_at, .. } = *listed;
        let (user, followed) = (watched.user.clone(), listed.lock().clone());
        Some(Self { number, kind, address, opened_at, user, key_id, followed })
    }
}

impl Auth {
    /// Open connections behind `after`, in the order in which they were opened.
    pub(crate) fn connections(&self, after: Option<u64>, limit: usize) -> Vec<Connection> {
        self.sessions.page(after, limit)
    }

    /// Has a connection close; `false` = there is none with this number.
    pub(crate) fn close_connection(&self, number: u64) -> bool {
        self.sessions.close(number)
    }
}
