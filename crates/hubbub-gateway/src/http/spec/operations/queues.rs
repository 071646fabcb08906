//! Queues and who takes part in them.

use hubbub_core::ErrorCode as E;
use hubbub_core::limits::Limits;
use serde_json::json;

use super::super::operation::{Media, READING, WRITING};
use super::super::schemas::{id, limit, schema};
use super::Operation;
use crate::http::page;

pub(super) const TAG: &str = "Queues";

pub(in crate::http) fn put(_: &Limits) -> Operation {
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
}

pub(in crate::http) fn list(_: &Limits) -> Operation {
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
}

pub(in crate::http) fn get(_: &Limits) -> Operation {
    Operation::new("getQueue", TAG, "Read how a queue stands")
        .caller()
        .gives(200, Media::Json(schema("Queue")), "")
        .refuses(&[E::Invalid, E::UnknownQueue])
        .refuses(READING)
}

pub(in crate::http) fn clients(_: &Limits) -> Operation {
    Operation::new("listClients", TAG, "List registered clients")
        .about("In the order of their names.")
        .caller()
        .query("after", id(), "Clients behind this one: the `next` of the page before.")
        .query("limit", limit(page::LIMIT_DEFAULT, page::LIMIT_MAX), "Most clients of the page.")
        .gives(200, Media::Json(schema("ClientList")), "")
        .refuses(&[E::Invalid])
        .refuses(READING)
}

pub(in crate::http) fn unregister(_: &Limits) -> Operation {
    Operation::new("unregisterClient", TAG, "Take a registration back")
        .about("And with it the client's copies of what was sent to everybody.")
        .caller()
        .gives(204, Media::None, "It is not registered.")
        .refuses(&[E::Invalid])
        .refuses(WRITING)
}

pub(in crate::http) fn delete(_: &Limits) -> Operation {
    Operation::new("deleteQueue", TAG, "Delete a queue")
        .about("For the administrator. One that holds messages only with `force`, and they with it.")
        .caller()
        .query("force", json!({"type": "boolean", "default": false}), "Whether its messages may go too.")
        .gives(204, Media::None, "It is gone.")
        .refuses(&[E::Invalid, E::UnknownQueue, E::QueueNotEmpty])
        .refuses(WRITING)
}
