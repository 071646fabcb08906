//! `GET /v1/queues`: all queues, or those that hold something for somebody.

use hubbub_core::{ClientId, QueueId};
use hyper::StatusCode;

use super::super::endpoint::Call;
use super::super::page::{Page, PageQuery};
use super::super::query::refuse_faults;
use super::super::rooms::write_next;
use super::super::{Answer, json};
use super::shapes::{write_name, write_queue};

pub(in super::super) async fn list(call: Call) -> Answer {
    let gateway = call.gateway();
    let query = call.query();
    let caller = call.caller_in(&query)?;
    let mut faults = Vec::new();
    let PageQuery { after, limit } = PageQuery::of(&query, QueueId::new, &mut faults);
    let receiver = query.id("receiver", ClientId::new, &mut faults);
    refuse_faults(faults)?;
    let mut out = b"{\"queues\":[".to_vec();
    let next = match receiver {
        Some(receiver) => {
            caller.check_client(receiver.as_str())?;
            let names = gateway.store.queues_holding(receiver, after, limit + 1).await?;
            let page = Page::of(names, limit, ToString::to_string);
            for (index, name) in page.items.iter().enumerate() {
                write_name(if index == 0 { "{\"queue\":\"" } else { ",{\"queue\":\"" }, name, &mut out);
                out.push(b'}');
            }
            page.next
        }
        None => {
            let queues = gateway.store.queues(after, limit + 1).await?;
            let page = Page::of(queues, limit, |last| last.queue.to_string());
            for (index, queue) in page.items.iter().enumerate() {
                out.extend_from_slice(if index == 0 { b"{" } else { b",{" });
                write_queue(queue, &mut out);
                out.push(b'}');
            }
            page.next
        }
    };
    out.push(b']');
    write_next(next.as_deref(), &mut out);
    Ok(json(StatusCode::OK, out))
}
