//! Following one room: reading what was missed page by page, then going live without a gap.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use hubbub_core::store::{Cursor, HistoryPage, HistoryQuery, ReadError, RoomInfo};
use hubbub_core::{MessageRun, RoomId, UserId};
use hubbub_pipeline::hub::{Attachment, Outbox};

use crate::Gateway;
use crate::problem::{Problem, Reset};

/// A page of what was missed: few enough to keep memory small, many enough to be quick.
const PAGE_MESSAGES: usize = 500;
const PAGE_BYTES: usize = 256 * 1024;

/// The last so many messages are read at once: fewer than asked for, if their texts are larger than this.
const LAST_BYTES: usize = 4 * 1024 * 1024;

/// Where to begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Start {
    /// With the next message.
    Live,
    /// Behind a seq; 0 = with the oldest.
    After(u64),
    /// With the last so many.
    Last(usize),
}

/// Where to go on when the cursor cannot be honoured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnReset {
    Replay,
    Live,
}

/// What a client asked for.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    pub(crate) start: Start,
    pub(crate) epoch: Option<String>,
    pub(crate) on_reset: OnReset,
}

/// What comes next.
#[derive(Debug)]
pub(crate) enum Step {
    /// The first step: how the room stands, and whether the cursor could not be honoured.
    Begun { at: Reset, is_reset: bool },
    /// Messages that were missed, in order.
    Missed(MessageRun),
    /// The last step: from here on the outbox gets the messages.
    Live,
    /// The last step: the room cannot be followed.
    Failed(Problem),
}

#[derive(Debug)]
enum Stage {
    /// Nothing is known of the room yet.
    Asked(Wanted),
    /// The last so many up to the head that was announced are to be read.
    Last { count: usize, head: u64 },
    /// Everything up to this seq was handed out.
    Behind { cursor: u64, is_at_end: bool },
    /// The outbox gets the rest.
    Live,
}

enum Fetched {
    Info(Result<Option<RoomInfo>, ReadError>),
    Page(Result<HistoryPage, ReadError>),
}

type Fetch = Pin<Box<dyn Future<Output = Fetched> + Send>>;

/// One room on its way to one client. Dropped, it is not followed any more.
pub(crate) struct Follower {
    gateway: Arc<Gateway>,
    room: RoomId,
    /// Given back when dropped.
    attachment: Option<Attachment>,
    outbox: Arc<Outbox>,
    stage: Stage,
    fetch: Option<Fetch>,
}

impl Follower {
    /// Begins to follow `room` for `user`; what is live goes into `outbox`.
    pub(crate) fn new(
        gateway: Arc<Gateway>,
        room: RoomId,
        user: Option<UserId>,
        wanted: Wanted,
        outbox: Arc<Outbox>,
    ) -> Self {
        // Before anything of the room is read, so that nothing published meanwhile is missed.
        let attachment = Some(gateway.hub.attach(room.clone(), user));
        Self { gateway, room, attachment, outbox, stage: Stage::Asked(wanted), fetch: None }
    }

    /// The next step. Not to be called again after [`Step::Live`] or [`Step::Failed`].
    pub(crate) fn poll_step(&mut self, context: &mut Context<'_>) -> Poll<Step> {
        loop {
            if let (Stage::Behind { cursor, is_at_end: true }, Some(attachment)) =
                (&self.stage, &mut self.attachment)
            {
                if self.gateway.hub.join(attachment, &self.outbox, *cursor) {
                    self.stage = Stage::Live;
                    return Poll::Ready(Step::Live);
                }
                self.stage = Stage::Behind { cursor: *cursor, is_at_end: false };
            }
            let fetched = {
                let Self { fetch, gateway, room, stage, .. } = self;
                ready!(fetch.get_or_insert_with(|| begin_fetch(gateway, room, stage)).as_mut().poll(context))
            };
            self.fetch = None;
            if let Some(step) = self.take(fetched) {
                return Poll::Ready(step);
            }
        }
    }

