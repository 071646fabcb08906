//! Follows one room: reads what was missed page by page, then joins live delivery without a gap.

mod request;

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hubbub_core::store::{Cursor, HistoryPage, HistoryQuery, ReadError, RoomInfo};
use hubbub_core::{MessageRun, RoomId, UserId};
use hubbub_pipeline::AccessLevel;
use hubbub_pipeline::hub::{Attachment, Joined, Outbox};

use crate::Gateway;
use crate::problem::{Problem, Reset};
pub(crate) use request::{Audience, FollowRequest, OnReset, Start};

/// A page of what was missed: few enough to keep memory small, many enough to be quick.
const PAGE_MESSAGES: usize = 500;
const PAGE_BYTES: usize = 256 * 1024;
/// A page while live messages take too much memory.
const SMALL_PAGE_BYTES: usize = 16 * 1024;

/// Pause before a read from the same cursor as the last one, although the hub has published messages beyond it. The store
/// and the hub agree again within moments, or the subscription ends.
const AGAIN_AFTER: Duration = Duration::from_millis(50);

/// Bytes of the page with the last messages, which is read at once. Larger texts make it shorter than requested.
const LAST_BYTES: usize = 4 * 1024 * 1024;

#[derive(Debug)]
pub(crate) enum Step {
    /// The first step: the room's position, and whether the cursor could not be honoured. What is published behind `cursor`
    /// follows; `None` where earlier messages do, too ([`Start::Last`]).
    Begun {
        at: Reset,
        is_reset: bool,
        cursor: Option<u64>,
    },
    /// A gap, because retention removed the next messages meanwhile, and the room's position. The oldest message follows, or
    /// with [`OnReset::Live`] the next one that is published: what is behind `cursor`.
    Reset {
        at: Reset,
        cursor: u64,
    },
    Missed(MessageRun),
    /// More was published than could be held while joining. It is read from the store, and other rooms may go first.
    Outrun,
    /// The last step: the outbox gets the messages from here on.
    Live,
    /// The last step: the room cannot be followed.
    Failed(Problem),
    /// The last step, and the first: the user is no member. Only with [`Audience::Members`].
    Gone,
}

#[derive(Debug)]
enum Stage {
    /// Nothing is known of the room yet.
    Requested(FollowRequest),
    /// The last messages up to the announced head are to be read.
    Last {
        count: usize,
        head: u64,
    },
    /// Everything up to this seq was returned.
    Behind {
        cursor: u64,
        is_at_end: bool,
    },
    Live,
    /// The outbox says that the subscription has ended, or is cut off.
    Over,
}

enum Fetched {
    /// The store's epoch before the read, the user's access to the room, and the room.
    Info(Arc<str>, Result<(AccessLevel, Option<RoomInfo>), ReadError>),
    /// A page, and the user's access to the room after it was read.
    Page(Result<(HistoryPage, AccessLevel), ReadError>),
}

type Fetch = Pin<Box<dyn Future<Output = Fetched> + Send>>;

/// One room that one client follows. Dropping it ends that.
pub(crate) struct Follower {
    gateway: Arc<Gateway>,
    room: RoomId,
    user: Option<UserId>,
    /// The history of the store that it follows the room in. Once another one begins, the outbox is cut.
    epoch: Arc<str>,
    /// The user's access to the room when the subscription began.
    access: AccessLevel,
    attachment: Option<Attachment>,
    outbox: Arc<Outbox>,
    stage: Stage,
    /// The cursor from which the hub last requested another read.
    read_on_from: Option<u64>,
    fetch: Option<Fetch>,
    on_reset: OnReset,
    /// Whether the client has what is before the cursor, so that messages missing behind it are a gap.
    has_cursor: bool,
    /// The page that follows a reset.
    page: Option<MessageRun>,
    /// Whether it tried to join, and the outbox holds what was published since.
    has_tried_to_join: bool,
}

impl Follower {
    pub(crate) fn new(
        gateway: Arc<Gateway>,
        room: RoomId,
        user: Option<UserId>,
        request: FollowRequest,
        outbox: Arc<Outbox>,
    ) -> Self {
        // Before the room and its members are read, so that nothing published meanwhile is missed.
        let attachment = Some(gateway.hub.attach(room.clone(), user.clone(), &outbox));
        Self {
            epoch: gateway.store.epoch(),
            gateway,
            room,
            user,
            access: AccessLevel::Guest,
            attachment,
            outbox,
            on_reset: request.on_reset,
            stage: Stage::Requested(request),
            read_on_from: None,
            fetch: None,
            has_cursor: false,
            page: None,
            has_tried_to_join: false,
        }
    }

