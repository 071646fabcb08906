//! `GET /v1/kv/watch`: Server-Sent Events, one for each change of a key, resumed by `Last-Event-ID` (`epoch:revision`).

use std::sync::Arc;

use hubbub_core::ErrorCode;
use hubbub_core::kv::{KvChange, KvChanged, KvChanges, KvHistory};

use super::key;
use super::list::prefix_of;
use crate::Gateway;
use crate::auth::listed::ConnectionKind;
use crate::auth::session::Session;
use crate::http::Answer;
use crate::http::endpoint::Call;
use crate::http::query::refuse_faults;
use crate::http::sse::{COMMENT, HEARTBEAT, event_stream, last_event, write_error, write_events, write_id};
use crate::http::streamed::{Gone, Writer};
use crate::json::{write_number, write_text};
use crate::problem::{Problem, Reset};
use crate::server::Peer;
use crate::unread;

const PAGE: usize = 1_000;

pub(in crate::http) async fn watch(call: Call) -> Answer {
    let peer = &call.peer;
    let gateway = &peer.gateway;
    let query = &call.query;
    let mut faults = Vec::new();
    let prefix = prefix_of(query, &mut faults);
    let after = query.number("after", &mut faults);
    refuse_faults(faults)?;
    let resumed = last_event(call.headers(), "must be the id of an event, epoch:revision")?;
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
    let (writer, response) = event_stream();
    let listed = call.listed(ConnectionKind::KeyEvents);
    let session = Session::listed(&gateway.auth, &call.caller()?, &listed);
    let watcher = Watcher { peer: peer.clone(), epoch, prefix, writer, session };
    tokio::spawn(watcher.run(after, first));
    Ok(response)
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
    session: Session,
}

impl Watcher {
    async fn run(self, after: u64, first: KvChanges) {
        let mut shutdown = self.peer.shutdown.clone();
        let ended = {
            let session = &self.session;
            tokio::select! {
                // A reader that is gone gets no last event.
                _ = self.follow(after, first) => None,
                () = self.writer.gone() => None,
                () = shutdown.requested() => None,
                ended = session.end() => Some(ended),
            }
        };
        if let Some(ended) = ended {
            let mut out = Vec::new();
            write_error(&ended.problem(), &mut out);
            // Whether or not it is read: the stream ends here.
            let _ = self.send(&mut out).await;
        }
    }

    async fn follow(&self, after: u64, first: KvChanges) -> Result<(), Gone> {
        let peer = self.peer.clone();
        let gateway = &peer.gateway;
        let mut published = gateway.keys.published();
        let mut out = self.begun(after);
        let mut page = first;
        // The revision of the last event id sent.
        let mut sent = after;
        loop {
            for change in page.changes.iter().filter(|change| !key::is_reserved(&change.key)) {
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
                        write_id(&self.epoch, through, &mut out);
                        out.push(b'\n');
                    } else {
                        out.extend_from_slice(COMMENT);
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
                    write_error(&problem, &mut out);
                    return self.send(&mut out).await;
                }
            };
        }
    }

    fn is_of_another_epoch(&self) -> bool {
        self.peer.gateway.store.epoch() != self.epoch
    }

    async fn send(&self, out: &mut Vec<u8>) -> Result<(), Gone> {
        if out.is_empty() {
            return Ok(());
        }
        let events = unread::counted(&self.peer.reader, std::mem::take(out).into());
        write_events(&self.writer, events).await
    }

    fn begun(&self, after: u64) -> Vec<u8> {
        let mut out = Vec::new();
        write_text("event: watching\ndata: {\"epoch\":", &self.epoch, &mut out);
        write_number(",\"after\":", after, &mut out);
        out.extend_from_slice(b"}\n\n");
        out
    }

    fn write_change(&self, change: &KvChange, out: &mut Vec<u8>) {
        write_id(&self.epoch, change.revision, out);
        out.extend_from_slice(match change.what {
            KvChanged::Put => b"event: put\ndata: {\"key\":\"".as_slice(),
            KvChanged::Deleted => b"event: delete\ndata: {\"key\":\"",
            KvChanged::Expired => b"event: expire\ndata: {\"key\":\"",
        });
        key::write(&change.key, out);
        write_number("\",\"revision\":", change.revision, out);
        out.extend_from_slice(b"}\n\n");
    }
}
