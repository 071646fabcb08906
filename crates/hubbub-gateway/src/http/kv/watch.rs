//! `GET /v1/kv/watch`: Server-Sent Events, one for each change of a key, resumed by `Last-Event-ID` (`epoch:revision`).

use std::sync::Arc;

use hubbub_core::ErrorCode;
use hubbub_core::kv::{KvChange, KvChanged, KvChanges, KvChangesRead};
use hubbub_pipeline::kv::{ChangeRange, RevisionWatch};
use tokio::time::{Instant, timeout_at};

use super::key;
use super::list::prefix_of;
use crate::Gateway;
use crate::auth::open_connections::ConnectionKind;
use crate::auth::session::Session;
use crate::http::Answer;
use crate::http::endpoint::Call;
use crate::http::query::refuse_faults;
use crate::http::sse::{
    COMMENT, HEARTBEAT, end, event_stream, last_event, send_away, write_cursor, write_error, write_events,
    write_id,
};
use crate::http::streamed::{Gone, Writer};
use crate::json::{write_number, write_text};
use crate::outgoing_memory;
use crate::problem::{Problem, Reset};
use crate::server::Peer;

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
    let following = gateway.keys.following();
    let epoch = gateway.store.epoch();
    let cursor_epoch = resumed.as_ref().map(|(epoch, _)| epoch.as_str()).or(query.get("epoch"));
    // Read before the answer begins, so that a cursor that cannot be honoured gets a status.
    let (epoch, after, first) = match resumed.as_ref().map(|(_, after)| *after).or(after) {
        Some(after) if cursor_epoch.is_some_and(|given| *given != *epoch) => {
            return Err(of_another_epoch(gateway, after).await?);
        }
        Some(after) => {
            let first = page(gateway, &epoch, &prefix, after).await?;
            (epoch, after, first)
        }
        None => {
            let ChangeRange { epoch, head, .. } = change_range(gateway).await?;
            (epoch, head, KvChanges { through: head, ..KvChanges::default() })
        }
    };
    let (writer, response) = event_stream();
    let listed = call.listed(ConnectionKind::KeyEvents);
    let session = Session::listed(&gateway.auth, &call.caller()?, &listed);
    let watcher = Watcher { peer: peer.clone(), epoch, prefix, writer, session };
    tokio::spawn(watcher.run(after, first, following));
    Ok(response)
}

async fn change_range(gateway: &Gateway) -> Result<ChangeRange, Problem> {
    Ok(gateway.keys.change_range(|| gateway.store.epoch()).await?)
}

async fn reset(gateway: &Gateway) -> Result<Option<Reset>, Problem> {
    let ChangeRange { epoch, oldest, head } = change_range(gateway).await?;
    Ok(Some(Reset { epoch, oldest, head }))
}

async fn of_another_epoch(gateway: &Gateway, after: u64) -> Result<Problem, Problem> {
    let detail = format!("revision {after} is of another history of this store; list the keys anew");
    Ok(Problem { reset: reset(gateway).await?, ..Problem::new(ErrorCode::Reset, detail) })
}

/// The changes behind `after` in the history `epoch`, none before it is published.
async fn page(gateway: &Gateway, epoch: &str, prefix: &[u8], after: u64) -> Result<KvChanges, Problem> {
    match gateway.store.changes(prefix, after, PAGE).await? {
        // Revisions count anew where another history of the store began, or go on far behind.
        _ if *gateway.store.epoch() != *epoch => of_another_epoch(gateway, after).await.and_then(Err),
        KvChangesRead::Changes(page) => {
            gateway.keys.caught_up().await;
            Ok(page)
        }
        KvChangesRead::Compacted { .. } => {
            let reset = reset(gateway).await?;
            let detail = match &reset {
                Some(Reset { head, .. }) if after > *head => {
                    format!("revision {after} lies ahead: the newest is {head}; list the keys anew")
                }
                _ => format!("changes behind revision {after} are not kept any more; list the keys anew"),
            };
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
    async fn run(self, after: u64, first: KvChanges, following: RevisionWatch) {
        let mut shutdown = self.peer.shutdown.clone();
        tokio::select! {
            // A reader that is gone gets no last event.
            _ = self.follow(after, first, following) => {}
            () = self.writer.gone() => {}
            () = shutdown.requested() => send_away(&self.peer.gateway, &self.writer).await,
            ended = self.session.end() => end(&ended.problem(), &self.writer).await,
        }
    }

    async fn follow(&self, after: u64, first: KvChanges, mut following: RevisionWatch) -> Result<(), Gone> {
        let mut out = self.begun(after);
        let mut page = first;
        // The revision of the last event id sent.
        let mut sent = after;
        let mut beat_at = Instant::now() + HEARTBEAT;
        loop {
            for change in page.changes.iter().filter(|change| !key::is_reserved(&change.key)) {
                self.write_change(change, &mut out);
                sent = change.revision;
            }
            let through = page.through;
            loop {
                // Also where others change keys all the time.
                if out.is_empty() && Instant::now() >= beat_at {
                    self.write_heartbeat(through, &mut sent, &mut out);
                }
                if !out.is_empty() {
                    self.send(&mut out).await?;
                    beat_at = Instant::now() + HEARTBEAT;
                }
                let is_read_again = page.more || timeout_at(beat_at, following.more(through)).await.is_ok();
                if is_read_again || self.is_of_another_epoch() {
                    break;
                }
            }
            following.begin_read();
            page = match self::page(&self.peer.gateway, &self.epoch, &self.prefix, through).await {
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
        let events = outgoing_memory::charge(&self.peer.reader, std::mem::take(out).into());
        write_events(&self.writer, events).await
    }

    fn begun(&self, after: u64) -> Vec<u8> {
        let mut out = Vec::new();
        // A reader that is cut off before the first change comes back to where it began.
        write_id(&self.epoch, after, &mut out);
        write_text("event: watching\ndata: {\"epoch\":", &self.epoch, &mut out);
        write_number(",\"after\":", after, &mut out);
        out.extend_from_slice(b"}\n\n");
        out
    }

    /// Moves the cursor of a reader without changes of its own, or changes behind it would expire.
    fn write_heartbeat(&self, through: u64, sent: &mut u64, out: &mut Vec<u8>) {
        if through > *sent {
            *sent = through;
            write_cursor(&self.epoch, through, out);
        } else {
            out.extend_from_slice(COMMENT);
        }
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

#[cfg(test)]
mod tests {
    use hubbub_core::clock::ManualClock;

    use super::*;
    use crate::fixture::{self, now, put};

    /// What is published may be of another history, or late.
    #[tokio::test]
    async fn who_must_begin_anew_is_told_what_the_store_has() {
        let gateway = fixture::gateway(Arc::new(ManualClock::at(now()))).await;
        put(&*gateway.store, b"a", "x", 60_000);
        let (epoch, head) = (gateway.store.epoch(), gateway.store.revision());
        assert!(head > 0);
        let found = page(&gateway, &epoch, b"a", 0).await.unwrap();
        assert_eq!((found.changes.len(), found.through), (1, head));
        let reset = Some(Reset { epoch: epoch.clone(), oldest: 0, head });
        for (of, after, code) in [("another", 0, ErrorCode::Reset), (&*epoch, head + 1, ErrorCode::Compacted)]
        {
            let problem = page(&gateway, of, b"a", after).await.unwrap_err();
            assert_eq!((problem.code, &problem.reset), (code, &reset));
        }
    }
}
