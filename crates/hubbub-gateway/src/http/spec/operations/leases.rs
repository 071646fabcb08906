//! Messages of queues on lease, what becomes of them, and what is taken by sender.

use hubbub_core::limits::Limits;
use hubbub_core::{ErrorCode as E, Refusal};
use serde_json::{Value, json};

use super::super::operation::{Media, WRITING};
use super::super::schemas::schema;
use super::super::values::{EPOCH, NOW, answered, inner, invalid, no_queue, with};
use super::Operation;
use super::queue_messages::message;
use super::queues::TAG;
use crate::problem::Problem;

/// The receipt of a message's first delivery on lease.
fn first_receipt(id: &str) -> String {
    format!("{id}-1-{EPOCH}")
}

/// The message as it is delivered on lease for the first time.
fn leased(message: Value) -> Value {
    let receipt = first_receipt(message.get("id").and_then(Value::as_str).unwrap_or_default());
    with(message, json!({"deliveries": 1, "receipt": receipt, "leasedUntil": NOW}))
}

fn stale() -> Problem {
    Problem::refusal(Refusal::StaleReceipt)
}

pub(in crate::http) fn lease(_: &Limits) -> Operation {
    let worker = json!({"receiver": "worker", "groupId": "pictures"});
    let all = [
        leased(with(message("2", "resize picture 2"), worker)),
        leased(message("3", "resize picture 3")),
        leased(with(message("5", "have a break"), json!({"receiver": "worker"}))),
    ];
    Operation::new("leaseFromQueue", TAG, "Take messages on lease")
        .about(
            "They are nobody else's until acknowledged (`ack`), given back (`nack`), or the lease ends; then they wait \
             again, and older receipts of them are stale. After `maxDeliveries` they are dead letters. A message is \
             delivered once at least. `waitMs` as for `get`.",
        )
        .caller()
        .takes(Media::Json(schema("TakeOnLease")), "")
        .gives(200, Media::Json(schema("QueueMessages")), "")
        .refuses(&[E::Malformed, E::Invalid, E::UnknownQueue, E::UnknownClient, E::TooManyClients])
        .refuses(WRITING)
        .example_with(
            "three",
            &[("queue", "jobs")],
            json!({"receiver": "worker", "max": 10, "leaseMs": 600_000}),
            (200, json!({"messages": all})),
        )
        .example_with("nowhere", &[("queue", "nowhere")], json!({}), answered(&no_queue()))
}

fn settling(id: &'static str, summary: &'static str) -> Operation {
    Operation::new(id, TAG, summary)
        .caller()
        .refuses(&[E::Malformed, E::Invalid, E::UnknownQueue, E::StaleReceipt])
        .refuses(WRITING)
}

pub(in crate::http) fn extend(_: &Limits) -> Operation {
    let wrong = invalid(&[("receipt", "must be the receipt that came with the message")]);
    settling("extendLease", "Keep a message longer")
        .about("The lease ends `leaseMs` from now.")
        .takes(Media::Json(schema("ExtendBody")), "")
        .gives(200, Media::Json(schema("Extended")), "")
        .example_with(
            "second",
            &[("queue", "jobs"), ("id", "2")],
            json!({"receipt": first_receipt("2"), "leaseMs": 900_000}),
            (200, json!({"id": "2", "leasedUntil": NOW})),
        )
        .example_with(
            "otherMessage",
            &[("queue", "jobs"), ("id", "2")],
            json!({"receipt": first_receipt("3")}),
            answered(&wrong),
        )
}

pub(in crate::http) fn ack(_: &Limits) -> Operation {
    settling("ackMessage", "A message is done")
        .takes(Media::Json(schema("AckBody")), "")
        .gives(204, Media::None, "It is gone.")
        .example_with(
            "second",
            &[("queue", "jobs"), ("id", "2")],
            json!({"receipt": first_receipt("2")}),
            (204, Value::Null),
        )
        .example_with(
            "again",
            &[("queue", "jobs"), ("id", "2")],
            json!({"receipt": first_receipt("2")}),
            answered(&stale()),
        )
}

