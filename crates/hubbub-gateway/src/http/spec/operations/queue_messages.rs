//! Messages of queues: sent, looked at, taken away.

use hubbub_core::ErrorCode as E;
use hubbub_core::Refusal;
use hubbub_core::limits::Limits;
use serde_json::{Value, json};

use super::super::operation::{Media, READING, WRITING};
use super::super::schemas::{id, integer, limit, schema};
use super::super::values::{NOW, about_message, answered, inner, invalid, no_queue, refusal, with};
use super::Operation;
use super::queues::TAG;
use crate::http::page;
use crate::problem::Problem;

/// A message of the queue `jobs`.
pub(super) fn message(id: &str, text: &str) -> Value {
    json!({"id": id, "queue": "jobs", "sender": "ann", "message": text, "sentAt": NOW, "deliveries": 0})
}

fn receipt(id: &str, is_duplicate: bool) -> Value {
    json!({"id": id, "copies": 1, "sentAt": NOW, "duplicate": is_duplicate})
}

pub(in crate::http) fn send(limits: &Limits) -> Operation {
    let first = json!({"sender": "ann", "message": "resize picture 1", "messageId": "q-1"});
    let with_id = |id: &str, is_duplicate| with(receipt(id, is_duplicate), json!({"messageId": "q-1"}));
    let reused = about_message("q-1", Problem::refusal(Refusal::MessageIdReused { id: 1 }));
    let faulty =
        invalid(&[("sender", "is required"), ("audience", "must be all"), ("message", "must not be empty")]);
    let unknown = Problem::refusal(Refusal::UnknownReceiver);
    let one_is_bad = json!([
        {"sender": "ann", "message": "resize picture 3"},
        {"sender": "ann", "message": "in time", "delayMs": 3_600_000},
        {"sender": "ann", "message": "anybody there?", "receiver": "nobody"},
    ]);
    let results = json!({"results": [receipt("3", false), receipt("4", false), inner(&unknown)]});
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
        .example_with("toWhoeverTakesIt", &[("queue", "jobs")], first.clone(), (201, with_id("1", false)))
        .example_with("again", &[("queue", "jobs")], first, (200, with_id("1", true)))
        .example_with(
            "toOne",
            &[("queue", "jobs"), ("Hubbub-User", "ann")],
            json!({"message": "resize picture 2", "receiver": "worker", "groupId": "pictures"}),
            (201, receipt("2", false)),
        )
        .example_with("many", &[("queue", "jobs")], one_is_bad, (200, results))
        .example_with(
            "toEverybody",
            &[("queue", "jobs")],
            json!({"sender": "ann", "message": "have a break", "audience": "all"}),
            (201, receipt("5", false)),
        )
        .example_with(
            "idReused",
            &[("queue", "jobs")],
            json!({"sender": "ann", "message": "something else", "messageId": "q-1"}),
            answered(&reused),
        )
        .example_with(
            "unknownReceiver",
            &[("queue", "jobs")],
            json!({"sender": "ann", "message": "anybody there?", "receiver": "nobody"}),
            answered(&unknown),
        )
        .example_with(
            "invalid",
            &[("queue", "jobs")],
            json!({"message": "", "audience": "some"}),
            answered(&faulty),
        )
        .example_with(
            "nowhere",
            &[("queue", "nowhere")],
            json!({"sender": "ann", "message": "lost"}),
            answered(&no_queue()),
        )
}

pub(in crate::http) fn browse(_: &Limits) -> Operation {
    let ready = json!({"state": "ready"});
    let worker = json!({"receiver": "worker", "groupId": "pictures"});
    let messages = [
        with(message("1", "resize picture 1"), ready.clone()),
        with(with(message("2", "resize picture 2"), worker), ready),
    ];
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
    .example(
        "firstPage",
        &[("queue", "jobs"), ("limit", "2")],
        (200, json!({"messages": messages, "next": "2"})),
    )
    .example("atTheEnd", &[("queue", "jobs"), ("after", "5")], (200, json!({"messages": [], "next": null})))
    .example(
        "somebody",
        &[("queue", "jobs"), ("Hubbub-User", "ann")],
        answered(&refusal(E::Forbidden, "only the administrator may, not 'ann'")),
    )
}

pub(in crate::http) fn read(_: &Limits) -> Operation {
    let one = json!({"messages": [message("1", "resize picture 1")]});
    Operation::new("readQueue", TAG, "Look without taking")
        .about("The same as `get`, but the messages stay.")
        .caller()
        .takes(Media::Json(schema("Take")), "")
        .gives(200, Media::Json(schema("QueueMessages")), "")
        .refuses(&[E::Malformed, E::Invalid, E::UnknownQueue])
        .refuses(WRITING)
        .example_with("oldest", &[("queue", "jobs")], json!({"receiver": "worker"}), (200, one))
        .example_with("nowhere", &[("queue", "nowhere")], json!({}), answered(&no_queue()))
}

pub(in crate::http) fn get(_: &Limits) -> Operation {
    let one = json!({"messages": [message("1", "resize picture 1")]});
    let as_other = refusal(E::Forbidden, "'ann' may not act as 'worker'");
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
        .example_with("oldest", &[("queue", "jobs")], json!({"receiver": "worker"}), (200, one))
        .example_with(
            "nothingOfBob",
            &[("queue", "jobs")],
            json!({"receiver": "worker", "sender": "bob", "waitMs": 50}),
            (200, json!({"messages": []})),
        )
        .example_with(
            "somebodyElse",
            &[("queue", "jobs"), ("Hubbub-User", "ann")],
            json!({"receiver": "worker"}),
            answered(&as_other),
        )
        .example_with(
            "invalid",
            &[("queue", "jobs")],
            json!({"max": 0}),
            answered(&invalid(&[("max", "must be a whole number from 1 to 1000")])),
        )
        .example_with("nowhere", &[("queue", "nowhere")], json!({}), answered(&no_queue()))
}
