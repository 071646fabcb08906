//! What each endpoint needs. It stands in the table of endpoints, and is checked before the handler begins.

use hubbub_core::ErrorCode;

use super::endpoint::Call;
use super::kv::{key_of_path, prefix_of_query};
use crate::auth::caller::Requirement;
use crate::auth::{Right, Scope};
use crate::problem::Problem;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Permission {
    /// Not said: nobody may. A test finds such endpoints.
    Unstated,
    /// Needs no token.
    Open,
    /// The token of the handshake, or of the socket's first frame; each frame is checked by itself.
    Socket,
    /// Any token. The handler leaves out of its answer what the caller may not see, or checks what the body names.
    Caller,
    /// Something with the room of the path.
    Room(Right),
    /// To join or leave the room of the path; for somebody else, to manage it.
    Membership,
    /// Something with the queue of the path.
    Queue(Right),
    /// To see that the queue of the path is there.
    KnowQueue,
    /// Something with all queues, as the client of the path.
    AllQueues(Right),
    /// To take part in queues as the client of the path.
    Client,
    /// Something with the key of the path.
    Key(Right),
    /// Something with all keys that begin as the query says.
    Keys(Right),
    /// What belongs to the user of the path.
    Own,
    /// To erase the user of the path.
    Erase,
    Scope(Scope),
    Admin,
}

impl Permission {
    /// Whether the caller may be named by the header or the query.
    pub(super) fn takes_names(self) -> bool {
        !matches!(self, Self::Open | Self::Key(_) | Self::Keys(_))
    }

    /// For people, in the documents.
    pub(super) fn about(self) -> String {
        match self {
            Self::Unstated => "nobody".into(),
            Self::Open => "everybody, without a token".into(),
            Self::Socket => "everybody; the socket is of no use before a token came over it".into(),
            Self::Caller => "every token, for what it allows".into(),
            Self::Room(right) => format!("tokens with `{}` for the room", letter(right)),
            Self::Membership => "tokens with `r` for the room; for somebody else, `m`".into(),
            Self::Queue(right) => format!("tokens with `{}` for the queue", letter(right)),
            Self::KnowQueue => "tokens with `r` or `w` for the queue".into(),
            Self::AllQueues(right) => format!("the client itself, with `{}` for all queues", letter(right)),
            Self::Client => "the client itself, with any queue".into(),
            Self::Key(right) => format!("tokens with `{}` for the key", letter(right)),
            Self::Keys(right) => format!("tokens with `{}` for all keys that begin so", letter(right)),
            Self::Own => "the user".into(),
            Self::Erase => "the user, with `w` for all rooms".into(),
            Self::Scope(scope) => format!("tokens with the scope `{}`", format!("{scope:?}").to_lowercase()),
            Self::Admin => "administrators only".into(),
        }
    }
}

fn letter(right: Right) -> char {
    match right {
        Right::Read => 'r',
        Right::Write => 'w',
        Right::Manage => 'm',
    }
}

/// Refuses a request that its caller may not make.
pub(super) fn authorize(call: &Call) -> Result<(), Problem> {
    let permission = call.endpoint.permission;
    if matches!(permission, Permission::Open | Permission::Socket) {
        return Ok(());
    }
    let caller = call.caller_ref()?;
    if caller.is_administrator() {
        return Ok(());
    }
    match permission {
        Permission::Unstated => {
            Err(Problem::new(ErrorCode::Forbidden, "this endpoint does not say who may use it"))
        }
        Permission::Open | Permission::Socket | Permission::Caller => Ok(()),
        Permission::Room(right) => caller.may(Requirement::Room(right, &call.room_text()?)),
        Permission::Membership => {
            let (room, user) = (call.room()?, call.user()?);
            let is_own = caller.user.as_ref() == Some(&user);
            let right = if is_own { Right::Read } else { Right::Manage };
            caller.may(Requirement::Room(right, room.as_str()))
        }
        Permission::Queue(right) => caller.may(Requirement::Queue(right, &call.queue_text()?)),
        Permission::KnowQueue => caller.may(Requirement::KnowQueue(&call.queue_text()?)),
        Permission::AllQueues(right) => {
            caller.may(Requirement::Client(call.client()?.as_str()))?;
            caller.may(Requirement::AllQueues(right))
        }
        Permission::Client => caller.may(Requirement::Client(call.client()?.as_str())),
        Permission::Key(right) => caller.may(Requirement::Key(right, &key_of_path(call.parameter("key"))?)),
        Permission::Keys(right) => caller.may(Requirement::Keys(right, &prefix_of_query(&call.query)?)),
        Permission::Own => caller.may(Requirement::Own(call.user()?.as_str())),
        Permission::Erase => caller.may(Requirement::Erase(call.user()?.as_str())),
        Permission::Scope(scope) => caller.may(Requirement::Scope(scope)),
        Permission::Admin => caller.may(Requirement::Admin),
    }
}