pub(in crate::http) fn nack(_: &Limits) -> Operation {
    settling("nackMessage", "Give a message back")
        .about(
            "It waits again, after `delayMs`, or after the queue's backoff; or, when that was its last delivery, it goes \
             to the dead-letter queue.",
        )
        .takes(Media::Json(schema("NackBody")), "")
        .gives(200, Media::Json(schema("Nacked")), "")
        .example_with(
            "third",
            &[("queue", "jobs"), ("id", "3")],
            json!({"receipt": first_receipt("3"), "delayMs": 0}),
            (200, json!({"id": "3", "readyAt": NOW})),
        )
        .example_with("stale", &[("queue", "jobs"), ("id", "3")], json!({"receipt": first_receipt("3")}), answered(&stale()))
}

pub(in crate::http) fn ack_many(_: &Limits) -> Operation {
    let results = json!({"results": [{"receipt": first_receipt("5"), "acked": true}, inner(&stale())]});
    settling("ackMessages", "Messages are done")
        .takes(Media::Json(schema("AckManyBody")), "")
        .gives(200, Media::Json(schema("Acked")), "Each receipt has its result.")
        .example_with(
            "two",
            &[("queue", "jobs")],
            json!({"receipts": [first_receipt("5"), first_receipt("3")]}),
            (200, results),
        )
        .example_with(
            "none",
            &[("queue", "jobs")],
            json!({}),
            answered(&super::super::values::refusal(
                E::Malformed,
                "not the expected JSON: missing field `receipts` at line 1 column 2",
            )),
        )
}

pub(in crate::http) fn remove(_: &Limits) -> Operation {
    let gone = Problem::refusal(Refusal::UnknownMessage);
    Operation::new("deleteQueueMessage", TAG, "Delete one message")
        .about("Whoever it waits for, leased or not. For the administrator.")
        .caller()
        .gives(204, Media::None, "It is gone.")
        .refuses(&[E::Invalid, E::UnknownQueue, E::UnknownMessage])
        .refuses(WRITING)
        .example("third", &[("queue", "jobs"), ("id", "3")], (204, Value::Null))
        .example("again", &[("queue", "jobs"), ("id", "3")], answered(&gone))
}

pub(in crate::http) fn redrive(_: &Limits) -> Operation {
    let none = json!({"queue": "strict.dead", "moved": 0, "more": false});
    Operation::new("redriveQueue", TAG, "Try dead letters again")
        .about(
            "They go back to the queues they came from, oldest first, their deliveries counted from the beginning. Those \
             whose queue is gone stay. For the administrator.",
        )
        .caller()
        .takes(Media::Json(schema("RedriveBody")), "")
        .gives(200, Media::Json(schema("Redriven")), "")
        .refuses(&[E::Malformed, E::Invalid, E::UnknownQueue, E::UnknownMessage])
        .refuses(WRITING)
        .example_with("nothingThere", &[("queue", "strict.dead")], json!({}), (200, none))
        .example_with("nowhere", &[("queue", "nowhere")], json!({}), answered(&no_queue()))
}

fn of_client(id: &'static str, summary: &'static str) -> Operation {
    let nobody = invalid(&[("sender", "is required")]);
    Operation::new(id, TAG, summary)
        .about("Over all queues.")
        .caller()
        .takes(Media::Json(schema("TakeOfSender")), "")
        .gives(200, Media::Json(schema("QueueMessages")), "")
        .refuses(&[E::Malformed, E::Invalid, E::UnknownClient, E::TooManyClients])
        .refuses(WRITING)
        .example_with(
            "nothingOfBob",
            &[("client", "worker")],
            json!({"sender": "bob"}),
            (200, json!({"messages": []})),
        )
        .example_with("ofNobody", &[("client", "worker")], json!({}), answered(&nobody))
}

pub(in crate::http) fn read_of_client(_: &Limits) -> Operation {
    of_client("readBySender", "Look at messages of a sender")
}

pub(in crate::http) fn get_of_client(_: &Limits) -> Operation {
    of_client("getBySender", "Take messages of a sender away")
}