    /// The next step. Must not be called after a last step. There is no further step once the outbox says that the
    /// subscription has ended, or is cut.
    pub(crate) fn poll_step(&mut self, context: &mut Context<'_>) -> Poll<Step> {
        if let Some(page) = self.page.take() {
            return Poll::Ready(Step::Missed(page));
        }
        loop {
            if let Some(step) = self.join() {
                return Poll::Ready(step);
            }
            if matches!(self.stage, Stage::Over) {
                return Poll::Pending;
            }
            let fetched = ready!(self.fetch(Duration::ZERO).as_mut().poll(context));
            self.fetch = None;
            if let Some(step) = self.take(fetched) {
                return Poll::Ready(step);
            }
        }
    }

    /// Joins live delivery, if everything that was published is read.
    fn join(&mut self) -> Option<Step> {
        let Stage::Behind { cursor, is_at_end: true } = self.stage else { return None };
        match self.gateway.hub.join(self.attachment.as_ref()?, &self.outbox, cursor) {
            Joined::Live => {
                self.stage = Stage::Live;
                return Some(Step::Live);
            }
            Joined::ReadOn => {
                self.stage = Stage::Behind { cursor, is_at_end: false };
                let is_same = self.read_on_from.replace(cursor) == Some(cursor);
                self.fetch(if is_same { AGAIN_AFTER } else { Duration::ZERO });
                // On its next turn it may try twice again. An outbox holds messages for one room; two rooms that took
                // that from each other with each try would never go live.
                self.has_tried_to_join = !self.has_tried_to_join;
                return (!self.has_tried_to_join).then_some(Step::Outrun);
            }
            Joined::Ended => self.stage = Stage::Over,
        }
        None
    }

    /// The read that the stage needs; begins after `pause` unless it is under way.
    fn fetch(&mut self, pause: Duration) -> &mut Fetch {
        let Self { gateway, room, user, stage, fetch, .. } = self;
        fetch.get_or_insert_with(|| begin_fetch(gateway, room, user, stage, pause))
    }

    fn take(&mut self, fetched: Fetched) -> Option<Step> {
        match fetched {
            Fetched::Info(epoch, Ok((access, info))) => {
                let Stage::Requested(request) = &self.stage else { return None };
                if epoch != self.gateway.store.epoch() {
                    // Another epoch began meanwhile, and this may be of either.
                    return None;
                }
                let is_member = access == AccessLevel::Member;
                let confirm = |attachment| self.gateway.hub.confirm(attachment, &self.outbox, is_member);
                if !self.attachment.as_ref().is_none_or(confirm) {
                    return None;
                }
                if request.audience == Audience::Members && !is_member {
                    return Some(Step::Gone);
                }
                if access == AccessLevel::Outsider {
                    return Some(Step::Failed(Problem::not_member()));
                }
                self.access = access;
                self.epoch = epoch.clone();
                let (head, oldest) = info.map_or((0, 1), |info| (info.head, info.oldest));
                let at = Reset { epoch, oldest, head };
                let is_reset = request.is_reset(&at);
                self.has_cursor = request.has_cursor(is_reset);
                let cursor = request.cursor(&at, is_reset);
                self.stage = match (cursor, request.start) {
                    (None, Start::Last(count)) => Stage::Last { count, head: at.head },
                    _ => {
                        let cursor = cursor.unwrap_or(at.head).max(at.oldest.saturating_sub(1));
                        Stage::Behind { cursor, is_at_end: cursor >= at.head }
                    }
                };
                Some(Step::Begun { at, is_reset, cursor })
            }
            // Another epoch may have begun, and the page may be of that one. The owner of the outbox ends the connection.
            Fetched::Page(_) if self.outbox.is_cut() => {
                self.stage = Stage::Over;
                None
            }
            // Removed since the subscription began, perhaps by another server. The page may hold later messages.
            Fetched::Page(Ok((_, access))) if access != self.access && access != AccessLevel::Member => {
                if let Some(attachment) = &self.attachment {
                    self.gateway.hub.end_joining(attachment, &self.outbox);
                }
                self.stage = Stage::Over;
                None
            }
            Fetched::Page(Ok((page, _))) => self.take_page(page),
            // The first message creates the room.
            Fetched::Page(Err(ReadError::UnknownRoom)) => {
                self.stage = Stage::Behind { cursor: 0, is_at_end: true };
                None
            }
            Fetched::Info(_, Err(error)) => Some(Step::Failed(error.into())),
            Fetched::Page(Err(error)) => Some(Step::Failed(error.into())),
        }
    }

