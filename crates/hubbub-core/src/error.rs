//! Error codes, and errors of single fields. Codes are stable: never renamed, never reused.

use std::borrow::Cow;

/// An error of one field: the field and its rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldError {
    /// Name of the field on the wire.
    pub field: &'static str,
    /// What the field must be.
    pub rule: Cow<'static, str>,
}

impl FieldError {
    /// An error of `field`.
    pub fn new(field: &'static str, rule: impl Into<Cow<'static, str>>) -> Self {
        Self { field, rule: rule.into() }
    }
}

macro_rules! error_codes {
    ($($(#[doc = $doc:literal])* $name:ident = $code:literal, $status:literal, $retry:literal;)*) => {
        /// The kinds of errors a client can meet, on every protocol.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum ErrorCode { $($(#[doc = $doc])* $name,)* }

        impl ErrorCode {
            /// All codes, for documents and metrics.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The stable code on the wire.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $code,)* }
            }

            /// The code that is written so on the wire; `None` where this version does not have it.
            pub fn parse(code: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|known| known.as_str() == code)
            }

            /// What it means, in a sentence.
            pub fn about(self) -> &'static str {
                match self { $(Self::$name => concat!($($doc),*).trim_ascii(),)* }
            }

            /// The HTTP status that goes with it.
            pub const fn http_status(self) -> u16 {
                match self { $(Self::$name => $status,)* }
            }

            /// Whether sending the same again, with the same `messageId`, can succeed.
            pub const fn is_retryable(self) -> bool {
                match self { $(Self::$name => $retry,)* }
            }
        }
    };
}

error_codes! {
    /// The body or frame is not JSON of the expected shape.
    Malformed = "malformed", 400, false;
    /// Fields break rules; `errors` names each.
    Invalid = "invalid", 422, false;
    /// The id belongs to another message of the room.
    IdReused = "id_reused", 422, false;
    /// There is no such room, and messages do not create rooms on this server.
    UnknownRoom = "unknown_room", 404, false;
    /// Only members of the room may do this.
    NotMember = "not_member", 403, false;
    /// The subscription ended: its user is not a member any more, or the room was deleted.
    Removed = "removed", 403, false;
    /// There is no such queue; queues must be created.
    UnknownQueue = "unknown_queue", 404, false;
    /// There is no such message in the queue or room.
    UnknownMessage = "unknown_message", 404, false;
    /// The queue holds messages.
    QueueNotEmpty = "queue_not_empty", 409, false;
    /// The queue is full; nothing was stored.
    QueueFull = "queue_full", 429, true;
    /// The sender is not registered.
    UnknownClient = "unknown_client", 422, false;
    /// The receiver is not registered.
    UnknownReceiver = "unknown_receiver", 422, false;
    /// The maximum number of clients (`queues.clients_max`) is registered.
    TooManyClients = "too_many_clients", 429, false;
    /// The lease has expired or was replaced.
    StaleReceipt = "stale_receipt", 409, false;
    /// There is no such key.
    UnknownKey = "unknown_key", 404, false;
    /// The key does not meet `If-Match` or `If-None-Match`.
    ConditionFailed = "condition_failed", 412, false;
    /// The requested changes are not kept any more; list the keys again, and continue from the revision in the answer.
    Compacted = "compacted", 410, false;
    /// There is no valid token, or it has expired or was revoked.
    Unauthorized = "unauthorized", 401, false;
    /// The caller may not do this.
    Forbidden = "forbidden", 403, false;
    /// Nothing is served at this path.
    NotFound = "not_found", 404, false;
    /// The path does not support this method.
    MethodNotAllowed = "method_not_allowed", 405, false;
    /// This server's store does not support it.
    NotSupported = "not_supported", 501, false;
    /// The body, frame or line is larger than allowed.
    TooLarge = "too_large", 413, false;
    /// The request did not arrive in time.
    RequestTimeout = "request_timeout", 408, true;
    /// The cursor is not valid any more; start again from the position in the answer.
    Reset = "reset", 410, false;
    /// This socket has the maximum number of subscriptions.
    TooManySubscriptions = "too_many_subscriptions", 429, false;
    /// The user is a member of as many rooms as allowed (`limits.user_rooms`).
    TooManyRooms = "too_many_rooms", 429, false;
    /// This user or address, or everybody together, asks for more than allowed; nothing was stored. `Retry-After` says
    /// when to try again.
    TooManyRequests = "too_many_requests", 429, true;
    /// The frame's `type` is not known.
    UnknownType = "unknown_type", 400, false;
    /// Too many operations are waiting; nothing was stored.
    Overloaded = "overloaded", 503, true;
    /// The disk is full; nothing was stored. Ends when space is freed.
    DiskFull = "disk_full", 503, true;
    /// The store does not accept writes now; nothing was stored.
    Unavailable = "unavailable", 503, true;
    /// Stored data that the operation depends on cannot be read; nothing was stored. `/health` names the damaged file.
    Unreadable = "unreadable", 500, false;
    /// There was no confirmation; it may be stored. Retry only with the same `messageId`.
    Unconfirmed = "unconfirmed", 504, true;
    /// The server is shutting down; nothing was stored.
    ShuttingDown = "shutting_down", 503, true;
    /// An error of the server itself; see its log.
    Internal = "internal", 500, true;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_distinct() {
        let mut codes: Vec<_> = ErrorCode::ALL.iter().map(|c| c.as_str()).collect();
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), ErrorCode::ALL.len());
    }

    #[test]
    fn codes_are_read_as_they_are_written() {
        for code in ErrorCode::ALL {
            assert_eq!(ErrorCode::parse(code.as_str()), Some(*code));
        }
        assert_eq!(ErrorCode::parse("Overloaded"), None);
    }
}
