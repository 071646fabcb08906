//! Commands that change nothing, answered by the store.

use std::sync::Arc;

use hubbub_core::queue::Wanted;
use hubbub_core::store::ReadError;
use hubbub_core::{ClientId, QueueId};

use super::responses::{self, Name};
use crate::Gateway;

/// Entries of one page of a list.
const PAGE: usize = 1_000;

/// What is looked at.
#[derive(Debug, Clone, Copy)]
pub(super) enum Query {
    Users,
    Queues,
    Holding { receiver: u64 },
    Message { queue: Option<u64>, sender: Option<u64>, receiver: u64, newest_first: bool },
}

/// The answer, as it is sent.
pub(super) async fn answer(gateway: Arc<Gateway>, query: Query) -> Vec<u8> {
    let mut out = Vec::new();
    if let Err(error) = write(&gateway, query, &mut out).await {
        tracing::error!(%error, "a read for the line protocol failed");
        out.clear();
        out.extend_from_slice(responses::ERROR);
    }
    out
}

async fn write(gateway: &Gateway, query: Query, out: &mut Vec<u8>) -> Result<(), ReadError> {
    let store = &gateway.store;
    match query {
        Query::Users => {
            let mut all: Vec<ClientId> = Vec::new();
            loop {
                let page = store.clients(all.last().cloned(), PAGE).await?;
                let is_last = page.len() < PAGE;
                all.extend(page);
                if is_last {
                    break;
                }
            }
            responses::write_list("users", all.iter().map(ClientId::as_str), out);
        }
        Query::Queues => {
            let mut all = Vec::new();
            loop {
                let page = store.queues(last_queue(&all), PAGE).await?;
                let is_last = page.len() < PAGE;
                all.extend(page.into_iter().map(|info| info.queue));
                if is_last {
                    break;
                }
            }
            responses::write_list("queues", all.iter().map(|queue| &**queue), out);
        }
        Query::Holding { receiver } => {
            let mut all = Vec::new();
            // Digits are an identifier.
            if let Ok(receiver) = ClientId::new(Name::of(receiver).as_str()) {
                loop {
                    let page = store.queues_holding(receiver.clone(), last_queue(&all), PAGE).await?;
                    let is_last = page.len() < PAGE;
                    all.extend(page);
                    if is_last {
                        break;
                    }
                }
            }
            responses::write_list("queues", all.iter().map(|queue| &**queue), out);
        }
        Query::Message { queue, sender, receiver, newest_first } => {
            let (queue, sender, receiver) = (queue.map(Name::of), sender.map(Name::of), Name::of(receiver));
            let wanted = Wanted {
                queue: queue.as_ref().map(Name::as_str),
                sender: sender.as_ref().map(Name::as_str),
                receiver: Some(receiver.as_str()),
                newest_first,
            };
            let found = store.look(wanted, 1).await?;
            responses::write_found(found.as_deref(), out);
        }
    }
    Ok(())
}

fn last_queue(all: &[Arc<str>]) -> Option<QueueId> {
    all.last().and_then(|queue| QueueId::new(queue).ok())
}
