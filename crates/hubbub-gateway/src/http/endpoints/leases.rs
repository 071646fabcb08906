//! Leases of queues' messages, dead letters, and what is taken by sender.

use hubbub_core::ErrorCode::{self, *};

use super::super::endpoint::{Endpoint, delete, post};
use super::super::operation::Media::*;
use super::super::permission::Permission;
use super::super::queues::{self, TakeKind};
use crate::auth::Right;

/// What a request with a receipt can be answered with.
const OF_RECEIPT: &[ErrorCode] = &[Malformed, Invalid, UnknownQueue, StaleReceipt];
/// What taking by sender can be answered with.
const OF_SENDER: &[ErrorCode] = &[Malformed, Invalid, TooManyClients];

pub(super) static ENDPOINTS: &[Endpoint] = &[
    post("/v1/queues/{queue}/lease", |call| Box::pin(queues::take(call, TakeKind::Lease)))
        .needs(Permission::Queue(Right::Read))
        .named("leaseFromQueue", "Take messages on lease")
        .about(
            "They are nobody else's until acknowledged (`ack`), given back (`nack`), or the lease ends; then they wait \
             again, and older receipts of them are stale. After `maxDeliveries` they are dead letters. A message is \
             delivered once at least. `waitMs` as for `get`.",
        )
        .may_take(Json("TakeOnLease"))
        .gives(&[(200, Json("QueueMessages"), "")])
        .refuses(&[Malformed, Invalid, UnknownQueue, TooManyClients]),
    post("/v1/queues/{queue}/messages/{id}/extend", |call| Box::pin(queues::extend(call)))
        .needs(Permission::Queue(Right::Read))
        .named("extendLease", "Keep a message longer")
        .about("The lease ends `leaseMs` from now.")
        .takes(Json("ExtendBody"))
        .gives(&[(200, Json("Extended"), "")])
        .refuses(OF_RECEIPT),
    post("/v1/queues/{queue}/messages/{id}/ack", |call| Box::pin(queues::ack(call)))
        .needs(Permission::Queue(Right::Read))
        .named("ackMessage", "Acknowledge a message")
        .takes(Json("AckBody"))
        .gives(&[(204, Nothing, "It is gone.")])
        .refuses(OF_RECEIPT),
    post("/v1/queues/{queue}/messages/{id}/nack", |call| Box::pin(queues::nack(call)))
        .needs(Permission::Queue(Right::Read))
        .named("nackMessage", "Give a message back")
        .about(
            "It waits again, after `delayMs`, or after the queue's backoff; or, when that was its last delivery, it goes \
             to the dead-letter queue.",
        )
        .takes(Json("NackBody"))
        .gives(&[(200, Json("Nacked"), "")])
        .refuses(OF_RECEIPT),
    post("/v1/queues/{queue}/ack", |call| Box::pin(queues::ack_many(call)))
        .needs(Permission::Queue(Right::Read))
        .named("ackMessages", "Acknowledge many messages")
        .takes(Json("AckManyBody"))
        .gives(&[(200, Json("Acked"), "Each receipt has its result.")])
        .refuses(OF_RECEIPT),
    delete("/v1/queues/{queue}/messages/{id}", |call| Box::pin(queues::remove(call)))
        .needs(Permission::Admin)
        .named("deleteQueueMessage", "Delete one message")
        .about("For any receiver, leased or not. For the administrator.")
        .gives(&[(204, Nothing, "It is gone.")])
        .refuses(&[Invalid, UnknownQueue, UnknownMessage]),
    post("/v1/queues/{queue}/redrive", |call| Box::pin(queues::redrive(call)))
        .needs(Permission::Admin)
        .named("redriveQueue", "Try dead letters again")
        .about(
            "They go back to the queues they came from, oldest first, their deliveries counted from the beginning. Those \
             whose queue is gone stay. For the administrator.",
        )
        .may_take(Json("RedriveBody"))
        .gives(&[(200, Json("Redriven"), "")])
        .refuses(&[Malformed, Invalid, UnknownQueue, UnknownMessage]),
    post("/v1/clients/{client}/read", |call| Box::pin(queues::take_of_client(call, TakeKind::Read)))
        .needs(Permission::AllQueues(Right::Read))
        .named("readBySender", "Peek at messages of a sender")
        .about("Over all queues.")
        .takes(Json("TakeOfSender"))
        .gives(&[(200, Json("QueueMessages"), "")])
        .refuses(OF_SENDER),
    post("/v1/clients/{client}/get", |call| Box::pin(queues::take_of_client(call, TakeKind::Get)))
        .needs(Permission::AllQueues(Right::Read))
        .named("getBySender", "Take messages of a sender away")
        .about("Over all queues.")
        .takes(Json("TakeOfSender"))
        .gives(&[(200, Json("QueueMessages"), "")])
        .refuses(OF_SENDER),
];
