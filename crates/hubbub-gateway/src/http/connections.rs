//! `/v1/connections`: open sockets and streams of this server.

use hubbub_core::{ErrorCode, FieldError, RoomId, UserId};
use hyper::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;

use super::endpoint::Call;
use super::query::{LIMIT_DEFAULT, LIMIT_MAX, cut, refuse_faults};
use super::types::{Id, Time};
use super::{Answer, json_of, no_content};
use crate::auth::open_connections::{self, ConnectionKind};
use crate::problem::Problem;

/// An open socket or stream.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Connection {
    connection_id: String,
    kind: ConnectionKind,
    /// `null` = the administrator, or somebody without a name.
    user_id: Option<Id<UserId>>,
    /// The API key it was opened with.
    #[serde(skip_serializing_if = "Option::is_none")]
    key_id: Option<Box<str>>,
    /// Of the client, as far as the proxies in between are trusted.
    address: String,
    opened_at: Time,
    /// How many rooms it follows.
    rooms: usize,
    /// Ten of them.
    room_ids: Vec<Id<RoomId>>,
}

impl From<open_connections::Connection> for Connection {
    fn from(connection: open_connections::Connection) -> Self {
        let open_connections::Connection { number, kind, address, opened_at, user, key_id, followed } =
            connection;
        Self {
            connection_id: number.to_string(),
            kind,
            user_id: user.map(Id),
            key_id,
            address: address.to_canonical().to_string(),
            opened_at: Time(opened_at),
            rooms: followed.count,
            room_ids: followed.first.into_iter().map(Id).collect(),
        }
    }
}

/// The oldest first.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct ConnectionList {
    connections: Vec<Connection>,
    /// The `after` of the next page; `null` at the end.
    next: Option<String>,
}

pub(super) async fn list(call: Call) -> Answer {
    let mut faults = Vec::new();
    let limit = call.query.limit(LIMIT_DEFAULT, LIMIT_MAX, &mut faults);
    let after = call.query.get("after").map(str::parse).transpose();
    if after.is_err() {
        faults.push(FieldError::new("after", "must be the next of the page before"));
    }
    refuse_faults(faults)?;
    let open = call.gateway().auth.connections(after.unwrap_or_default(), limit.saturating_add(1));
    let (open, next) = cut(open, limit, |last| last.number.to_string());
    json_of(
        StatusCode::OK,
        &ConnectionList { connections: open.into_iter().map(Connection::from).collect(), next },
    )
}

pub(super) async fn close(call: Call) -> Answer {
    let number = call.parameter("connection").parse().ok();
    if !number.is_some_and(|number| call.gateway().auth.close_connection(number)) {
        return Err(Problem::new(
            ErrorCode::NotFound,
            "there is no such connection; it may be closed already",
        ));
    }
    tracing::info!(number, "the administrator closed a connection");
    Ok(no_content())
}
