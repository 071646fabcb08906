//! Messages of queues. They are written by hand and read by the drafts of `hubbub_core::queue_draft`; these are their
//! schemas.

use hubbub_core::queue::{DURATION_MS_MAX, DeadReason, TAKE_MAX};
use hubbub_core::queue_draft::WAIT_MS_MAX;
use schemars::JsonSchema;

use super::super::super::ITEMS_MAX;
use super::super::super::types::{AnyId, AnyTime, Id, MessageNumber, OrNull, Time};
use super::LineProblem;

/// A message as it is sent.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct QueueDraft {
    /// The text: at most {queue_message_bytes} bytes, anything but U+0000.
    #[schemars(length(min = 1))]
    message: String,
    /// Who sends; may be left out when the caller is known, and must otherwise be the caller.
    sender: Option<AnyId>,
    /// The client it waits for, registered before. With neither this nor `audience`: whoever takes it first.
    receiver: Option<AnyId>,
    /// For every client registered now but the sender; each gets a copy.
    #[schemars(extend("enum" = ["all"]))]
    audience: Option<String>,
    /// The sender's idempotency key, unique in the queue; remembered while the message waits and 10 minutes after.
    message_id: Option<AnyId>,
    /// It may not be taken before so long.
    #[schemars(range(max = DURATION_MS_MAX))]
    delay_ms: Option<u64>,
    /// It may not be taken before this time.
    deliver_at: Option<AnyTime>,
    /// Messages of one group and receiver are delivered one after another.
    group_id: Option<AnyId>,
    /// How long it waits at most; as the queue has it set unless given.
    #[schemars(range(min = 1, max = DURATION_MS_MAX))]
    ttl_ms: Option<u64>,
}

#[derive(JsonSchema)]
#[serde(untagged)]
pub(super) enum QueueDrafts {
    One(QueueDraft),
    Many(#[schemars(length(max = ITEMS_MAX))] Vec<QueueDraft>),
}

/// The message is on disk.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct QueueReceipt {
    /// Of a message to everybody the first copy's; the others follow.
    id: MessageNumber,
    /// How many wait: 1, or one for each client it is for.
    copies: u64,
    sent_at: Time,
    /// The same was sent before; nothing changed.
    duplicate: bool,
    message_id: Option<Id>,
}

// One result of a request with several items.
#[derive(JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
enum OrProblem<T> {
    Result(T),
    Problem(LineProblem),
}

#[derive(JsonSchema)]
pub(super) struct QueueReceipts {
    /// One for each item, in their order.
    results: Vec<OrProblem<QueueReceipt>>,
}

#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Take {
    /// Who takes; the caller unless given. With neither: only what is for anybody.
    receiver: Option<AnyId>,
    /// Only messages of this client.
    sender: Option<AnyId>,
    #[serde(flatten)]
    amount: Amount,
}

#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Amount {
    /// Most messages, 1 unless said; fewer when their texts make 4 MiB.
    #[schemars(range(min = 1, max = TAKE_MAX))]
    max: Option<u64>,
    /// `oldest` unless said.
    #[schemars(extend("enum" = ["oldest", "newest"]))]
    order: Option<String>,
    /// How long to wait when there is nothing, 0 unless said.
    #[schemars(range(max = WAIT_MS_MAX))]
    wait_ms: Option<u64>,
}

#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct TakeOnLease {
    #[serde(flatten)]
    take: Take,
    /// How long the lease is; as the queue has it set unless given.
    #[schemars(range(min = 1, max = DURATION_MS_MAX))]
    lease_ms: Option<u64>,
}

#[derive(JsonSchema)]
pub(super) struct TakeOfSender {
    /// Messages of this client.
    sender: AnyId,
    #[serde(flatten)]
    amount: Amount,
}

/// A message as a consumer gets it.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct QueueMessage {
    id: MessageNumber,
    queue: Id,
    sender: Id,
    message: String,
    sent_at: Time,
    /// Deliveries on lease so far, this one included.
    deliveries: u64,
    /// Whom it waited for; left out when for anybody.
    receiver: Option<Id>,
    group_id: Option<Id>,
    /// On lease: what ends or extends it.
    receipt: Option<String>,
    /// On lease: when it ends.
    leased_until: Option<Time>,
    dead: Option<Dead>,
}

/// Why it is a dead letter.
#[derive(JsonSchema)]
#[schemars(inline)]
struct Dead {
    /// The queue it was in.
    origin: Id,
    /// How its last delivery ended.
    #[schemars(extend("enum" = [DeadReason::Rejected.as_str(), DeadReason::LeaseExpired.as_str()]))]
    reason: String,
    /// How many it had.
    deliveries: u64,
}

#[derive(JsonSchema)]
pub(super) struct QueueMessages {
    /// In the order asked for; empty when there was none.
    messages: Vec<QueueMessage>,
}

/// A message of a queue in any state.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct WaitingMessage {
    #[serde(flatten)]
    message: QueueMessage,
    #[schemars(extend("enum" = ["ready", "delayed", "leased"]))]
    state: String,
    /// When that ends, of one that is delayed or leased.
    until: Option<Time>,
    /// When it goes if nobody takes it.
    expires_at: Option<Time>,
}

#[derive(JsonSchema)]
pub(super) struct WaitingMessages {
    /// In the order of their ids.
    messages: Vec<WaitingMessage>,
    /// The `after` of the next page; `null` at the end.
    next: OrNull<String>,
}

#[derive(JsonSchema)]
pub(super) struct AckBody {
    /// Came with the message. Keep it as it is: what it is made of may change.
    receipt: String,
}

#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct NackBody {
    #[serde(flatten)]
    ack: AckBody,
    /// How long until it may be taken again; as the queue's backoff says unless given.
    #[schemars(range(max = DURATION_MS_MAX))]
    delay_ms: Option<u64>,
}

#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct ExtendBody {
    #[serde(flatten)]
    ack: AckBody,
    /// The lease ends so long from now; as the queue has it set unless given.
    #[schemars(range(min = 1, max = DURATION_MS_MAX))]
    lease_ms: Option<u64>,
}

#[derive(JsonSchema)]
#[schemars(inline)]
struct AckResult {
    /// Came with the message. Keep it as it is: what it is made of may change.
    receipt: String,
    acked: bool,
}

#[derive(JsonSchema)]
pub(super) struct Acked {
    /// One for each item, in their order.
    results: Vec<OrProblem<AckResult>>,
}
