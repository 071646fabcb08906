//! Commands that change nothing, answered by the store.

use std::sync::Arc;
use std::time::Duration;

use hubbub_core::queue::TakeFilter;
use hubbub_core::store::ReadError;
use hubbub_core::{ClientId, LogLimit, QueueId};
use tokio::sync::SemaphorePermit;

use super::responses::{self, Name, number_of};
use crate::Gateway;
use crate::auth::caller::{Caller, Requirement};
use crate::problem::Problem;

const PAGE: usize = 1_000;

#[derive(Debug, Clone, Copy)]
pub(super) enum Query {
    Users,
    Queues,
    Holding { receiver: u64 },
    Message { queue: Option<u64>, sender: Option<u64>, receiver: u64, newest_first: bool },
}

impl Query {
    /// Whether the answer may be a list of everything there is.
    const fn is_list(self) -> bool {
        !matches!(self, Self::Message { .. })
    }
}

pub(super) async fn answer(gateway: Arc<Gateway>, query: Query, caller: Option<Caller>) -> Vec<u8> {
    let _turn = match begin(&gateway, query).await {
        Ok(turn) => turn,
        Err(problem) => {
            gateway.metrics.reject(problem.code, 1);
            return responses::ERROR.to_vec();
        }
    };
    let mut out = Vec::new();
    if let Err(error) = write(&gateway, query, caller.as_ref(), &mut out).await {
        log_failure(&error, query, gateway.clock.monotonic());
        out.clear();
        out.extend_from_slice(responses::ERROR);
    }
    out
}

fn log_failure(error: &ReadError, query: Query, now: Duration) {
    static LINES: LogLimit = LogLimit::new();
    if let Some(left_out) = LINES.next(now) {
        tracing::error!(
            %error, ?query, left_out, "reading for a command of the line protocol failed; answered Error"
        );
    }
}

/// The turn of an answer that may be large. An answer is begun once little of those before it waits for the peer, and goes on
/// whatever the peer does: who takes nothing keeps no turn.
async fn begin(gateway: &Gateway, query: Query) -> Result<Option<SemaphorePermit<'_>>, Problem> {
    if query.is_list() { gateway.outgoing_memory.permit_large().await.map(Some) } else { Ok(None) }
}

async fn write(
    gateway: &Gateway,
    query: Query,
    caller: Option<&Caller>,
    out: &mut Vec<u8>,
) -> Result<(), ReadError> {
    let store = &gateway.store;
    let may_know =
        |queue: &str| caller.is_some_and(|caller| caller.is_allowed(Requirement::KnowQueue(queue)));
    let queue_number = |queue: &Arc<str>| if may_know(queue) { number_of(queue) } else { 0 };
    match query {
        Query::Users => {
            let page = |last| store.clients(last, PAGE);
            let numbers = read_numbers(page, |client: &ClientId| number_of(client.as_str())).await?;
            responses::write_list("users", numbers, out);
        }
        Query::Queues => {
            let page = |last: Option<Arc<str>>| {
                let page = store.queues(last.as_ref().and_then(queue_id), PAGE);
                async { Ok(page.await?.into_iter().map(|info| info.queue).collect()) }
            };
            responses::write_list("queues", read_numbers(page, queue_number).await?, out);
        }
        Query::Holding { receiver } => {
            let numbers = match ClientId::new(Name::of(receiver).as_str()) {
                Ok(client) => {
                    let page = |last: Option<Arc<str>>| {
                        store.queues_holding(client.clone(), last.as_ref().and_then(queue_id), PAGE)
                    };
                    read_numbers(page, queue_number).await?
                }
                // Digits are an identifier.
                Err(_) => Vec::new(),
            };
            responses::write_list("queues", numbers, out);
        }
        Query::Message { queue, sender, receiver, newest_first } => {
            let (queue, sender, receiver) = (queue.map(Name::of), sender.map(Name::of), Name::of(receiver));
            let wanted = TakeFilter {
                queue: queue.as_ref().map(Name::as_str),
                sender: sender.as_ref().map(Name::as_str),
                receiver: Some(receiver.as_str()),
                newest_first,
            };
            let found = store.peek(wanted, 1).await?;
            responses::write_found(found.as_deref(), out);
        }
    }
    Ok(())
}

fn queue_id(queue: &Arc<str>) -> Option<QueueId> {
    QueueId::new(queue).ok()
}

/// The numbers of a list that is read to its end, without those that are 0; `page` reads what follows an entry. The names, which
/// may be a million, are not held.
async fn read_numbers<T, F>(
    page: impl Fn(Option<T>) -> F,
    number: impl Fn(&T) -> u64,
) -> Result<Vec<u64>, ReadError>
where
    F: Future<Output = Result<Vec<T>, ReadError>>,
{
    let (mut numbers, mut last) = (Vec::new(), None);
    loop {
        let mut next = page(last.take()).await?;
        numbers.extend(next.iter().map(&number).filter(|number| *number > 0));
        if next.len() < PAGE {
            return Ok(numbers);
        }
        last = next.pop();
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use super::*;

    #[tokio::test]
    async fn lists_are_read_to_their_end() {
        for total in [0, 1, PAGE, PAGE + 1, 3 * PAGE] {
            let page = |last: Option<usize>| {
                let from = last.map_or(0, |last| last + 1);
                ready(Ok((from..total.min(from + PAGE)).collect()))
            };
            let numbers = read_numbers(page, |entry| *entry as u64 % 7).await.unwrap();
            let expected: Vec<u64> =
                (0..total as u64).map(|entry| entry % 7).filter(|number| *number > 0).collect();
            assert!(numbers == expected, "{total}");
        }
    }
}
