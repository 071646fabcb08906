//! `GET /v1/users/{user}/messages`: what a user wrote, over all rooms, newest last.

use hubbub_core::number::parse_digits;
use hubbub_core::stats::{UserHistoryCursor, UserHistoryPage, UserHistoryQuery};
use hubbub_core::{RoomId, Timestamp};
use hyper::StatusCode;

use crate::http::consistency::Reads;
use crate::http::endpoint::Call;
use crate::http::history::{LIMIT_DEFAULT, PAGE_BYTES_MAX};
use crate::http::query::{Query, refuse_faults, require};
use crate::http::users::check_self;
use crate::http::{Answer, json};
use crate::json::{write_items, write_text, write_text_or_null};
use crate::problem::Problem;

const CURSOR_RULE: &str = "must be the next of another page";

pub(in crate::http) async fn messages(call: Call) -> Answer {
    let gateway = call.gateway();
    let user = call.user()?;
    check_self(&call.caller()?, &user)?;
    let page_query = parse(&call.query, gateway.limits.page_messages)?;
    let reads = Reads::of(gateway, call.headers())?;
    let epoch = gateway.store.epoch();
    let page = reads.stats().user_history(user, page_query).await?;
    Ok(json(StatusCode::OK, write_page(&page, &epoch)))
}

fn parse(query: &Query, limit_max: usize) -> Result<UserHistoryQuery, Problem> {
    let mut faults = Vec::new();
    let before = query.get("before");
    let before = before.and_then(|text| require(parse_cursor(text), "before", CURSOR_RULE, &mut faults));
    let (from, to) = (query.time("from", &mut faults), query.time("to", &mut faults));
    let limit = query.limit(LIMIT_DEFAULT.min(limit_max), limit_max, &mut faults);
    refuse_faults(faults)?;
    Ok(UserHistoryQuery { before, from, to, limit, bytes_max: PAGE_BYTES_MAX })
}

fn write_page(page: &UserHistoryPage, epoch: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(page.messages.bytes() + page.messages.len() * 256 + 128);
    out.extend_from_slice(b"{\"messages\":[");
    write_items(page.messages.iter(), &mut out, |message, out| message.write_json(out));
    write_text("],\"epoch\":", epoch, &mut out);
    let next = page.messages.get(0).filter(|_| page.more).map(|oldest| {
        let (micros, seq) = (oldest.received_at.as_micros(), oldest.seq);
        format!("{micros}-{seq}-{}", oldest.sent.room)
    });
    write_text_or_null(",\"next\":", next.as_deref(), &mut out);
    out.push(b'}');
    out
}

/// What [`write_page`] wrote as `next`: microseconds since 1970, seq and room of the oldest message of a page.
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
