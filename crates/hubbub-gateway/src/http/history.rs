//! `GET /v1/rooms/{room}/messages` and `/v1/users/{user}/messages`: history by seq or by time, newest last.

use std::ops::Range;

use hubbub_core::number::parse_digits;
use hubbub_core::stats::{UserHistoryCursor, UserHistoryPage, UserHistoryQuery};
use hubbub_core::store::{Cursor, HistoryPage, HistoryQuery, ReadError};
use hubbub_core::{ErrorCode, FieldError, Message, RoomId, Timestamp};
use hyper::StatusCode;

use super::consistency::Reads;
use super::endpoint::Call;
use super::one_history::read_of_one_history;
use super::query::{Query, refuse_faults, require};
use super::{Answer, json};
use crate::auth::Right;
use crate::auth::caller::Requirement;
use crate::json::{write_items, write_number, write_text, write_text_or_null};
use crate::problem::{Problem, Reset};

pub(super) const LIMIT_DEFAULT: usize = 50;
/// A page ends before its texts exceed this, as they are and as they are written: 4 MiB.
pub(super) const PAGE_BYTES_MAX: usize = 4 * 1024 * 1024;

pub(super) async fn history(call: Call) -> Answer {
    let gateway = call.gateway();
    let room = call.room()?;
    let page_query = parse(&call.query, gateway.limits.page_messages)?;
    let reads = Reads::of(gateway, call.headers())?;
    let caller = call.caller()?;
    let _turn = gateway.outgoing_memory.permit_large().await?;
    let read = || gateway.read_as(&room, &caller, reads.history(room.clone(), page_query));
    let (page, epoch) = read_of_one_history(|| gateway.store.epoch(), read).await?;
    // From the oldest on is what every history can honour.
    let is_foreign = page_query.cursor != Cursor::After(0)
        && call.query.get("epoch").is_some_and(|given| *given != *epoch);
    let cannot_continue = match page_query.cursor {
        Cursor::After(after) => after > page.head || (after > 0 && after + 1 < page.oldest),
        Cursor::Before(_) => false,
    };
    if is_foreign || cannot_continue {
        let detail = "the cursor cannot be honoured here; start again from oldest or head";
        let reset = Some(Reset { epoch, oldest: page.oldest, head: page.head });
        return Err(Problem { reset, ..Problem::new(ErrorCode::Reset, detail) });
    }
    Ok(json(StatusCode::OK, write_page(&page, &page_query, &epoch)))
}

fn parse(query: &Query, limit_max: usize) -> Result<HistoryQuery, Problem> {
    let mut faults = Vec::new();
    let (after, before) = (query.number("after", &mut faults), query.number("before", &mut faults));
    let (from, to) = (query.time("from", &mut faults), query.time("to", &mut faults));
    let limit = query.limit(LIMIT_DEFAULT.min(limit_max), limit_max, &mut faults);
    if after.is_some() && before.is_some() {
        faults.push(FieldError::new("before", "cannot be combined with after"));
    }
    refuse_faults(faults)?;
    let cursor = match (after, before) {
        (Some(after), _) => Cursor::After(after),
        (None, Some(before)) => Cursor::Before(before),
        // A window with a beginning is read from its beginning, anything else ends with the newest.
        (None, None) if from.is_some() => Cursor::After(0),
        (None, None) => Cursor::Before(u64::MAX),
    };
    Ok(HistoryQuery { cursor, from, to, limit, bytes_max: PAGE_BYTES_MAX })
}

fn write_page(page: &HistoryPage, page_query: &HistoryQuery, epoch: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(page.messages.bytes() + page.messages.len() * 256 + 128);
    out.extend_from_slice(b"{\"messages\":[");
    let is_from_newest = matches!(page_query.cursor, Cursor::Before(_));
    let kept = write_messages(page.messages.iter(), is_from_newest, &mut out);
    write_text("],\"epoch\":", epoch, &mut out);
    write_number(",\"oldest\":", page.oldest, &mut out);
    write_number(",\"head\":", page.head, &mut out);
    let has_more = page.more || kept.len() < page.messages.len();
    let edge = if is_from_newest { Some(kept.start) } else { kept.end.checked_sub(1) };
    match edge.filter(|_| has_more).and_then(|edge| page.messages.get(edge)) {
        Some(edge) => write_number(",\"next\":", edge.seq, &mut out),
        None => out.extend_from_slice(b",\"next\":null"),
    }
    out.push(b'}');
    out
}

