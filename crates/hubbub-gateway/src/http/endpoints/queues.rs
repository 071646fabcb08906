//! Queues, who takes part in them, and messages sent to them, read and taken away.

use hubbub_core::ErrorCode::*;
use serde_json::json;

use super::super::endpoint::{Endpoint, delete, get, post, put};
use super::super::operation::{LIMIT, Media::*, PAGE, header, query};
use super::super::permission::Permission;
use super::super::queues::{self, TakeKind};
use super::super::spec::schemas::{id, integer};
use crate::auth::{Right, Scope};

pub(super) static ENDPOINTS: &[Endpoint] = &[
    put("/v1/queues/{queue}", |call| Box::pin(queues::put(call)))
        .needs(Permission::Admin)
        .named("putQueue", "Create a queue, or change it")
        .about(
            "What the body leaves out stays as it is, or at its default in a new queue. With `maxDeliveries` its \
             dead-letter queue is created too. Queues are never created by use. For the administrator. Without a body: \
             the queue only.",
        )
        .may_take(Json("QueueSettings"))
        .gives(&[
            (201, Json("Queue"), "Created."),
            (200, Json("Queue"), "Changed, or as it was wanted already."),
        ])
        .refuses(&[Malformed, Invalid]),
    put("/v1/clients/{client}", |call| Box::pin(queues::register(call)))
        .needs(Permission::Client)
        .named("registerClient", "Register a client")
        .about(
            "A registered client can be sent to, and has a copy of what is sent to everybody. Sending and taking \
             register a client too, unless `queues.autoregister` is off.",
        )
        .gives(&[(204, Nothing, "It is registered.")])
        .refuses(&[Invalid, TooManyClients]),
    post("/v1/queues/{queue}/messages", |call| Box::pin(queues::send(call)))
        .needs(Permission::Queue(Right::Write))
        .named("sendToQueue", "Send to a queue")
        .about(
            "To one receiver, to whoever takes it first, or to everybody registered. Answered once it is on disk. Send \
             it again with the same `messageId` when no answer came. A body that is an array of at most {items} \
             messages is answered with `results`: those that are valid are sent. A text may have \
             {queue_message_bytes} bytes.",
        )
        .parameters(&[
            &[header("Idempotency-Key", id, "Stands in for `messageId` of a single message.")],
        ])
        .takes(Json("QueueDrafts"))
        .gives(&[
            (201, Json("QueueReceipt"), "It waits."),
            (
                200,
                AnyOf(&["QueueReceipts", "QueueReceipt"]),
                "It waited before, under the same id; or the results of an array.",
            ),
        ])
        .refuses(&[Malformed, Invalid, IdReused, UnknownQueue, UnknownClient, TooManyClients, UnknownReceiver, QueueFull]),
    get("/v1/queues/{queue}/messages", |call| Box::pin(queues::browse(call)))
        .needs(Permission::Admin)
        .named("listQueueMessages", "List everything in a queue")
        .about("Messages in any state and for any receiver, in the order of their ids. For the administrator.")
        .parameters(&[
            &[
                query("after", integer, "Messages behind this one: the `next` of the page before."),
                LIMIT,
            ],
        ])
        .gives(&[(200, Json("WaitingMessages"), "")])
        .refuses(&[Invalid, Forbidden, UnknownQueue]),
    post("/v1/queues/{queue}/read", |call| Box::pin(queues::take(call, TakeKind::Read)))
        .needs(Permission::Queue(Right::Read))
        .named("readQueue", "Peek without taking")
        .about("The same as `get`, but the messages stay.")
        .may_take(Json("Take"))
        .gives(&[(200, Json("QueueMessages"), "")])
        .refuses(&[Malformed, Invalid, UnknownQueue]),
    post("/v1/queues/{queue}/get", |call| Box::pin(queues::take(call, TakeKind::Get)))
        .needs(Permission::Queue(Right::Read))
        .named("getFromQueue", "Take messages away")
        .about(
            "They are gone once answered: a message is delivered once at most, and lost if the answer is. Use `lease` \
             where that matters. With `waitMs` the request waits until there is something; waiting consumers are served \
             in the order of their requests. No messages is an empty list. A receiver who is not registered, and is not by \
             this, gets what waits for anybody.",
        )
        .may_take(Json("Take"))
        .gives(&[(200, Json("QueueMessages"), "")])
        .refuses(&[Malformed, Invalid, UnknownQueue, TooManyClients]),
    get("/v1/queues", |call| Box::pin(queues::list(call)))
        .needs(Permission::Caller)
        .named("listQueues", "List queues")
        .about(
            "In the order of their names. With `receiver` only the names of those from which it could take something \
             now; what is for anybody counts.",
        )
        .parameters(&[&[query("receiver", id, "For whom.")], PAGE])
        .gives(&[(200, Json("QueueList"), "")])
        .refuses(&[Invalid, Forbidden]),
    get("/v1/queues/{queue}", |call| Box::pin(queues::show(call)))
        .needs(Permission::KnowQueue)
        .named("getQueue", "Read the state of a queue")
        .gives(&[(200, Json("Queue"), "")])
        .refuses(&[Invalid, UnknownQueue]),
    get("/v1/clients", |call| Box::pin(queues::clients(call)))
        .needs(Permission::Scope(Scope::Clients))
        .named("listClients", "List registered clients")
        .about("In the order of their names.")
        .parameters(&[PAGE])
        .gives(&[(200, Json("ClientList"), "")])
        .refuses(&[Invalid]),
    delete("/v1/clients/{client}", |call| Box::pin(queues::unregister(call)))
        .needs(Permission::Client)
        .named("unregisterClient", "Take a registration back")
        .about("And with it the client's copies of what was sent to everybody.")
        .gives(&[(204, Nothing, "It is not registered.")])
        .refuses(&[Invalid]),
    delete("/v1/queues/{queue}", |call| Box::pin(queues::delete(call)))
        .needs(Permission::Admin)
        .named("deleteQueue", "Delete a queue")
        .about("For the administrator. One that holds messages only with `force`, and they with it.")
        .parameters(&[
            &[query(
                "force",
                |_| json!({"type": "boolean", "default": false}),
                "Whether its messages may go too.",
            )],
        ])
        .gives(&[(204, Nothing, "It is gone.")])
        .refuses(&[Invalid, UnknownQueue, QueueNotEmpty]),
];
