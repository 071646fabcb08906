//! Errors as clients see them: the object of HTTP answers (RFC 9457) and of WebSocket error frames.

use std::borrow::Cow;
use std::num::NonZeroU64;
use std::sync::Arc;

use hubbub_core::invariant::broken;
use hubbub_core::message::{write_json_string, write_u64};
use hubbub_core::store::{ApplyError, ReadError};
use hubbub_core::{ErrorCode, FieldError, Outcome, Receipt, Refusal};
use hubbub_pipeline::SubmitError;
use hubbub_pipeline::committer::{apply_error_code, refusal_code};

/// What went wrong, and what the client may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) code: ErrorCode,
    pub(crate) detail: Cow<'static, str>,
    pub(crate) faults: Vec<FieldError>,
    /// Where to go on, for [`ErrorCode::Reset`] and [`ErrorCode::Compacted`].
    pub(crate) reset: Option<Reset>,
    /// The message it is about, also when the server made its id.
    pub(crate) message_id: Option<String>,
    /// The key's revision, for [`ErrorCode::ConditionFailed`].
    pub(crate) revision: Option<NonZeroU64>,
    /// Whether the dispatcher counted it when the batch was committed.
    pub(crate) is_counted: bool,
}

/// The room's position, for a cursor that cannot be honoured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reset {
    pub(crate) epoch: Arc<str>,
    pub(crate) oldest: u64,
    pub(crate) head: u64,
}

const MEMBERS_ONLY: &str = "only members of the room may do this";

/// A message that is durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sent<'a> {
    /// It has a number; `true` where it was stored before.
    Stored(&'a Receipt, bool),
    /// A broker keeps it until the store has it. Its number is not known yet.
    Accepted,
}

/// The outcome of a message, or why it was not stored.
pub(crate) fn sent(outcome: &Outcome) -> Result<Sent<'_>, Problem> {
    match outcome {
        Outcome::Accepted => Ok(Sent::Accepted),
        Outcome::Refused(refusal) => Err(Problem::refusal(*refusal)),
        other => other
            .receipt()
            .map(|(receipt, is_duplicate)| Sent::Stored(receipt, is_duplicate))
            .ok_or_else(Problem::no_outcome),
    }
}

impl Problem {
    pub(crate) fn new(code: ErrorCode, detail: impl Into<Cow<'static, str>>) -> Self {
        Self {
            code,
            detail: detail.into(),
            faults: Vec::new(),
            reset: None,
            message_id: None,
            revision: None,
            is_counted: false,
        }
    }

    pub(crate) fn invalid(faults: Vec<FieldError>) -> Self {
        Self { faults, ..Self::new(ErrorCode::Invalid, "") }
    }

    pub(crate) fn malformed(error: &serde_json::Error) -> Self {
        Self::new(ErrorCode::Malformed, format!("not the expected JSON: {error}"))
    }

    pub(crate) fn refusal(refusal: Refusal) -> Self {
        let detail = match refusal {
            Refusal::IdReused { seq } => {
                format!("messageId belongs to message {seq} of the room, whose user, text or type differs")
                    .into()
            }
            Refusal::UnknownRoom => Cow::Borrowed("there is no such room, and this does not make one"),
            Refusal::NotMember => Cow::Borrowed(MEMBERS_ONLY),
            Refusal::UnknownQueue => Cow::Borrowed("there is no such queue, and this does not make one"),
            Refusal::QueueNotEmpty { messages } => {
                format!("the queue holds {messages} messages; force=true deletes them with it").into()
            }
            Refusal::QueueFull => Cow::Borrowed("the queue holds as many messages or bytes as it may"),
            Refusal::UnknownClient => Cow::Borrowed("the sender or taker was never registered"),
            Refusal::UnknownReceiver => Cow::Borrowed("the receiver was never registered"),
            Refusal::TooManyClients => {
                Cow::Borrowed("queues.clients_max clients are registered; unregister some, or have it raised")
            }
            Refusal::TooManyBroadcasts => Cow::Borrowed(
                "too many copies of messages to everybody at once; send it again in a second, or a shorter text",
            ),
            Refusal::MessageIdReused { id } => {
                format!("messageId belongs to message {id} of the queue, which differs").into()
            }
            Refusal::StaleReceipt => Cow::Borrowed("the lease has run out, or another took its place"),
            Refusal::UnknownMessage => Cow::Borrowed("there is no such message in the queue"),
            Refusal::Condition { revision: Some(revision) } => {
                format!("the key has revision {revision}").into()
            }
            Refusal::Condition { revision: None } => Cow::Borrowed("the key is not there"),
            Refusal::Unreadable => Cow::Borrowed(
                "what is stored of it cannot be read; nothing was stored, /health names the damaged file",
            ),
            Refusal::Internal => {
                Cow::Borrowed("a bug of the server, which its log names; nothing was stored")
            }
            Refusal::OutOfOrder => Cow::Borrowed(
                "an earlier message of this connection was not stored; send both again, in their order",
            ),
        };
        let revision = match refusal {
            Refusal::Condition { revision } => revision.and_then(NonZeroU64::new),
            _ => None,
        };
        Self { revision, is_counted: true, ..Self::new(refusal_code(refusal), detail) }
    }