/// Writes as many of the messages as a page may have, and says which: JSON may take six bytes for one of a text. One at least.
fn write_messages<'a>(
    messages: impl Iterator<Item = Message<'a>>,
    is_from_newest: bool,
    out: &mut Vec<u8>,
) -> Range<usize> {
    let begin = out.len();
    // Where each of them ends.
    let mut ends = Vec::new();
    write_items(messages, out, |message, out| {
        message.write_json(out);
        ends.push(out.len());
    });
    let (Some(last), count) = (ends.len().checked_sub(1), ends.len()) else { return 0..0 };
    if out.len() - begin <= PAGE_BYTES_MAX {
        return 0..count;
    }
    let range = if is_from_newest {
        let from = out.len() - PAGE_BYTES_MAX;
        // The one behind the first end that is far enough back begins behind a comma.
        let first = ends.partition_point(|end| *end + 1 < from).saturating_add(1).min(last);
        let cut = first.checked_sub(1).and_then(|before| ends.get(before)).map_or(begin, |end| end + 1);
        out.drain(begin..cut);
        first..count
    } else {
        let fitting = ends.partition_point(|end| *end - begin <= PAGE_BYTES_MAX).max(1);
        out.truncate(ends.get(fitting - 1).copied().unwrap_or(begin));
        0..fitting
    };
    // What was too much is not kept while the page is sent.
    out.shrink_to_fit();
    range
}

const CURSOR_RULE: &str = "must be the next of another page";

/// What a user wrote, over all rooms.
pub(super) async fn user_messages(call: Call) -> Answer {
    let gateway = call.gateway();
    let user = call.user()?;
    let mut page_query = parse_user(&call.query, gateway.limits.page_messages)?;
    let reads = Reads::of(gateway, call.headers())?;
    let epoch = gateway.store.epoch();
    let caller = call.caller()?;
    let may_read =
        |message: &Message<'_>| caller.is_allowed(Requirement::Room(Right::Read, message.sent.room));
    loop {
        // For each page: who wrote much, and may read nothing of it, is in nobody's way.
        let _turn = gateway.outgoing_memory.permit_large().await?;
        let page = reads.stats().user_history(user.clone(), page_query.clone()).await?;
        let oldest = page.messages.get(0).filter(|_| page.more);
        let Some(oldest) = oldest.filter(|_| !page.messages.iter().any(|message| may_read(&message))) else {
            return Ok(json(StatusCode::OK, write_user_page(&page, may_read, &epoch)));
        };
        // Nothing of it may be shown, not even where it goes on.
        page_query.before = Some(cursor(&oldest)?);
        tokio::task::yield_now().await;
    }
}

fn cursor(message: &Message<'_>) -> Result<UserHistoryCursor, ReadError> {
    let room = RoomId::new(message.sent.room).map_err(|_| ReadError::UnknownRoom)?;
    Ok(UserHistoryCursor { received_at: message.received_at, room, seq: message.seq })
}

fn parse_user(query: &Query, limit_max: usize) -> Result<UserHistoryQuery, Problem> {
    let mut faults = Vec::new();
    let before = query.get("before");
    let before = before.and_then(|text| require(parse_cursor(text), "before", CURSOR_RULE, &mut faults));
    let (from, to) = (query.time("from", &mut faults), query.time("to", &mut faults));
    let limit = query.limit(LIMIT_DEFAULT.min(limit_max), limit_max, &mut faults);
    refuse_faults(faults)?;
    Ok(UserHistoryQuery { before, from, to, limit, bytes_max: PAGE_BYTES_MAX })
}

fn write_user_page(page: &UserHistoryPage, may_read: impl Fn(&Message<'_>) -> bool, epoch: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(page.messages.bytes() + page.messages.len() * 256 + 128);
    out.extend_from_slice(b"{\"messages\":[");
    let kept = write_messages(page.messages.iter().filter(&may_read), true, &mut out);
    let has_more = page.more || kept.start > 0;
    let next = page.messages.iter().filter(may_read).nth(kept.start).filter(|_| has_more).map(|oldest| {
        let (micros, seq) = (oldest.received_at.as_micros(), oldest.seq);
        format!("{micros}-{seq}-{}", oldest.sent.room)
    });
    write_text("],\"epoch\":", epoch, &mut out);
    write_text_or_null(",\"next\":", next.as_deref(), &mut out);
    out.push(b'}');
    out
}

/// What [`write_user_page`] wrote as `next`: microseconds since 1970, seq and room of the oldest message of a page.
fn parse_cursor(text: &str) -> Option<UserHistoryCursor> {
    let mut parts = text.splitn(3, '-');
    let mut number = || parts.next().and_then(parse_digits);
    let (micros, seq) = (i64::try_from(number()?).ok()?, number()?);
    let room = RoomId::new(parts.next()?).ok()?;
    Some(UserHistoryCursor { received_at: Timestamp::from_micros(micros), room, seq })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_are_read_or_refused() {
        let cursor = parse_cursor("1769860800000001-7-a-b.c").unwrap();
        assert_eq!(cursor.received_at.as_micros(), 1_769_860_800_000_001);
        assert_eq!((cursor.seq, cursor.room.as_str()), (7, "a-b.c"));
        for bad in ["", "-", "--", "1-2", "1-2-", "x-2-r", "1-x-r", "1-+2-r", "1-2-a b", "-1-2-r", "1-2-é"] {
            assert_eq!(parse_cursor(bad), None, "{bad}");
        }
        assert_eq!(parse_cursor(&format!("{}-1-r", u64::MAX)), None);
    }
}
