//! `PUT` and `DELETE /v1/clients/{client}`, `GET /v1/clients`: who takes part in queues.

use hubbub_core::{ClientId, QueueOp, QueueOutcome};
use hyper::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;

use super::super::endpoint::Call;
use super::super::page::cut;
use super::super::types::Id;
use super::super::{Answer, json_of, no_content};
use crate::problem::Problem;

pub(in super::super) async fn register(call: Call) -> Answer {
    change(call, |client| QueueOp::Register { client }).await
}

pub(in super::super) async fn unregister(call: Call) -> Answer {
    change(call, |client| QueueOp::Unregister { client }).await
}

async fn change(call: Call, op: impl FnOnce(&str) -> QueueOp<'_>) -> Answer {
    let client = call.client()?;
    call.caller()?.check_client(client.as_str())?;
    match call.gateway().apply_queue(op(client.as_str())).await? {
        QueueOutcome::Client { .. } => Ok(no_content()),
        _ => Err(Problem::no_outcome()),
    }
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
struct Client {
    client: Id<ClientId>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(in super::super) struct ClientList {
    clients: Vec<Client>,
    /// The `after` of the next page; `null` at the end.
    next: Option<String>,
}

pub(in super::super) async fn list(call: Call) -> Answer {
    let gateway = call.gateway();
    call.caller()?;
    let (after, limit) = call.page(ClientId::new)?;
    let clients = gateway.store.clients(after, limit + 1).await?;
    let (clients, next) = cut(clients, limit, ToString::to_string);
    let clients = clients.into_iter().map(|client| Client { client: Id(client) }).collect();
    json_of(StatusCode::OK, &ClientList { clients, next })
}
