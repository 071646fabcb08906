//! Queues and who takes part in them.

use hubbub_core::id::ID_RULE;
use hubbub_core::limits::Limits;
use hubbub_core::queue::LEASE_MS;
use hubbub_core::{ErrorCode as E, Refusal};
use serde_json::{Value, json};

use super::super::operation::{Media, READING, WRITING};
use super::super::schemas::{id, limit, schema};
use super::super::values::{NOW, answered, invalid, no_queue, refusal, with};
use super::Operation;
use crate::http::page;
use crate::problem::Problem;

pub(super) const TAG: &str = "Queues";

/// A queue as it is made.
fn queue(name: &str) -> Value {
    json!({
        "queue": name, "leaseMs": LEASE_MS, "maxDeliveries": 0, "deadLetter": format!("{name}.dead"), "ttlMs": 0,
        "maxMessages": 0, "maxBytes": 0, "onFull": "refuse", "backoffMs": 0, "backoffMaxMs": 300_000, "messages": 0,
        "ready": 0, "delayed": 0, "leased": 0, "bytes": 0, "sent": 0, "done": 0, "dropped": 0, "dead": 0,
        "oldestSentAt": null, "isDeadLetter": false,
    })
}

pub(in crate::http) fn put(_: &Limits) -> Operation {
    let wrong = invalid(&[("onFull", "must be refuse or dropOldest")]);
    let limited = with(queue("jobs"), json!({"leaseMs": 60_000, "maxMessages": 100_000}));
    Operation::new("putQueue", TAG, "Make a queue, or change it")
        .about(
            "What the body leaves out stays as it is, or at its default in a new queue. With `maxDeliveries` its \
             dead-letter queue is made too. Queues are never made by use. For the administrator. Without a body: \
             the queue only.",
        )
        .caller()
        .takes(Media::Json(schema("QueueSettings")), "")
        .gives(201, Media::Json(schema("Queue")), "Made.")
        .gives(200, Media::Json(schema("Queue")), "Changed, or as it was wanted already.")
        .refuses(&[E::Malformed, E::Invalid])
        .refuses(WRITING)
        .example_with("make", &[("queue", "jobs")], json!({}), (201, queue("jobs")))
        .example_with(
            "change",
            &[("queue", "jobs")],
            json!({"leaseMs": 60_000, "maxMessages": 100_000}),
            (200, limited),
        )
        .example_with(
            "limitDeliveries",
            &[("queue", "strict")],
            json!({"maxDeliveries": 1}),
            (201, with(queue("strict"), json!({"maxDeliveries": 1}))),
        )
        .example_with("invalid", &[("queue", "jobs")], json!({"onFull": "wait"}), answered(&wrong))
}

pub(in crate::http) fn register(_: &Limits) -> Operation {
    Operation::new("registerClient", TAG, "Register a client")
        .about(
            "Who is registered can be sent to, and has a copy of what is sent to everybody. Whoever sends or takes is \
             registered by that, unless `queues.autoregister` is off.",
        )
        .caller()
        .gives(204, Media::None, "It is registered.")
        .refuses(&[E::Invalid, E::TooManyClients])
        .refuses(WRITING)
        .example("worker", &[("client", "worker")], (204, Value::Null))
        .example("noId", &[("client", "the worker")], answered(&invalid(&[("client", ID_RULE)])))
}

pub(in crate::http) fn list(_: &Limits) -> Operation {
    let strict = with(queue("strict"), json!({"maxDeliveries": 1}));
    Operation::new("listQueues", TAG, "List queues")
        .about(
            "In the order of their names. With `receiver` only the names of those from which it could take something \
             now; what is for anybody counts.",
        )
        .caller()
        .query("receiver", id(), "For whom.")
        .query("after", id(), "Queues behind this one: the `next` of the page before.")
        .query("limit", limit(page::LIMIT_DEFAULT, page::LIMIT_MAX), "Most queues of the page.")
        .gives(200, Media::Json(schema("QueueList")), "")
        .refuses(&[E::Invalid, E::Forbidden])
        .refuses(READING)
        .example(
            "page",
            &[("after", "jobs"), ("limit", "1")],
            (200, json!({"queues": [strict], "next": "strict"})),
        )
        .example("nothingWaits", &[("receiver", "worker")], (200, json!({"queues": [], "next": null})))
        .example(
            "somebodyElse",
            &[("receiver", "worker"), ("Hubbub-User", "ann")],
            answered(&refusal(E::Forbidden, "'ann' may not act as 'worker'")),
        )
}

pub(in crate::http) fn get(_: &Limits) -> Operation {
    let jobs = json!({
        "leaseMs": 60_000, "maxMessages": 100_000, "messages": 1, "delayed": 1, "bytes": 7, "sent": 5, "done": 3,
        "oldestSentAt": NOW,
    });
    Operation::new("getQueue", TAG, "Read how a queue stands")
        .caller()
        .gives(200, Media::Json(schema("Queue")), "")
        .refuses(&[E::Invalid, E::UnknownQueue])
        .refuses(READING)
        .example("jobs", &[("queue", "jobs")], (200, with(queue("jobs"), jobs)))
        .example("nowhere", &[("queue", "nowhere")], answered(&no_queue()))
}

pub(in crate::http) fn clients(_: &Limits) -> Operation {
    let both = json!({"clients": [{"client": "ann"}, {"client": "worker"}], "next": null});
    Operation::new("listClients", TAG, "List registered clients")
        .about("In the order of their names.")
        .caller()
        .query("after", id(), "Clients behind this one: the `next` of the page before.")
        .query("limit", limit(page::LIMIT_DEFAULT, page::LIMIT_MAX), "Most clients of the page.")
        .gives(200, Media::Json(schema("ClientList")), "")
        .refuses(&[E::Invalid])
        .refuses(READING)
        .example("all", &[("limit", "10")], (200, both))
        .example(
            "tooMany",
            &[("limit", "5000")],
            answered(&invalid(&[("limit", "must be between 1 and 1000")])),
        )
}

pub(in crate::http) fn unregister(_: &Limits) -> Operation {
    let somebody = refusal(E::Forbidden, "'ann' may not act as 'worker'");
    Operation::new("unregisterClient", TAG, "Take a registration back")
        .about("And with it the client's copies of what was sent to everybody.")
        .caller()
        .gives(204, Media::None, "It is not registered.")
        .refuses(&[E::Invalid])
        .refuses(WRITING)
        .example("worker", &[("client", "worker")], (204, Value::Null))
        .example("somebodyElse", &[("client", "worker"), ("Hubbub-User", "ann")], answered(&somebody))
}

pub(in crate::http) fn delete(_: &Limits) -> Operation {
    let not_empty = Problem::refusal(Refusal::QueueNotEmpty { messages: 1 });
    Operation::new("deleteQueue", TAG, "Delete a queue")
        .about("For the administrator. One that holds messages only with `force`, and they with it.")
        .caller()
        .query("force", json!({"type": "boolean", "default": false}), "Whether its messages may go too.")
        .gives(204, Media::None, "It is gone.")
        .refuses(&[E::Invalid, E::UnknownQueue, E::QueueNotEmpty])
        .refuses(WRITING)
        .example("notEmpty", &[("queue", "jobs")], answered(&not_empty))
        .example("force", &[("queue", "jobs"), ("force", "true")], (204, Value::Null))
        .example("again", &[("queue", "jobs")], answered(&no_queue()))
}
