//! All endpoints on one screen. This table drives routing, the methods of a 405, and `/openapi.json`.
//!
//! **To add an endpoint**: write its handler, a function in `spec/operations/` that describes it, and a line here.
//!
//! The examples of the documentation are a walk: in the order of this table they work, one after another, on a fresh
//! server. The process test `documents_are_true` takes that walk and compares every answer with its example and schema.

use super::endpoint::{Call, Endpoint, delete, get, page, post, put};
use super::spec::operations::{
    backups as backup_docs, keys, leases, members as member_docs, messages, queue_messages,
    queues as queue_docs, report, rooms as room_docs, service, sockets, stats as stats_docs,
};
use super::{
    Answer, assets, backups, bulk, events, health, history, kv, members, queues, room, rooms, send, spec,
    stats, users,
};
use crate::ws;

pub(super) static ENDPOINTS: &[Endpoint] = &[
    page("/", |call| Box::pin(assets::chat_page(call))),
    page("/docs", |call| Box::pin(assets::docs_page(call))),
    page("/web/{*file}", |call| Box::pin(assets::file(call))),
    post("/v1/rooms/{room}/messages", |call| Box::pin(send::send(call)), messages::send),
    post("/v1/messages", |call| Box::pin(bulk::send_bulk(call)), messages::send_many),
    get("/v1/rooms/{room}/messages", |call| Box::pin(history::history(call)), messages::history),
    get("/v1/rooms/{room}/events", |call| Box::pin(events::events(call)), messages::events),
    get("/v1/users/{user}/messages", |call| Box::pin(stats::messages(call)), stats_docs::user_messages),
    get("/v1/stats", |call| Box::pin(stats::totals(call)), stats_docs::totals),
    get("/v1/stats/rooms", |call| Box::pin(stats::rooms(call)), stats_docs::rooms),
    get("/v1/stats/users", |call| Box::pin(stats::users(call)), stats_docs::users),
    get("/v1/stats/users/{user}/rooms", |call| Box::pin(stats::user_rooms(call)), stats_docs::user_rooms),
    get("/v1/stats/hourly", |call| Box::pin(stats::hourly(call)), stats_docs::hourly),
    get("/v1/stats/active-users", |call| Box::pin(stats::active_users(call)), stats_docs::active_users),
    get("/v1/stats/report", |call| Box::pin(stats::report(call)), report::report),
    post("/v1/stats/audit", |call| Box::pin(stats::audit(call)), stats_docs::audit),
    get("/v1/rooms", |call| Box::pin(rooms::list(call)), room_docs::list),
    get("/v1/rooms/{room}", |call| Box::pin(room::get(call)), room_docs::get),
    get("/v1/rooms/{room}/presence", |call| Box::pin(members::presence(call)), room_docs::presence),
    put("/v1/rooms/{room}", |call| Box::pin(room::put(call)), room_docs::put),
    put("/v1/rooms/{room}/members/{user}", |call| Box::pin(members::add(call)), member_docs::add),
    put("/v1/rooms/{room}/read", |call| Box::pin(members::mark_read(call)), member_docs::mark_read),
    get("/v1/rooms/{room}/members", |call| Box::pin(members::list(call)), member_docs::list),
    get("/v1/users/{user}/rooms", |call| Box::pin(users::rooms(call)), member_docs::user_rooms),
    delete("/v1/rooms/{room}/members/{user}", |call| Box::pin(members::remove(call)), member_docs::remove),
    delete("/v1/users/{user}", |call| Box::pin(users::erase(call)), member_docs::erase),
    delete("/v1/rooms/{room}", |call| Box::pin(room::delete(call)), room_docs::delete),
    get("/v1/ws", |call| Box::pin(open_socket(call)), sockets::api),
    get("/chat/{room}", |call| Box::pin(open_chat(call)), sockets::chat).under_any_prefix(),
    put("/v1/backups/{backup}", |call| Box::pin(backups::begin(call)), backup_docs::begin),
    get("/v1/backups/{backup}/files/{file}", |call| Box::pin(backups::file(call)), backup_docs::file),
    delete("/v1/backups/{backup}", |call| Box::pin(backups::end(call)), backup_docs::end),
    // Behind the backup, whose files depend on what is stored.
    put("/kv/{*key}", |call| Box::pin(kv::put(call)), keys::put),
    get("/kv/{*key}", |call| Box::pin(kv::get(call)), keys::get).with_head(),
    get("/v1/kv", |call| Box::pin(kv::list(call)), keys::list),
    post("/v1/kv", |call| Box::pin(kv::batch(call)), keys::batch),
    get("/v1/kv/watch", |call| Box::pin(kv::watch(call)), keys::watch),
    delete("/kv/{*key}", |call| Box::pin(kv::delete(call)), keys::delete),
    put("/v1/queues/{queue}", |call| Box::pin(queues::put(call)), queue_docs::put),
    put("/v1/clients/{client}", |call| Box::pin(queues::register(call)), queue_docs::register),
    post("/v1/queues/{queue}/messages", |call| Box::pin(queues::send(call)), queue_messages::send),
    get("/v1/queues/{queue}/messages", |call| Box::pin(queues::browse(call)), queue_messages::browse),
    post("/v1/queues/{queue}/read", |call| Box::pin(queues::read(call)), queue_messages::read),
    post("/v1/queues/{queue}/get", |call| Box::pin(queues::get(call)), queue_messages::get),
    post("/v1/queues/{queue}/lease", |call| Box::pin(queues::lease(call)), leases::lease),
    post("/v1/queues/{queue}/messages/{id}/extend", |call| Box::pin(queues::extend(call)), leases::extend),
    post("/v1/queues/{queue}/messages/{id}/ack", |call| Box::pin(queues::ack(call)), leases::ack),
    post("/v1/queues/{queue}/messages/{id}/nack", |call| Box::pin(queues::nack(call)), leases::nack),
    post("/v1/queues/{queue}/ack", |call| Box::pin(queues::ack_many(call)), leases::ack_many),
    delete("/v1/queues/{queue}/messages/{id}", |call| Box::pin(queues::remove(call)), leases::remove),
    post("/v1/queues/{queue}/redrive", |call| Box::pin(queues::redrive(call)), leases::redrive),
    post("/v1/clients/{client}/read", |call| Box::pin(queues::read_of_client(call)), leases::read_of_client),
    post("/v1/clients/{client}/get", |call| Box::pin(queues::get_of_client(call)), leases::get_of_client),
    get("/v1/queues", |call| Box::pin(queues::list(call)), queue_docs::list),
    get("/v1/queues/{queue}", |call| Box::pin(queues::show(call)), queue_docs::get),
    get("/v1/clients", |call| Box::pin(queues::clients(call)), queue_docs::clients),
    delete("/v1/clients/{client}", |call| Box::pin(queues::unregister(call)), queue_docs::unregister),
    delete("/v1/queues/{queue}", |call| Box::pin(queues::delete(call)), queue_docs::delete),
    get("/health", |call| Box::pin(health::ready(call)), service::health).with_head().under_any_prefix(),
    get("/health/ready", |call| Box::pin(health::ready(call)), service::ready).with_head().under_any_prefix(),
    get("/health/live", |call| Box::pin(health::live(call)), service::live).with_head().under_any_prefix(),
    get("/metrics", |call| Box::pin(stats::metrics(call)), service::metrics),
    get("/openapi.json", |call| Box::pin(spec::openapi(call)), service::openapi).with_head(),
    get("/asyncapi.json", |call| Box::pin(spec::asyncapi(call)), service::asyncapi).with_head(),
];

async fn open_socket(call: Call) -> Answer {
    ws::upgrade_api(&call.peer, call.request)
}

async fn open_chat(call: Call) -> Answer {
    let room = call.parameter("room").to_owned();
    ws::upgrade_chat(&call.peer, &room, call.request)
}
