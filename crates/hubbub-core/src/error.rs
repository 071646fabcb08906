//! Error codes, and errors of single fields. Codes are stable: never renamed, never reused.

use std::borrow::Cow;

/// An error of one field: the field and its rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Name of the field on the wire.
    pub field: &'static str,
    /// What the field must be.
    pub rule: Cow<'static, str>,
}

impl Fault {
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
    /// The body or frame is no JSON, or not of the expected shape.
    Malformed = "malformed", 400, false;
    /// A field breaks a rule; `errors` names each.
    Invalid = "invalid", 422, false;
    /// The id belongs to another message of the room.
    IdReused = "id_reused", 422, false;
    /// There is no such room and rooms do not spring into being here.
    UnknownRoom = "unknown_room", 404, false;
    /// Only members of the room may do this.
    NotMember = "not_member", 403, false;
    /// The subscription has ended: its user is no member any more, or the room is gone.
    Removed = "removed", 403, false;
    /// There is no such queue; queues are not made by use.
    UnknownQueue = "unknown_queue", 404, false;
    /// There is no such message in the queue.
    UnknownMessage = "unknown_message", 404, false;
    /// The queue holds messages.
    QueueNotEmpty = "queue_not_empty", 409, false;
    /// The queue is full; nothing was stored.
    QueueFull = "queue_full", 429, true;
    /// The sender or taker was never registered.
    UnknownClient = "unknown_client", 422, false;
    /// The receiver was never registered.
    UnknownReceiver = "unknown_receiver", 422, false;
    /// As many clients are registered as there may be (`queues.clients_max`).
    TooManyClients = "too_many_clients", 429, false;
    /// The lease has run out, or another took its place.
    StaleReceipt = "stale_receipt", 409, false;
    /// There is no such key.
    UnknownKey = "unknown_key", 404, false;
    /// The key's state is not what `If-Match` or `If-None-Match` asks for.
    ConditionFailed = "condition_failed", 412, false;
    /// The changes asked for are not kept any more; list the keys anew and go on from the revision in the answer.
    Compacted = "compacted", 410, false;
    /// The caller may not do this.
    Forbidden = "forbidden", 403, false;
    /// Nothing is served at this path.
    NotFound = "not_found", 404, false;
    /// The path does not take this method.
    MethodNotAllowed = "method_not_allowed", 405, false;
    /// This server's store cannot do it.
    NotSupported = "not_supported", 501, false;
    /// The body, frame or line is larger than allowed.
    TooLarge = "too_large", 413, false;
    /// The request did not arrive in time.
    RequestTimeout = "request_timeout", 408, true;
    /// The cursor cannot be honoured; start again from what the answer says.
    Reset = "reset", 410, false;
    /// This socket has as many subscriptions as it may.
    TooManySubscriptions = "too_many_subscriptions", 429, false;
    /// The frame's `type` is not known.
    UnknownType = "unknown_type", 400, false;
    /// More waits than the server takes on; nothing was stored.
    Overloaded = "overloaded", 503, true;
    /// The disk is full; nothing was stored. Heals when space comes back.
    DiskFull = "disk_full", 503, true;
    /// The store does not take writes now; nothing was stored.
    Unavailable = "unavailable", 503, true;
    /// What is stored of it cannot be read, so nobody can tell whether it is a repeat; nothing was stored. `/health` names
    /// the damaged file.
    Unreadable = "unreadable", 500, false;
    /// No confirmation; it may be stored. Retry with the same `messageId` only.
    Unconfirmed = "unconfirmed", 504, true;
    /// The server shuts down; nothing was stored.
    ShuttingDown = "shutting_down", 503, true;
    /// A fault of the server itself; its log says more.
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
}