    /// The same where no store has refused anything.
    pub(crate) fn uncounted(self) -> Self {
        Self { is_counted: false, ..self }
    }

    /// The caller is no member of a room for members only.
    pub(crate) fn not_member() -> Self {
        Self::new(ErrorCode::NotMember, MEMBERS_ONLY)
    }

    /// The subscription has ended.
    pub(crate) fn removed() -> Self {
        Self::new(ErrorCode::Removed, "the subscription has ended: no longer a member, or the room is gone")
    }

    /// A caller with a name is needed.
    pub(crate) fn no_user() -> Self {
        Self::invalid(vec![FieldError::new("user", "is required: the header Hubbub-User, or ?user=")])
    }

    /// The store gave an operation no outcome, or one of another operation.
    #[track_caller]
    pub(crate) fn no_outcome() -> Self {
        broken("the store gives each operation an outcome that fits");
        Self::new(ErrorCode::Internal, "the store gave no outcome that fits")
    }

    /// Appends the members of the object, without `type` and without braces.
    pub(crate) fn write_members(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"\"code\":\"");
        out.extend_from_slice(self.code.as_str().as_bytes());
        out.extend_from_slice(b"\",\"title\":");
        write_json_string(&self.code.as_str().replace('_', " "), out);
        out.extend_from_slice(b",\"status\":");
        write_u64(self.code.http_status().into(), out);
        out.extend_from_slice(b",\"retryable\":");
        out.extend_from_slice(if self.code.is_retryable() { b"true" } else { b"false" });
        out.extend_from_slice(b",\"detail\":");
        write_json_string(&self.detail(), out);
        if let Some(id) = &self.message_id {
            out.extend_from_slice(b",\"messageId\":");
            write_json_string(id, out);
        }
        if let Some(revision) = self.revision {
            out.extend_from_slice(b",\"revision\":");
            write_u64(revision.get(), out);
        }
        if let Some(reset) = &self.reset {
            out.push(b',');
            reset.write_members(out);
        }
        if !self.faults.is_empty() {
            out.extend_from_slice(b",\"errors\":[");
            for (index, fault) in self.faults.iter().enumerate() {
                out.extend_from_slice(if index == 0 { b"{\"field\":" } else { b",{\"field\":" });
                write_json_string(fault.field, out);
                out.extend_from_slice(b",\"rule\":");
                write_json_string(&fault.rule, out);
                out.push(b'}');
            }
            out.push(b']');
        }
    }

    /// One sentence for people; the faults when there is nothing else to say.
    pub(crate) fn detail(&self) -> Cow<'_, str> {
        if !self.detail.is_empty() {
            return Cow::Borrowed(&self.detail);
        }
        let faults: Vec<_> = self.faults.iter().map(|f| format!("{} {}", f.field, f.rule)).collect();
        Cow::Owned(faults.join("; "))
    }
}

impl Reset {
    pub(crate) fn write_members(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"\"epoch\":");
        write_json_string(&self.epoch, out);
        out.extend_from_slice(b",\"oldest\":");
        write_u64(self.oldest, out);
        out.extend_from_slice(b",\"head\":");
        write_u64(self.head, out);
    }
}

impl From<SubmitError> for Problem {
    fn from(error: SubmitError) -> Self {
        let code = match error {
            SubmitError::Overloaded => ErrorCode::Overloaded,
            SubmitError::ShuttingDown => ErrorCode::ShuttingDown,
            SubmitError::Unavailable => ErrorCode::Unavailable,
        };
        Self::new(code, error.to_string())
    }
}

impl From<&ApplyError> for Problem {
    fn from(error: &ApplyError) -> Self {
        Self { is_counted: true, ..Self::new(apply_error_code(error), error.to_string()) }
    }
}

impl From<ReadError> for Problem {
    fn from(error: ReadError) -> Self {
        match &error {
            ReadError::UnknownRoom => Self::new(ErrorCode::UnknownRoom, error.to_string()),
            // What the medium said is for the log; clients learn that it was not their fault.
            ReadError::Unavailable { .. } => {
                tracing::error!(%error, "read failed");
                Self::new(
                    ErrorCode::Unavailable,
                    "the store could not read; see /health and the server's log",
                )
            }
        }
    }
}
