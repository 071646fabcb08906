//! `GET /v1/kv/watch`: Server-Sent Events, one for each change of a key, resumed by `Last-Event-ID` (`epoch:revision`).

use std::sync::Arc;
use std::time::Duration;

use http_body_util::Either;
use hubbub_core::kv::{KvChange, KvChanged, KvChanges, KvHistory};
use hubbub_core::message::{write_json_string, write_u64};
use hubbub_core::{ErrorCode, FieldError};
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::{HeaderMap, Response};

use super::key;
use super::list::prefix_of;
use crate::Gateway;
use crate::http::endpoint::Call;
use crate::http::events::HEARTBEAT;
use crate::http::query::refuse_faults;
use crate::http::streamed::{Gone, Writer, streamed};
use crate::http::{Answer, NOSNIFF};
use crate::problem::{Problem, Reset};
use crate::server::Peer;

/// Chunks that may wait for a slow reader.
const CHUNKS_MAX: usize = 4;
/// Changes of one chunk.
const PAGE: usize = 1_000;
/// A reader that takes no chunk for this long is disconnected; it resumes from its last event.
const STALLED_MAX: Duration = Duration::from_secs(30);

pub(in crate::http) async fn watch(call: Call) -> Answer {
    let peer = &call.peer;
    let gateway = &peer.gateway;
    let query = &call.query;
    let mut faults = Vec::new();
    let prefix = prefix_of(query, &mut faults);
    let after = query.number("after", &mut faults);
    refuse_faults(faults)?;
    let resumed = last_event(call.headers())?;
    let epoch = gateway.store.epoch();
    let cursor_epoch = resumed.as_ref().map(|(epoch, _)| epoch.as_str()).or(query.get("epoch"));
    let after = match resumed.as_ref().map(|(_, after)| *after).or(after) {
        Some(after) if cursor_epoch.is_some_and(|given| *given != *epoch) => {
            return Err(of_another_epoch(gateway, after).await?);
        }
        Some(after) => after,
        None => gateway.keys.revision(),
    };
    // Read before the answer begins, so that a cursor that cannot be honoured gets a status.
    let first = page(gateway, &prefix, after).await?;
    let (writer, body) = streamed(CHUNKS_MAX);
    let watcher = Watcher { peer: peer.clone(), epoch, prefix, writer };
    tokio::spawn(watcher.run(after, first));
    let mut response = Response::new(Either::Right(body));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    // Neither stored nor recompressed nor buffered on the way: each would hold events back.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
    headers.insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    headers.insert(NOSNIFF.0, NOSNIFF.1);
    Ok(response)
}

/// Epoch and revision of the last event the client has.
fn last_event(headers: &HeaderMap) -> Result<Option<(String, u64)>, Problem> {
    let Some(id) = headers.get("last-event-id") else { return Ok(None) };
    let parts = id.to_str().ok().and_then(|id| id.split_once(':'));
    let cursor = parts.and_then(|(epoch, revision)| Some((epoch.to_owned(), revision.parse().ok()?)));
    let fault = || {
        Problem::invalid(vec![FieldError::new("Last-Event-ID", "must be the id of an event, epoch:revision")])
    };
    cursor.map(Some).ok_or_else(fault)
}

async fn of_another_epoch(gateway: &Gateway, after: u64) -> Result<Problem, Problem> {
    let head = gateway.keys.revision();
    let oldest = match gateway.store.changes(&[], 0, 1).await? {
        KvHistory::Compacted { oldest, .. } => oldest,
        KvHistory::Changes(_) => 0,
    };
    let detail = format!("revision {after} is of another history of this store; list the keys anew");
    let reset = Some(Reset { epoch: gateway.store.epoch(), oldest, head });
    Ok(Problem { reset, ..Problem::new(ErrorCode::Reset, detail) })
}

