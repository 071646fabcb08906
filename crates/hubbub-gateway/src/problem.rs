//! Errors as clients see them: the object of HTTP answers (RFC 9457) and of WebSocket error frames.

use std::borrow::Cow;
use std::num::NonZeroU64;
use std::sync::{Arc, LazyLock};
use std::time::Instant;

use hubbub_core::invariant::broken;
use hubbub_core::store::{ApplyError, ReadError};
use hubbub_core::text::{counted, json_fault, repeated};
use hubbub_core::{ErrorCode, FieldError, LogLimit, Outcome, Receipt, Refusal};
use hubbub_pipeline::SubmitError;
use hubbub_pipeline::committer::{apply_error_code, refusal_code};

use crate::http::AllowedMethods;
use crate::json::{write_flag, write_items, write_number, write_plain, write_text};

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
    /// Seconds after which to try again, for `Retry-After`.
    pub(crate) retry_after_s: u32,
    /// The methods that the path takes, for `Allow`, where it does not take this one.
    pub(crate) methods: AllowedMethods,
    /// Whether it was counted already, where the outcome was set: when the batch was committed, or by the log's broker.
    pub(crate) is_counted: bool,
}

/// The room's position, for a cursor that cannot be honoured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reset {
    pub(crate) epoch: Arc<str>,
    pub(crate) oldest: u64,
    pub(crate) head: u64,
}

/// Frames and lines have several names. To an HTTP request, [`Problem::naming`] says which.
const NO_ROOM: &str = "there is no room of this name; PUT /v1/rooms/NAME makes one (hubbub room set NAME)";
const NO_QUEUE: &str =
    "there is no queue of this name; PUT /v1/queues/NAME makes one (hubbub queue create NAME)";
const MEMBERS_ONLY: &str = "only members of the room may do this";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sent<'a> {
    /// It has a number; `true` where it was stored before.
    Stored(&'a Receipt, bool),
    /// A broker keeps it until the store has it. Its number is not known yet.
    Accepted,
}

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

/// After so many seconds it is worth asking again, where nothing says more.
pub(crate) const RETRY_AFTER_S: u32 = 1;

impl Problem {
    pub(crate) fn new(code: ErrorCode, detail: impl Into<Cow<'static, str>>) -> Self {
        Self {
            code,
            detail: detail.into(),
            faults: Vec::new(),
            reset: None,
            message_id: None,
            revision: None,
            retry_after_s: RETRY_AFTER_S,
            methods: AllowedMethods::default(),
            is_counted: false,
        }
    }

    /// The path takes other methods only.
    pub(crate) fn method_not_allowed(methods: AllowedMethods) -> Self {
        let detail = format!("the path takes {} only", methods.text().unwrap_or_default());
        Self { methods, ..Self::new(ErrorCode::MethodNotAllowed, detail) }
    }

    /// The same of the room or queue of this name, whose absence it tells; whoever would not make it is not told how.
    pub(crate) fn naming(self, name: &str, is_to_be_made: bool) -> Self {
        let text = self.detail.replace("NAME", name).replacen("of this name", &format!("'{name}'"), 1);
        let end = if is_to_be_made { None } else { text.find(';') };
        let detail = end.and_then(|end| text.get(..end)).unwrap_or(&text).to_owned();
        Self { detail: detail.into(), ..self }
    }

    pub(crate) fn invalid(faults: Vec<FieldError>) -> Self {
        Self { faults, ..Self::new(ErrorCode::Invalid, "") }
    }

    /// The same of the message to which its sender gave this id, if any.
    pub(crate) fn of_message(self, given_id: Option<&str>) -> Self {
        Self { message_id: given_id.map(|id| repeated(id).into_owned()), ..self }
    }

    pub(crate) fn malformed(error: &serde_json::Error) -> Self {
        let what = if error.is_data() { "not the expected JSON" } else { "not valid JSON" };
        Self::new(ErrorCode::Malformed, format!("{what}: {}", json_fault(error)))
    }

