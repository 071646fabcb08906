//! `GET /v1/kv`: keys in the order of their bytes, page by page.

use hubbub_core::Fault;
use hubbub_core::kv::KeyInfo;
use hubbub_core::message::{write_json_string, write_u64};
use hyper::StatusCode;

use super::key::{self, KEY_RULE};
use crate::http::endpoint::Call;
use crate::http::page::{LIMIT_DEFAULT, LIMIT_MAX, Page};
use crate::http::query::{Query, refuse_faults};
use crate::http::rooms::{write_next, write_numbers};
use crate::http::{Answer, json};

pub(in crate::http) async fn list(call: Call) -> Answer {
    let gateway = call.gateway();
    let query = call.query();
    let mut faults = Vec::new();
    let limit = query.limit(LIMIT_DEFAULT, LIMIT_MAX, &mut faults);
    let prefix = prefix_of(&query, &mut faults);
    let after = query.get("after").map(|after| {
        let after = key::parse(after).map(std::borrow::Cow::into_owned);
        after.unwrap_or_else(|| {
            faults.push(Fault::new("after", KEY_RULE));
            Vec::new()
        })
    });
    refuse_faults(faults)?;
    // Asked first, so that whoever watches behind it misses nothing that the list does not show, also where another
    // history of the store begins meanwhile.
    let epoch = gateway.store.epoch();
    let revision = gateway.keys.revision();
    let keys = gateway.store.keys(&prefix, after.as_deref(), limit + 1).await?;
    gateway.keys.caught_up().await;
    let page = Page::of(keys, limit, |last| key::text(&last.key));
    let mut out = b"{\"keys\":[".to_vec();
    for (index, info) in page.items.iter().enumerate() {
        out.extend_from_slice(if index == 0 { b"{" } else { b",{" });
        write_key(info, &mut out);
        out.push(b'}');
    }
    out.extend_from_slice(b"],\"revision\":");
    write_u64(revision, &mut out);
    out.extend_from_slice(b",\"epoch\":");
    write_json_string(&epoch, &mut out);
    write_next(page.next.as_deref(), &mut out);
    Ok(json(StatusCode::OK, out))
}

/// `prefix`, empty when not given.
pub(super) fn prefix_of(query: &Query, faults: &mut Vec<Fault>) -> Vec<u8> {
    let prefix = key::parse_prefix(query.get("prefix").unwrap_or_default());
    prefix.map(std::borrow::Cow::into_owned).unwrap_or_else(|| {
        faults.push(Fault::new("prefix", "must be at most 512 bytes, written as the beginning of a key"));
        Vec::new()
    })
}

fn write_key(info: &KeyInfo, out: &mut Vec<u8>) {
    out.extend_from_slice(b"\"key\":\"");
    key::write(&info.key, out);
    out.push(b'"');
    write_numbers(&[("revision", info.revision), ("bytes", info.bytes)], out);
    write_expiry(info.expires_at, out);
}

/// Appends when a value runs out, if it does.
pub(super) fn write_expiry(expires_at: Option<hubbub_core::Timestamp>, out: &mut Vec<u8>) {
    if let Some(at) = expires_at {
        out.extend_from_slice(b",\"expiresAt\":\"");
        at.write(out);
        out.push(b'"');
    }
}
