//! `PUT` and `DELETE /v1/clients/{client}`, `GET /v1/clients`: who takes part in queues.

use std::sync::Arc;

use hubbub_core::{ClientId, QueueOp, QueueOutcome};
use hyper::body::Incoming;
use hyper::{Request, StatusCode};

use super::super::query::{Query, refuse_faults};
use super::super::rooms::{LIMIT_DEFAULT, LIMIT_MAX, write_next};
use super::super::{Answer, caller_of, json, no_content};
use super::client_of;
use super::shapes::write_name;
use crate::Gateway;
use crate::auth::Caller;
use crate::problem::Problem;

pub(in super::super) async fn register(
    gateway: &Arc<Gateway>,
    client: &str,
    request: &Request<Incoming>,
) -> Answer {
    let client = client_of(client)?;
    caller_of(request)?.check_client(client.as_str())?;
    match gateway.apply_queue(QueueOp::Register { client: client.as_str() }).await? {
        QueueOutcome::Client { .. } => Ok(no_content()),
        _ => Err(Problem::no_outcome()),
    }
}

pub(in super::super) async fn unregister(
    gateway: &Arc<Gateway>,
    client: &str,
    request: &Request<Incoming>,
) -> Answer {
    let client = client_of(client)?;
    caller_of(request)?.check_client(client.as_str())?;
    match gateway.apply_queue(QueueOp::Unregister { client: client.as_str() }).await? {
        QueueOutcome::Client { .. } => Ok(no_content()),
        _ => Err(Problem::no_outcome()),
    }
}

pub(in super::super) async fn list(gateway: &Arc<Gateway>, request: &Request<Incoming>) -> Answer {
    let query = Query::parse(request.uri().query());
    Caller::of(request.headers(), &query)?;
    let mut faults = Vec::new();
    let limit = query.limit(LIMIT_DEFAULT, LIMIT_MAX, &mut faults);
    let after = query.after(ClientId::new, &mut faults);
    refuse_faults(faults)?;
    let clients = gateway.store.clients(after, limit + 1).await?;
    let mut out = b"{\"clients\":[".to_vec();
    for (index, client) in clients.iter().take(limit).enumerate() {
        let name = if index == 0 { "{\"client\":\"" } else { ",{\"client\":\"" };
        write_name(name, client.as_str(), &mut out);
        out.push(b'}');
    }
    out.push(b']');
    let last = clients.get(limit - 1).filter(|_| clients.len() > limit);
    write_next(last.map(ClientId::as_str), &mut out);
    Ok(json(StatusCode::OK, out))
}
