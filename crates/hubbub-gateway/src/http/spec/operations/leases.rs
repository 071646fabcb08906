//! Messages of queues on lease, what becomes of them, and what is taken by sender.

use hubbub_core::ErrorCode as E;
use hubbub_core::limits::Limits;

use super::super::operation::{Media, WRITING};
use super::super::schemas::schema;
use super::Operation;
use super::queues::TAG;

pub(in crate::http) fn lease(_: &Limits) -> Operation {
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
}

fn settling(id: &'static str, summary: &'static str) -> Operation {
    Operation::new(id, TAG, summary)
        .caller()
        .refuses(&[E::Malformed, E::Invalid, E::UnknownQueue, E::StaleReceipt])
        .refuses(WRITING)
}

pub(in crate::http) fn extend(_: &Limits) -> Operation {
    settling("extendLease", "Keep a message longer")
        .about("The lease ends `leaseMs` from now.")
        .takes(Media::Json(schema("ExtendBody")), "")
        .gives(200, Media::Json(schema("Extended")), "")
}

pub(in crate::http) fn ack(_: &Limits) -> Operation {
    settling("ackMessage", "A message is done").takes(Media::Json(schema("AckBody")), "").gives(
        204,
        Media::None,
        "It is gone.",
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
}

pub(in crate::http) fn ack_many(_: &Limits) -> Operation {
    settling("ackMessages", "Messages are done").takes(Media::Json(schema("AckManyBody")), "").gives(
        200,
        Media::Json(schema("Acked")),
        "Each receipt has its result.",
    )
}

pub(in crate::http) fn remove(_: &Limits) -> Operation {
    Operation::new("deleteQueueMessage", TAG, "Delete one message")
        .about("Whoever it waits for, leased or not. For the administrator.")
        .caller()
        .gives(204, Media::None, "It is gone.")
        .refuses(&[E::Invalid, E::UnknownQueue, E::UnknownMessage])
        .refuses(WRITING)
}

pub(in crate::http) fn redrive(_: &Limits) -> Operation {
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
}

fn of_client(id: &'static str, summary: &'static str) -> Operation {
    Operation::new(id, TAG, summary)
        .about("Over all queues.")
        .caller()
        .takes(Media::Json(schema("TakeOfSender")), "")
        .gives(200, Media::Json(schema("QueueMessages")), "")
        .refuses(&[E::Malformed, E::Invalid, E::UnknownClient, E::TooManyClients])
        .refuses(WRITING)
}

pub(in crate::http) fn read_of_client(_: &Limits) -> Operation {
    of_client("readBySender", "Look at messages of a sender")
}

pub(in crate::http) fn get_of_client(_: &Limits) -> Operation {
    of_client("getBySender", "Take messages of a sender away")
}