    fn take_page(&mut self, page: HistoryPage) -> Option<Step> {
        let is_gap = match &self.stage {
            Stage::Behind { cursor, .. } => self.has_cursor && cursor.saturating_add(1) < page.oldest,
            _ => false,
        };
        let last = page.messages.len().checked_sub(1).and_then(|last| page.messages.get(last));
        let last = last.map(|message| message.seq);
        self.stage = match (&self.stage, last) {
            (Stage::Behind { .. }, _) if is_gap && self.on_reset == OnReset::Live => {
                Stage::Behind { cursor: page.head, is_at_end: true }
            }
            // The last messages end at the announced head; reading goes on from there.
            (Stage::Last { head, .. }, _) => Stage::Behind { cursor: *head, is_at_end: true },
            (Stage::Behind { .. }, Some(cursor)) if page.more => Stage::Behind { cursor, is_at_end: false },
            // Behind the last message there may be numbers of erased ones.
            (Stage::Behind { cursor, .. }, last) => {
                let cursor = last.unwrap_or(*cursor).max(page.head);
                Stage::Behind { cursor, is_at_end: true }
            }
            (Stage::Requested(_) | Stage::Live | Stage::Over, _) => return None,
        };
        self.has_cursor = true;
        let missed = Some(page.messages).filter(|messages| !messages.is_empty());
        if !is_gap {
            return missed.map(Step::Missed);
        }
        self.page = missed.filter(|_| self.on_reset == OnReset::Replay);
        let at = Reset { epoch: self.epoch.clone(), oldest: page.oldest, head: page.head };
        Some(Step::Reset { cursor: self.on_reset.cursor(&at), at })
    }

    /// Notifies the other followers of the room that the user is typing. Returns whether it did: only of who is live in it.
    pub(crate) fn typing(&self) -> bool {
        self.attachment.as_ref().is_some_and(|attachment| self.gateway.hub.typing(attachment))
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        if let Some(attachment) = self.attachment.take() {
            self.gateway.hub.detach(attachment);
        }
    }
}

fn begin_fetch(
    gateway: &Arc<Gateway>,
    room: &RoomId,
    user: &Option<UserId>,
    stage: &Stage,
    pause: Duration,
) -> Fetch {
    let (gateway, room, user) = (gateway.clone(), room.clone(), user.clone());
    let page_bytes = if gateway.hub.memory().is_exceeded() { SMALL_PAGE_BYTES } else { PAGE_BYTES };
    let (cursor, limit, bytes_max) = match stage {
        Stage::Requested(_) => {
            return Box::pin(async move {
                let epoch = gateway.store.epoch();
                let info = async {
                    let access = access_level(&gateway, &room, user).await?;
                    Ok((access, gateway.store.room(room).await?))
                };
                Fetched::Info(epoch, info.await)
            });
        }
        Stage::Last { count, head } => (Cursor::Before(head.saturating_add(1)), *count, LAST_BYTES),
        Stage::Behind { cursor, .. } => (Cursor::After(*cursor), PAGE_MESSAGES, page_bytes),
        Stage::Live | Stage::Over => (Cursor::After(u64::MAX), 1, page_bytes),
    };
    let query = HistoryQuery { cursor, from: None, to: None, limit, bytes_max };
    Box::pin(async move {
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
        let page = async {
            let page = gateway.store.history(room.clone(), query).await?;
            // After the page: if the user is a member now, everything in it was written while the user was one.
            Ok((page, access_level(&gateway, &room, user).await?))
        };
        Fetched::Page(page.await)
    })
}

/// Reads the store, because the cache may be older than the subscription.
async fn access_level(
    gateway: &Gateway,
    room: &RoomId,
    user: Option<UserId>,
) -> Result<AccessLevel, ReadError> {
    match user {
        None => Ok(AccessLevel::Guest),
        Some(user) => gateway.members.access(room.clone(), user).await.map(Into::into),
    }
}
