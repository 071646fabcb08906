//! `GET /v1/stats/live`: the server's figures as Server-Sent Events, for the dashboard.
//!
//! Samples come from [`crate::trends`], which the server keeps anyway. What has to be asked for (the store's health, who
//! writes most) is asked for only while somebody watches, once for all who do.

mod advice;

use std::sync::Arc;
use std::time::Duration;

use hubbub_core::stats::{RoomStats, UserStats};
use hubbub_core::{RoomId, UserId};
use schemars::JsonSchema;
use serde::Serialize;
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;

use super::Answer;
use super::endpoint::Call;
use super::sse::{end, event_stream, send_away, write_error};
use super::store_read::read_something;
use super::streamed::{Gone, Writer};
use super::types::Id;
use crate::Gateway;
use crate::auth::open_connections::ConnectionKind;
use crate::auth::session::Session;
use crate::problem::Problem;
use crate::server::Peer;
use crate::trends::Remembered;
use advice::ComponentState;

const STATE_INTERVAL: Duration = Duration::from_secs(5);
/// A database counts before it says who writes most; so it is asked less often.
const TOP_INTERVAL: Duration = Duration::from_secs(10);
const TOP_INTERVAL_SHARED: Duration = Duration::from_secs(60);
const TOP_TIMEOUT: Duration = Duration::from_secs(10);
const TOP: usize = 10;

/// The beginning: what the server is, and its last hour.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Begun {
    version: &'static str,
    uptime_seconds: u64,
    /// Seconds on the server's monotonic clock now.
    now: f64,
    #[serde(flatten)]
    remembered: Remembered,
}

/// How the server is, in words, and who writes most.
#[derive(Debug, Default, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct ServerState {
    components: Vec<ComponentState>,
    /// Most messages first, of all that are kept.
    top_rooms: Vec<TopRoom>,
    /// Likewise.
    top_users: Vec<TopUser>,
}

#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
struct TopRoom {
    room_id: Id<RoomId>,
    messages: u64,
}

#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
struct TopUser {
    user_id: Id<UserId>,
    messages: u64,
}

/// What all who watch see.
#[derive(Debug, Default)]
pub(crate) struct Watching {
    state: watch::Sender<Option<Arc<ServerState>>>,
    /// Held by the one who asks; when the state and the top lists were last asked for.
    asking: Arc<tokio::sync::Mutex<QueryTimes>>,
}

#[derive(Debug, Default)]
struct QueryTimes {
    state_at: Option<Duration>,
    top_at: Option<Duration>,
}

pub(super) async fn watch(call: Call) -> Answer {
    let listed = call.listed(ConnectionKind::Dashboard);
    let session = Session::listed(&call.gateway().auth, &call.caller()?, &listed);
    let (writer, response) = event_stream();
    tokio::spawn(stream(call.peer.clone(), session, writer));
    Ok(response)
}

async fn stream(peer: Arc<Peer>, session: Session, writer: Writer) {
    let mut shutdown = peer.shutdown.clone();
    tokio::select! {
        // A reader that is gone gets no last event.
        _ = follow(&peer.gateway, &writer) => {}
        () = writer.gone() => {}
        () = shutdown.requested() => send_away(&peer.gateway, &writer).await,
        ended = session.end() => end(&ended.problem(), &writer).await,
    }
}

async fn follow(gateway: &Arc<Gateway>, writer: &Writer) -> Result<(), Gone> {
    let statistics = &gateway.statistics;
    let (remembered, mut samples) = statistics.trends.watch();
    let mut states = statistics.watching.state.subscribe();
    states.mark_changed();
    let now = gateway.clock.monotonic();
    let begun = Begun {
        version: env!("CARGO_PKG_VERSION"),
        uptime_seconds: statistics.uptime(now).as_secs(),
        now: now.as_secs_f64(),
        remembered,
    };
    writer.write(event("begun", &begun)).await?;
    let mut asking = tokio::time::interval(STATE_INTERVAL);
    asking.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let event = tokio::select! {
            // It goes on when this reader is gone, and is still the only one then.
            _ = asking.tick() => {
                tokio::spawn(ask(gateway.clone()));
                continue;
            }
            // What publishes is part of the gateway, and does not end before it.
            _ = samples.changed() => event("sample", &**samples.borrow_and_update()),
            _ = states.changed() => match &*states.borrow_and_update() {
                Some(state) => event("state", &**state),
                None => continue,
            },
        };
        writer.write(event).await?;
    }
}

/// Finds out how the server is, unless somebody does or has just done so.
async fn ask(gateway: Arc<Gateway>) {
    let watching = &gateway.statistics.watching;
    let Ok(mut asked) = watching.asking.clone().try_lock_owned() else { return };
    let now = gateway.clock.monotonic();
    // Others watch, too, and their timers differ.
    let is_due =
        |at: Option<Duration>, interval: Duration| at.is_none_or(|at| now.saturating_sub(at) >= interval);
    if !is_due(asked.state_at, STATE_INTERVAL / 2) {
        return;
    }
    asked.state_at = Some(now);
    let read = read_something(&gateway).await;
    let known = watching.state.borrow().clone();
    let (mut top_rooms, mut top_users) =
        known.map(|known| (known.top_rooms.clone(), known.top_users.clone())).unwrap_or_default();
    let interval = if gateway.store.is_shared() { TOP_INTERVAL_SHARED } else { TOP_INTERVAL };
    if is_due(asked.top_at, interval) {
        asked.top_at = Some(now);
        // What cannot be read now stays as it was; the component says why.
        if let Ok(Some(top)) = tokio::time::timeout(TOP_TIMEOUT, read_top(&gateway)).await {
            (top_rooms, top_users) = top;
        }
    }
    let components = advice::of(&gateway, read);
    watching.state.send_replace(Some(Arc::new(ServerState { components, top_rooms, top_users })));
}

async fn read_top(gateway: &Gateway) -> Option<(Vec<TopRoom>, Vec<TopUser>)> {
    let rooms = gateway.store.top_rooms(TOP).await.ok()?.value;
    let users = gateway.store.top_users(TOP).await.ok()?.value;
    let room = |RoomStats { room, messages, .. }| TopRoom { room_id: Id(room), messages };
    let user = |UserStats { user, messages, .. }| TopUser { user_id: Id(user), messages };
    Some((rooms.into_iter().map(room).collect(), users.into_iter().map(user).collect()))
}

fn event(kind: &str, data: &impl Serialize) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend_from_slice(b"event: ");
    out.extend_from_slice(kind.as_bytes());
    out.extend_from_slice(b"\ndata: ");
    // Writing into memory does not fail, and JSON holds no line breaks.
    if let Err(error) = serde_json::to_writer(&mut out, data) {
        tracing::error!(%error, kind, "writing an event of the dashboard as JSON failed");
        out.clear();
        write_error(&Problem::new(hubbub_core::ErrorCode::Internal, "see the server's log"), &mut out);
        return out;
    }
    out.extend_from_slice(b"\n\n");
    out
}
