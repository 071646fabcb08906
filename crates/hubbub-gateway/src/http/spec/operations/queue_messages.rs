//! Messages of queues: sent, looked at, taken away.

use hubbub_core::ErrorCode as E;
use hubbub_core::limits::Limits;
use serde_json::json;

use super::super::operation::{Media, READING, WRITING};
use super::super::schemas::{id, integer, limit, schema};
use super::Operation;
use super::queues::TAG;
use crate::http::page;

pub(in crate::http) fn send(limits: &Limits) -> Operation {
    let about = format!(
        "To one receiver, to whoever takes it first, or to everybody registered. Answered once it is on disk. Send it \
         again with the same `messageId` when no answer came. A body that is an array of at most 1,000 messages is \
         answered with `results`: those that are sound are sent. A text may have {} bytes.",
        limits.queue_message_bytes
    );
    let answer = json!({"anyOf": [schema("QueueReceipts"), schema("QueueReceipt")]});
    Operation::new("sendToQueue", TAG, "Send to a queue")
        .about(about)
        .caller()
        .header("Idempotency-Key", id(), "Stands in for `messageId` of a single message.")
        .takes(Media::Json(schema("QueueDrafts")), "")
        .gives(201, Media::Json(schema("QueueReceipt")), "It waits.")
        .gives(200, Media::Json(answer), "It waited before, under the same id; or the results of an array.")
        .refuses(&[
            E::Malformed,
            E::Invalid,
            E::IdReused,
            E::UnknownQueue,
            E::UnknownClient,
            E::TooManyClients,
            E::UnknownReceiver,
        ])
        .refuses(&[E::QueueFull])
        .refuses(WRITING)
}

pub(in crate::http) fn browse(_: &Limits) -> Operation {
    Operation::new("listQueueMessages",
        TAG,
        "Look at everything in a queue",
    )
    .about("Messages in any state, whomever they wait for, in the order of their ids. For the administrator.")
    .caller()
    .query("after", integer(0), "Messages behind this one: the `next` of the page before.")
    .query("limit", limit(page::LIMIT_DEFAULT, page::LIMIT_MAX), "Most messages of the page.")
    .gives(200, Media::Json(schema("WaitingMessages")), "")
    .refuses(&[E::Invalid, E::Forbidden, E::UnknownQueue])
    .refuses(READING)
}

pub(in crate::http) fn read(_: &Limits) -> Operation {
    Operation::new("readQueue", TAG, "Look without taking")
        .about("The same as `get`, but the messages stay.")
        .caller()
        .takes(Media::Json(schema("Take")), "")
        .gives(200, Media::Json(schema("QueueMessages")), "")
        .refuses(&[E::Malformed, E::Invalid, E::UnknownQueue])
        .refuses(WRITING)
}

pub(in crate::http) fn get(_: &Limits) -> Operation {
    Operation::new("getFromQueue", TAG, "Take messages away")
        .about(
            "They are gone once answered: a message is delivered once at most, and lost if the answer is. Use `lease` \
             where that matters. With `waitMs` the request waits until there is something; who came first is served \
             first. No messages is an empty list.",
        )
        .caller()
        .takes(Media::Json(schema("Take")), "")
        .gives(200, Media::Json(schema("QueueMessages")), "")
        .refuses(&[E::Malformed, E::Invalid, E::UnknownQueue, E::UnknownClient, E::TooManyClients])
        .refuses(WRITING)
}