    pub(crate) fn refusal(refusal: Refusal) -> Self {
        let detail: Cow<'static, str> = match refusal {
            Refusal::IdReused { seq } => {
                format!("messageId belongs to message {seq} of the room, whose user, text or type differs")
                    .into()
            }
            Refusal::UnknownRoom => NO_ROOM.into(),
            Refusal::NotMember => MEMBERS_ONLY.into(),
            Refusal::UnknownQueue => NO_QUEUE.into(),
            Refusal::QueueNotEmpty { messages } => {
                let held = counted(messages, "message");
                format!("the queue holds {held}; force=true deletes it with all it holds").into()
            }
            Refusal::QueueFull => "the queue holds as many messages or bytes as it may".into(),
            Refusal::NoQueueNumber => "a queue has the highest number there is; name the next one yourself".into(),
            Refusal::UnknownClient => "the sender was never registered".into(),
            Refusal::UnknownReceiver => "the receiver was never registered".into(),
            Refusal::TooManyClients => {
                "queues.clients_max clients are registered; unregister some, or have it raised".into()
            }
            Refusal::TooManyBroadcasts => "too many copies of messages to everybody at once; send it again in a second, or a shorter text".into(),
            Refusal::MessageIdReused { id } => {
                format!("messageId belongs to message {id} of the queue, which differs").into()
            }
            Refusal::StaleReceipt => "the lease has run out, or another took its place".into(),
            Refusal::UnknownMessage => "there is no such message in the queue".into(),
            Refusal::Condition { revision: Some(revision) } => {
                format!("the key has revision {revision}").into()
            }
            Refusal::Condition { revision: None } => "the key is not there".into(),
            Refusal::Unreadable => "what is stored of it cannot be read; nothing was stored, /health names the damaged file".into(),
            Refusal::Internal => {
                "a bug of the server, which its log names; nothing was stored".into()
            }
            Refusal::OutOfOrder => "an earlier message of this connection was not stored; send both again, in their order".into(),
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

    pub(crate) fn not_member() -> Self {
        Self::new(ErrorCode::NotMember, MEMBERS_ONLY)
    }

    pub(crate) fn removed() -> Self {
        Self::new(ErrorCode::Removed, "the subscription has ended: no longer a member, or the room is gone")
    }

    /// As many of something as there may be; `what` says of what.
    pub(crate) fn too_many(what: &'static str, most: usize) -> Self {
        Self::new(ErrorCode::TooManyRequests, format!("{most} {what}, as many as allowed; try again later"))
    }

    pub(crate) fn no_user() -> Self {
        Self::invalid(vec![FieldError::new("user", "is required: the header Hubbub-User, or ?user=")])
    }

    /// The store gave an operation no outcome, or one of another operation.
    #[track_caller]
    pub(crate) fn no_outcome() -> Self {
        broken("the store gives each operation an outcome that fits");
        Self::new(ErrorCode::Internal, "the store gave no outcome that fits")
    }

    /// Bytes that it takes, beside itself.
    pub(crate) fn held_bytes(&self) -> usize {
        let owned = |text: &Cow<'_, str>| if let Cow::Owned(text) = text { text.len() } else { 0 };
        let faults = self.faults.iter().map(|fault| size_of::<FieldError>() + owned(&fault.rule));
        owned(&self.detail) + faults.sum::<usize>() + self.message_id.as_ref().map_or(0, String::len)
    }

    /// Appends the members of the object, without `type` and without braces.
    pub(crate) fn write_members(&self, out: &mut Vec<u8>) {
        let code = self.code.as_str();
        write_plain("\"code\":\"", code, out);
        write_plain(",\"title\":\"", &code.replace('_', " "), out);
        write_number(",\"status\":", self.code.http_status().into(), out);
        write_flag(",\"retryable\":", self.code.is_retryable(), out);
        write_text(",\"detail\":", &self.detail(), out);
        if let Some(id) = &self.message_id {
            write_text(",\"messageId\":", id, out);
        }
        if let Some(revision) = self.revision {
            write_number(",\"revision\":", revision.get(), out);
        }
        if let Some(reset) = &self.reset {
            out.push(b',');
            reset.write_members(out);
        }
        if !self.faults.is_empty() {
            out.extend_from_slice(b",\"errors\":[");
            write_items(&self.faults, out, |fault, out| {
                write_text("{\"field\":", fault.field, out);
                write_text(",\"rule\":", &fault.rule, out);
                out.push(b'}');
            });
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
        write_text("\"epoch\":", &self.epoch, out);
        write_number(",\"oldest\":", self.oldest, out);
        write_number(",\"head\":", self.head, out);
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

fn log_failed_read(error: &ReadError) {
    static LINES: LogLimit = LogLimit::new();
    static BEGUN: LazyLock<Instant> = LazyLock::new(Instant::now);
    match LINES.next(BEGUN.elapsed()) {
        None => {}
        Some(0) => tracing::error!(%error, "read failed"),
        Some(left_out) => tracing::error!(%error, left_out, "read failed, and others before it"),
    }
}

impl From<ReadError> for Problem {
    fn from(error: ReadError) -> Self {
        match &error {
            ReadError::UnknownRoom => Self::new(ErrorCode::UnknownRoom, NO_ROOM),
            // What the medium said is for the log; clients learn that it was not their fault, and whether to ask again.
            ReadError::Unavailable { .. } => {
                log_failed_read(&error);
                Self::new(
                    ErrorCode::Unavailable,
                    "the store could not read; see /health and the server's log",
                )
            }
            ReadError::Damaged { .. } => {
                log_failed_read(&error);
                Self::new(
                    ErrorCode::Unreadable,
                    "what is stored of it cannot be read; /health names the damaged file",
                )
            }
        }
    }
}
