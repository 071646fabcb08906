//! `PUT` and `DELETE /v1/clients/{client}`, `GET /v1/clients`: who takes part in queues.

use hubbub_core::{ClientId, QueueOp, QueueOutcome};
use hyper::StatusCode;

use super::super::endpoint::Call;
use super::super::page::{Page, PageQuery};
use super::super::query::refuse_faults;
use super::super::rooms::write_next;
use super::super::{Answer, json, no_content};
use super::shapes::write_name;
use crate::problem::Problem;

pub(in super::super) async fn register(call: Call) -> Answer {
    let gateway = call.gateway();
    let client = call.client()?;
    call.caller()?.check_client(client.as_str())?;
    match gateway.apply_queue(QueueOp::Register { client: client.as_str() }).await? {
        QueueOutcome::Client { .. } => Ok(no_content()),
        _ => Err(Problem::no_outcome()),
    }
}

pub(in super::super) async fn unregister(call: Call) -> Answer {
    let gateway = call.gateway();
    let client = call.client()?;
    call.caller()?.check_client(client.as_str())?;
    match gateway.apply_queue(QueueOp::Unregister { client: client.as_str() }).await? {
        QueueOutcome::Client { .. } => Ok(no_content()),
        _ => Err(Problem::no_outcome()),
    }
}

pub(in super::super) async fn list(call: Call) -> Answer {
    let gateway = call.gateway();
    let query = call.query();
    call.caller_in(&query)?;
    let mut faults = Vec::new();
    let PageQuery { after, limit } = PageQuery::of(&query, ClientId::new, &mut faults);
    refuse_faults(faults)?;
    let clients = gateway.store.clients(after, limit + 1).await?;
    let page = Page::of(clients, limit, |last| last.as_str().to_owned());
    let mut out = b"{\"clients\":[".to_vec();
    for (index, client) in page.items.iter().enumerate() {
        let name = if index == 0 { "{\"client\":\"" } else { ",{\"client\":\"" };
        write_name(name, client.as_str(), &mut out);
        out.push(b'}');
    }
    out.push(b']');
    write_next(page.next.as_deref(), &mut out);
    Ok(json(StatusCode::OK, out))
}