/// The changes behind `after`, none before it is published.
async fn page(gateway: &Gateway, prefix: &[u8], after: u64) -> Result<KvChanges, Problem> {
    match gateway.store.changes(prefix, after, PAGE).await? {
        KvHistory::Changes(page) => {
            gateway.keys.caught_up().await;
            Ok(page)
        }
        KvHistory::Compacted { oldest, head } => {
            let detail = format!("changes behind revision {after} are not kept any more; list the keys anew");
            let reset = Some(Reset { epoch: gateway.store.epoch(), oldest, head });
            Err(Problem { reset, ..Problem::new(ErrorCode::Compacted, detail) })
        }
    }
}

struct Watcher {
    peer: Arc<Peer>,
    epoch: Arc<str>,
    prefix: Vec<u8>,
    writer: Writer,
}

impl Watcher {
    async fn run(mut self, after: u64, first: KvChanges) {
        let mut shutdown = self.peer.shutdown.clone();
        tokio::select! {
            // A reader that is gone gets no last event.
            _ = self.follow(after, first) => {}
            () = shutdown.requested() => {}
        }
    }

    async fn follow(&mut self, after: u64, first: KvChanges) -> Result<(), Gone> {
        let peer = self.peer.clone();
        let gateway = &peer.gateway;
        let mut published = gateway.keys.published();
        let mut out = self.begun(after);
        let mut page = first;
        // The revision of the last event id sent.
        let mut sent = after;
        loop {
            for change in &page.changes {
                self.write_change(change, &mut out);
                sent = change.revision;
            }
            self.send(&mut out).await?;
            if !page.more {
                let through = page.through;
                while tokio::time::timeout(HEARTBEAT, published.wait_for(|now| *now > through)).await.is_err()
                {
                    if self.is_of_another_epoch() {
                        break;
                    }
                    // Moves the cursor of a reader without changes of its own, or changes behind it would expire.
                    if through > sent {
                        sent = through;
                        self.write_id(through, &mut out);
                        out.push(b'\n');
                    } else {
                        out.extend_from_slice(b": \n\n");
                    }
                    self.send(&mut out).await?;
                }
            }
            let through = page.through;
            let next = match self::page(gateway, &self.prefix, through).await {
                // Revisions count anew where another history of the store began.
                Ok(_) if self.is_of_another_epoch() => of_another_epoch(gateway, through).await.and_then(Err),
                next => next,
            };
            page = match next {
                Ok(page) => page,
                Err(problem) => {
                    out.extend_from_slice(b"event: error\ndata: {");
                    problem.write_members(&mut out);
                    out.extend_from_slice(b"}\n\n");
                    return self.send(&mut out).await;
                }
            };
        }
    }

    fn is_of_another_epoch(&self) -> bool {
        self.peer.gateway.store.epoch() != self.epoch
    }

    async fn send(&mut self, out: &mut Vec<u8>) -> Result<(), Gone> {
        if out.is_empty() {
            return Ok(());
        }
        let sending = self.writer.write(std::mem::take(out));
        match tokio::time::timeout(STALLED_MAX, sending).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(Gone),
        }
    }

    fn begun(&self, after: u64) -> Vec<u8> {
        let mut out = b"event: watching\ndata: {\"epoch\":".to_vec();
        write_json_string(&self.epoch, &mut out);
        out.extend_from_slice(b",\"after\":");
        write_u64(after, &mut out);
        out.extend_from_slice(b"}\n\n");
        out
    }

    fn write_id(&self, revision: u64, out: &mut Vec<u8>) {
        out.extend_from_slice(b"id: ");
        out.extend_from_slice(self.epoch.as_bytes());
        out.push(b':');
        write_u64(revision, out);
        out.push(b'\n');
    }

    fn write_change(&self, change: &KvChange, out: &mut Vec<u8>) {
        self.write_id(change.revision, out);
        out.extend_from_slice(match change.what {
            KvChanged::Put => b"event: put\ndata: {\"key\":\"".as_slice(),
            KvChanged::Deleted => b"event: delete\ndata: {\"key\":\"",
            KvChanged::Expired => b"event: expire\ndata: {\"key\":\"",
        });
        key::write(&change.key, out);
        out.extend_from_slice(b"\",\"revision\":");
        write_u64(change.revision, out);
        out.extend_from_slice(b"}\n\n");
    }
}
