//! Queues, their messages, and who takes part.

use hubbub_core::limits::Limits;
use hubbub_core::queue::{DURATION_MS_MAX, DeadReason, TAKE_MAX, WhenFull};
use hubbub_core::queue_draft::WAIT_MS_MAX;
use serde_json::{Map, Value, json};

use super::{Named, described, id, integer, merged, object, one_of, schema, time};

pub(super) fn all(limits: &Limits) -> Named {
    let drafts = json!({"type": "array", "items": schema("QueueDraft"), "maxItems": 1_000});
    let lease = json!({"leaseMs": described(duration(1), "How long the lease is; as the queue has it set unless given.")});
    let sender = json!({"sender": described(schema("AnyId"), "Messages of this client.")});
    let taken = list("QueueMessage", "In the order asked for; empty when there was none.");
    let waiting_list = list("WaitingMessage", "In the order of their ids.");
    let client = object("", json!({"client": id()}), json!({}));
    let message = message();
    let mut all = vec![
        ("MessageNumber", message_number()),
        ("QueueSettings", object("What is left out stays as it is.", json!({}), settings())),
        ("Queue", queue()),
        ("QueueList", queue_list()),
        ("QueueDraft", draft(limits)),
        ("QueueDrafts", json!({"anyOf": [schema("QueueDraft"), drafts]})),
        ("QueueReceipt", receipt()),
        ("QueueReceipts", results(schema("QueueReceipt"))),
        ("Take", object("", json!({}), take(&[]))),
        ("TakeOnLease", object("", json!({}), with(take(&[]), lease))),
        ("TakeOfSender", object("", sender, take(&["receiver", "sender"]))),
        ("QueueMessages", object("", json!({"messages": taken}), json!({}))),
        ("WaitingMessage", waiting(&message)),
        ("QueueMessage", message),
        ("WaitingMessages", object("", json!({"messages": waiting_list, "next": next()}), json!({}))),
        (
            "ClientList",
            object("", json!({"clients": {"type": "array", "items": client}, "next": next()}), json!({})),
        ),
    ];
    all.extend(leases());
    all
}

fn leases() -> Named {
    let receipt = || json!({"type": "string", "description": "Came with the message. Keep it as it is: what it is made of may change."});
    let delay = described(
        duration(0),
        "How long until it may be taken again; as the queue's backoff says unless given.",
    );
    let lease =
        described(duration(1), "The lease ends so long from now; as the queue has it set unless given.");
    let body = |optional: Value| object("", json!({"receipt": receipt()}), optional);
    let acked = json!({"receipt": receipt(), "acked": {"type": "boolean"}});
    let until = described(schema("Time"), "When the lease ends now.");
    let ready_at = json!({"type": ["string", "null"], "format": "date-time", "description": "When it may be taken again; `null` = that was its last delivery, and it is in the dead-letter queue."});
    let number = || schema("MessageNumber");
    let moved = json!({
        "queue": id(), "moved": described(integer(0), "Messages that wait again."),
        "more": {"type": "boolean", "description": "Whether to ask again: one request moves 100,000 at most."},
    });
    vec![
        ("AckBody", body(json!({}))),
        ("NackBody", body(json!({"delayMs": delay}))),
        ("ExtendBody", body(json!({"leaseMs": lease}))),
        ("Nacked", object("", json!({"id": number(), "readyAt": ready_at}), json!({}))),
        ("Extended", object("", json!({"id": number(), "leasedUntil": until}), json!({}))),
        (
            "AckManyBody",
            object(
                "",
                json!({"receipts": {"type": "array", "items": receipt(), "maxItems": 1_000}}),
                json!({}),
            ),
        ),
        ("Acked", results(object("", acked, json!({})))),
        ("RedriveBody", object("", json!({}), json!({"id": described(number(), "Only this message.")}))),
        ("Redriven", object("", moved, json!({}))),
    ]
}

fn message_number() -> Value {
    json!({
        "type": "string", "minLength": 1, "maxLength": 20,
        "description": "Names a message of a queue: a number, never used again by this server, in the order of sending.",
    })
}

fn duration(least: u64) -> Value {
    json!({"type": "integer", "minimum": least, "maximum": DURATION_MS_MAX})
}

fn next() -> Value {
    json!({"type": ["string", "null"], "description": "The `after` of the next page; `null` at the end."})
}

fn list(of: &str, about: &str) -> Value {
    json!({"type": "array", "items": schema(of), "description": about})
}

fn with(mut members: Value, more: Value) -> Value {
    if let (Value::Object(members), Value::Object(more)) = (&mut members, more) {
        members.extend(more);
    }
    members
}

/// One result for each item of a request, or what was wrong with it.
fn results(result: Value) -> Value {
    let results = json!({
        "type": "array", "items": {"anyOf": [result, schema("LineProblem")]},
        "description": "One for each item, in their order.",
    });
    object("", json!({"results": results}), json!({}))
}

fn settings() -> Value {
    let dead_letter = json!({
        "type": ["string", "null"],
        "description": "Where messages go that were delivered `maxDeliveries` times; empty = the queue's name with `.dead`.",
    });
    json!({
        "leaseMs": described(duration(1), "Lease of takers that ask for none."),
        "maxDeliveries": described(integer(0), "After so many deliveries on lease without an ack it is a dead letter; 0 = never."),
        "deadLetter": dead_letter,
        "ttlMs": described(duration(0), "How long messages wait at most that were sent without a limit; 0 = for ever."),
        "maxMessages": described(integer(0), "Messages it may hold; 0 = any number."),
        "maxBytes": described(integer(0), "Bytes of texts it may hold; 0 = any number."),
        "onFull": described(
            one_of(&[WhenFull::Refuse.as_str(), WhenFull::DropOldest.as_str()]),
            "What becomes of a message too many: it is refused, or the oldest go that are not on lease.",
        ),
        "backoffMs": described(duration(0), "How long a message given back waits the first time, doubled each time."),
        "backoffMaxMs": described(duration(0), "The longest such wait."),
    })
}