    fn take(&mut self, fetched: Fetched) -> Option<Step> {
        match fetched {
            Fetched::Info(Ok(info)) => {
                let (head, oldest) = info.map_or((0, 1), |info| (info.head, info.oldest));
                let at = Reset { epoch: self.gateway.store.epoch(), oldest, head };
                let Stage::Asked(wanted) = &self.stage else { return None };
                let is_reset = wanted.is_reset(&at);
                self.stage = wanted.first_stage(&at, is_reset);
                Some(Step::Begun { at, is_reset })
            }
            Fetched::Page(Ok(page)) => {
                let last = page.messages.len().checked_sub(1).and_then(|last| page.messages.get(last));
                self.stage = match (&self.stage, last.map(|message| message.seq)) {
                    // The last so many end at the head; what came since is read on from there.
                    (Stage::Last { head, .. }, seq) => {
                        Stage::Behind { cursor: seq.unwrap_or(*head), is_at_end: true }
                    }
                    (Stage::Behind { .. }, Some(cursor)) => Stage::Behind { cursor, is_at_end: !page.more },
                    (Stage::Behind { cursor, .. }, None) => {
                        Stage::Behind { cursor: *cursor, is_at_end: true }
                    }
                    (Stage::Asked(_) | Stage::Live, _) => return None,
                };
                (!page.messages.is_empty()).then_some(Step::Missed(page.messages))
            }
            // The room springs into being with its first message.
            Fetched::Page(Err(ReadError::UnknownRoom)) => {
                self.stage = Stage::Behind { cursor: 0, is_at_end: true };
                None
            }
            Fetched::Info(Err(error)) | Fetched::Page(Err(error)) => Some(Step::Failed(error.into())),
        }
    }
}

impl Follower {
    /// Tells the others who follow the room that this one's user writes.
    pub(crate) fn typing(&self) {
        if let Some(attachment) = &self.attachment {
            self.gateway.hub.typing(attachment, &self.outbox);
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        if let Some(attachment) = self.attachment.take() {
            self.gateway.hub.detach(attachment, &self.outbox);
        }
    }
}

impl Wanted {
    /// Whether the cursor cannot be honoured where the room stands.
    fn is_reset(&self, at: &Reset) -> bool {
        let is_foreign = self.epoch.as_ref().is_some_and(|given| **given != *at.epoch);
        match self.start {
            // "From the oldest" and "from now" mean something in every history.
            Start::After(0) => false,
            Start::After(after) => is_foreign || after > at.head || after + 1 < at.oldest,
            Start::Live | Start::Last(_) => is_foreign,
        }
    }

    fn first_stage(&self, at: &Reset, is_reset: bool) -> Stage {
        let before_oldest = at.oldest.saturating_sub(1);
        let cursor = match (is_reset, self.on_reset, self.start) {
            (true, OnReset::Replay, _) => before_oldest,
            (true, OnReset::Live, _) | (false, _, Start::Live) => at.head,
            (false, _, Start::After(after)) => after.max(before_oldest),
            (false, _, Start::Last(last)) => return Stage::Last { count: last, head: at.head },
        };
        Stage::Behind { cursor, is_at_end: cursor >= at.head }
    }
}

fn begin_fetch(gateway: &Arc<Gateway>, room: &RoomId, stage: &Stage) -> Fetch {
    let (store, room) = (gateway.store.clone(), room.clone());
    let (cursor, limit, bytes_max) = match stage {
        Stage::Asked(_) => return Box::pin(async move { Fetched::Info(store.room(room).await) }),
        Stage::Last { count, head } => (Cursor::Before(head.saturating_add(1)), *count, LAST_BYTES),
        Stage::Behind { cursor, .. } => (Cursor::After(*cursor), PAGE_MESSAGES, PAGE_BYTES),
        Stage::Live => (Cursor::After(u64::MAX), 1, PAGE_BYTES),
    };
    let query = HistoryQuery { cursor, from: None, to: None, limit, bytes_max };
    Box::pin(async move { Fetched::Page(store.history(room, query).await) })
}
