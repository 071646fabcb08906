//! `GET /v1/rooms/{room}/messages/{id}/timeline`: what became of a message on this server, and when.

use std::time::Duration;

use hubbub_core::invariant::saturate;
use hubbub_core::{ErrorCode, MessageId, Receipt, RoomId, Timestamp};
use hubbub_pipeline::timeline::{CommittedBatch, MessageTrace, Publication, Source};
use hyper::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;
use tokio::sync::Semaphore;

use super::endpoint::Call;
use super::one_history::read_of_one_history;
use super::types::{Epoch, Id, Time};
use super::{Answer, json_of};
use crate::Gateway;
use crate::problem::Problem;

/// One search of the records at a time: they are locked part by part, and whoever commits needs that lock.
static SEARCHES: Semaphore = Semaphore::const_new(1);

/// What is on record of a message on the server that answers.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Timeline {
    /// The server that answers (`server.name`). It knows what it did itself.
    server: String,
    room_id: Id<RoomId>,
    message_id: Id<MessageId>,
    seq: u64,
    epoch: Epoch,
    /// What happened, in its order.
    events: Vec<Event>,
    /// What this server has no record of. It is not guessed.
    missing: Vec<Missing>,
    /// Everything that happened here from then on is on record; `null` = nothing is recorded.
    recorded_since: Option<Time>,
}

/// Something that happened to the message on this server. Batches are recorded, not messages: times are those of the batch.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Event {
    stage: Stage,
    /// By this server's clock; of `received`, by the store's or the broker's.
    at: Time,
    /// Where it took a while: when the last operation of the batch was queued; when the last subscriber had the message.
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<Time>,
    /// With `queued`, the operations of the batch; with `published` and `delivered`, subscribers.
    #[serde(skip_serializing_if = "Option::is_none")]
    count: Option<u64>,
    /// With `published`: where the message came from.
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<Origin>,
}

/// `received`: it got its number and its time. `queued`: its batch waited for the store. `committing`: the store was given the
/// batch. `stored`: it was on disk. `answered`: senders were told; not with a broker, which told them before. `bus`: it was sent to other servers. `published`: it was queued
/// for the live subscribers of this server. `delivered`: their connections took it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
enum Stage {
    Received,
    Queued,
    Committing,
    Stored,
    Answered,
    Bus,
    Published,
    Delivered,
}

/// `commit`: this server stored it. `bus`: another one did, and sent it. `store`: it was read from the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
enum Origin {
    Commit,
    Bus,
    Store,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Missing {
    stage: Stage,
    because: Reason,
}

/// `notHere`: it did not happen on this server, as far as its record goes back: another server stored the message, or the answer
/// of the store was lost; nobody followed the room here. `tooOld`: the message was received before the record begins. `off`:
/// nothing is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
enum Reason {
    NotHere,
    TooOld,
    Off,
}

pub(super) async fn timeline(call: Call) -> Answer {
    let gateway = call.gateway();
    let (room, message) = (call.room()?, call.message()?);
    let caller = call.caller()?;
    let read = || gateway.read_as(&room, &caller, gateway.store.receipt(room.clone(), message.clone()));
    let (receipt, epoch) = read_of_one_history(|| gateway.store.epoch(), read).await?;
    let Some(receipt) = receipt else {
        let pending = if gateway.log.parts_messages() {
            "; the broker may have it, but it is not stored yet"
        } else {
            ""
        };
        let detail = format!("room '{room}' has no message '{message}'{pending}");
        return Err(Problem::new(ErrorCode::UnknownMessage, detail));
    };
    let (hub, name) = (gateway.hub.clone(), room.clone());
    let permit = SEARCHES.acquire().await;
    let searching = tokio::task::spawn_blocking(move || {
        let trace = hub.timeline().trace(name.as_str(), &receipt);
        drop(permit);
        trace
    });
    let trace =
        searching.await.map_err(|_| Problem::new(ErrorCode::Internal, "reading the records failed"))?;
    let (room_id, message_id) = (Id(room), Id(message));
    let since = trace.as_ref().map(|trace| trace.since);
    let times = Times::of(gateway);
    let timeline = Timeline {
        server: gateway.name.clone(),
        room_id,
        message_id,
        seq: receipt.seq,
        epoch: Epoch(epoch),
        missing: missing(trace.as_ref(), since.map(|since| receipt.received_at < times.time(since).0)),
        // With a broker, its consumer is the batch's sender.
        events: events(&receipt, trace.unwrap_or_default(), !gateway.log.parts_messages(), &times),
        recorded_since: since.map(|since| times.time(since)),
    };
    json_of(StatusCode::OK, &timeline)
}

/// Both clocks at one moment.
struct Times {
    now: Timestamp,
    monotonic: Duration,
}

impl Times {
    fn of(gateway: &Gateway) -> Self {
        Self { now: gateway.clock.precise(), monotonic: gateway.clock.monotonic() }
    }

    fn time(&self, monotonic: Duration) -> Time {
        let ago = saturate::<_, i64>(self.monotonic.saturating_sub(monotonic).as_micros());
        Time(Timestamp::from_micros(self.now.as_micros().saturating_sub(ago)))
    }
}

fn events(receipt: &Receipt, trace: MessageTrace, tells_senders: bool, times: &Times) -> Vec<Event> {
    let event = |stage, at| Event { stage, at: times.time(at), until: None, count: None, from: None };
    let mut events = vec![Event { at: Time(receipt.received_at), ..event(Stage::Received, Duration::ZERO) }];
    if let Some(CommittedBatch { times: batch, operations }) = trace.batch {
        let until = (batch.queued_last > batch.queued).then(|| times.time(batch.queued_last));
        events.extend([
            Event { until, count: Some(operations), ..event(Stage::Queued, batch.queued) },
            event(Stage::Committing, batch.taken),
            event(Stage::Stored, batch.stored),
        ]);
        events.extend(tells_senders.then(|| event(Stage::Answered, batch.answered)));
    }
    events.extend(trace.bus.map(|at| event(Stage::Bus, at)));
    for Publication { at, source, subscribers, delivered, delivered_at } in trace.publications {
        let from = match source {
            Source::Commit => Origin::Commit,
            Source::Bus => Origin::Bus,
            Source::Store => Origin::Store,
        };
        let published = event(Stage::Published, at);
        events.push(Event { count: Some(subscribers), from: Some(from), ..published });
        if let Some((first, last)) = delivered_at {
            let until = (last > first).then(|| times.time(last));
            events.push(Event { until, count: Some(delivered), ..event(Stage::Delivered, first) });
        }
    }
    // The clock of `received` may be another one; it stays first.
    if let Some(recorded) = events.get_mut(1..) {
        recorded.sort_by_key(|event| event.at);
    }
    events
}

fn missing(trace: Option<&MessageTrace>, is_older: Option<bool>) -> Vec<Missing> {
    let because = match is_older {
        None => Reason::Off,
        Some(true) => Reason::TooOld,
        Some(false) => Reason::NotHere,
    };
    let is_stored = trace.is_some_and(|trace| trace.batch.is_some());
    let is_published = trace.is_some_and(|trace| !trace.publications.is_empty());
    let stages = [(Stage::Stored, is_stored), (Stage::Published, is_published)];
    stages
        .into_iter()
        .filter(|(_, is_there)| !is_there)
        .map(|(stage, _)| Missing { stage, because })
        .collect()
}
