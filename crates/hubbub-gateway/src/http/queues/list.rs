//! `GET /v1/queues`: all queues, or those that hold something for somebody.

use std::sync::Arc;

use hubbub_core::id::ID_RULE;
use hubbub_core::{ClientId, Fault, QueueId};
use hyper::body::Incoming;
use hyper::{Request, StatusCode};

use super::super::query::{Query, refuse_faults};
use super::super::rooms::{LIMIT_DEFAULT, LIMIT_MAX, write_next};
use super::super::{Answer, json};
use super::shapes::{write_name, write_queue};
use crate::Gateway;
use crate::auth::Caller;

pub(in super::super) async fn list(gateway: &Arc<Gateway>, request: &Request<Incoming>) -> Answer {
    let query = Query::parse(request.uri().query());
    let caller = Caller::of(request.headers(), &query)?;
    let mut faults = Vec::new();
    let limit = query.limit(LIMIT_DEFAULT, LIMIT_MAX, &mut faults);
    let after = query.after(QueueId::new, &mut faults);
    let receiver = query.get("receiver").map(ClientId::new).transpose().unwrap_or_else(|_| {
        faults.push(Fault::new("receiver", ID_RULE));
        None
    });
    refuse_faults(faults)?;
    let mut out = b"{\"queues\":[".to_vec();
    let last = match receiver {
        Some(receiver) => {
            caller.check_client(receiver.as_str())?;
            let names = gateway.store.queues_holding(receiver, after, limit + 1).await?;
            for (index, name) in names.iter().take(limit).enumerate() {
                write_name(if index == 0 { "{\"queue\":\"" } else { ",{\"queue\":\"" }, name, &mut out);
                out.push(b'}');
            }
            names.get(limit - 1).filter(|_| names.len() > limit).cloned()
        }
        None => {
            let queues = gateway.store.queues(after, limit + 1).await?;
            for (index, queue) in queues.iter().take(limit).enumerate() {
                out.extend_from_slice(if index == 0 { b"{" } else { b",{" });
                write_queue(queue, &mut out);
                out.push(b'}');
            }
            queues.get(limit - 1).filter(|_| queues.len() > limit).map(|last| last.queue.clone())
        }
    };
    out.push(b']');
    write_next(last.as_deref(), &mut out);
    Ok(json(StatusCode::OK, out))
}