fn queue() -> Value {
    let name = json!({"queue": id()});
    let count = |about: &str| described(integer(0), about);
    let numbers = json!({
        "messages": count("How many it holds, in any state."),
        "ready": count("Those that may be taken now, or behind others of their group."),
        "delayed": count("Those that may not be taken yet."),
        "leased": count("Those on lease."),
        "bytes": count("Bytes of all their texts."),
        "sent": count("Sent to it since it was made."),
        "done": count("Taken away or acknowledged."),
        "dropped": count("Outlived their time, or went as the oldest of too many."),
        "dead": count("Given to its dead-letter queue."),
        "oldestSentAt": {"type": ["string", "null"], "format": "date-time", "description": "When the oldest of them was sent."},
        "isDeadLetter": {"type": "boolean", "description": "Whether it holds messages other queues gave up."},
    });
    object("", with(with(name, settings()), numbers), json!({}))
}

fn queue_list() -> Value {
    let name = object("With `receiver`.", json!({"queue": id()}), json!({}));
    let queues = json!({"type": "array", "items": {"anyOf": [schema("Queue"), name]}});
    object("", json!({"queues": queues, "next": next()}), json!({}))
}

fn draft(limits: &Limits) -> Value {
    let text = json!({
        "type": "string", "minLength": 1,
        "description": format!("The text: at most {} bytes, anything but U+0000.", limits.queue_message_bytes),
    });
    let receiver = "The client it waits for, registered before. With neither this nor `audience`: whoever takes it first.";
    let audience = "For every client registered now but the sender; each gets a copy.";
    let message_id = "The sender's idempotency key, unique in the queue; remembered while the message waits and 10 minutes after.";
    object(
        "A message as it is sent.",
        json!({"message": text}),
        json!({
            "sender": described(schema("AnyId"), "Who sends; may be left out when the caller is known, and must otherwise be the caller."),
            "receiver": described(schema("AnyId"), receiver),
            "audience": described(one_of(&["all"]), audience),
            "messageId": described(schema("AnyId"), message_id),
            "delayMs": described(duration(0), "It may not be taken before so long."),
            "deliverAt": described(time(), "It may not be taken before this time."),
            "groupId": described(schema("AnyId"), "Messages of one group and receiver are delivered one after another."),
            "ttlMs": described(duration(1), "How long it waits at most; as the queue has it set unless given."),
        }),
    )
}

fn receipt() -> Value {
    object(
        "The message is on disk.",
        json!({
            "id": described(schema("MessageNumber"), "Of a message to everybody the first copy's; the others follow."),
            "copies": described(integer(0), "How many wait: 1, or one for each client it is for."),
            "sentAt": schema("Time"),
            "duplicate": {"type": "boolean", "description": "The same was sent before; nothing changed."},
        }),
        json!({"messageId": id()}),
    )
}

/// What a take may say, but for these.
fn take(but: &[&str]) -> Value {
    let all = json!({
        "receiver": described(schema("AnyId"), "Who takes; the caller unless given. With neither: only what is for anybody."),
        "sender": described(schema("AnyId"), "Only messages of this client."),
        "max": {"type": "integer", "minimum": 1, "maximum": TAKE_MAX, "default": 1, "description": "Most messages; fewer when their texts make 4 MiB."},
        "order": {"type": "string", "enum": ["oldest", "newest"], "default": "oldest"},
        "waitMs": {"type": "integer", "minimum": 0, "maximum": WAIT_MS_MAX, "default": 0, "description": "How long to wait when there is nothing."},
    });
    let Value::Object(all) = all else { return json!({}) };
    all.into_iter().filter(|(name, _)| !but.contains(&name.as_str())).collect::<Map<_, _>>().into()
}

fn message() -> Value {
    let reasons = [DeadReason::Rejected, DeadReason::LeaseExpired].map(DeadReason::as_str);
    let dead = object(
        "Why it is a dead letter.",
        json!({
            "origin": described(id(), "The queue it was in."),
            "reason": described(one_of(&reasons), "How its last delivery ended."),
            "deliveries": described(integer(0), "How many it had."),
        }),
        json!({}),
    );
    object(
        "A message as a taker gets it.",
        json!({
            "id": schema("MessageNumber"), "queue": id(), "sender": id(), "message": {"type": "string"},
            "sentAt": schema("Time"),
            "deliveries": described(integer(0), "Deliveries on lease so far, this one included."),
        }),
        json!({
            "receiver": described(id(), "Whom it waited for; left out when for anybody."),
            "groupId": id(),
            "receipt": {"type": "string", "description": "On lease: what ends or extends it."},
            "leasedUntil": described(schema("Time"), "On lease: when it ends."),
            "dead": dead,
        }),
    )
}

fn waiting(message: &Value) -> Value {
    let state = object(
        "",
        json!({"state": one_of(&["ready", "delayed", "leased"])}),
        json!({
            "until": described(schema("Time"), "When that ends, of one that is delayed or leased."),
            "expiresAt": described(schema("Time"), "When it goes if nobody takes it."),
        }),
    );
    merged("A message of a queue in any state.", &[message, &state])
}
