//! `GET /v1/kv`: keys in the order of their bytes, page by page.

use std::sync::Arc;

use hubbub_core::FieldError;
use hubbub_core::kv::{KeyInfo, KeyPage};
use hyper::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;

use super::key::{self, KEY_RULE};
use crate::Gateway;
use crate::auth::credential_store::RESERVED;
use crate::http::endpoint::Call;
use crate::http::query::{LIMIT_DEFAULT, LIMIT_MAX, Query, cut, refuse_faults, require};
use crate::http::types::{Epoch, Key, Revision, Time};
use crate::http::{Answer, json_of};
use crate::json::write_time;
use crate::problem::Problem;

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
struct KeyItem {
    key: Key,
    #[schemars(with = "Revision")]
    revision: u64,
    /// Bytes of the value.
    bytes: u64,
    /// When it runs out; missing when it does not.
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<Time>,
}

impl From<&KeyInfo> for KeyItem {
    fn from(info: &KeyInfo) -> Self {
        let KeyInfo { revision, bytes, .. } = *info;
        Self { key: Key(key::text(&info.key)), revision, bytes, expires_at: info.expires_at.map(Time) }
    }
}

#[derive(Debug, Serialize, JsonSchema)]
pub(in crate::http) struct KeyList {
    keys: Vec<KeyItem>,
    /// Changes behind it may not be in the list: watch `after` it.
    revision: u64,
    epoch: Epoch,
    /// The `after` of the next page; `null` at the end.
    next: Option<String>,
}

pub(in crate::http) async fn list(call: Call) -> Answer {
    let gateway = call.gateway();
    let query = &call.query;
    let mut faults = Vec::new();
    let limit = query.limit(LIMIT_DEFAULT, LIMIT_MAX, &mut faults);
    let prefix = prefix_of(query, &mut faults);
    let after =
        query.get("after").and_then(|after| require(key::parse(after), "after", KEY_RULE, &mut faults));
    refuse_faults(faults)?;
    // Read first: a watcher is told if another history of the store begins meanwhile.
    let epoch = gateway.store.epoch();
    let KeyPage { keys, revision } = visible(gateway, &prefix, after.map(Into::into), limit + 1).await?;
    gateway.keys.caught_up().await;
    let (keys, next) = cut(keys, limit, |last| key::text(&last.key));
    let keys = keys.iter().map(KeyItem::from).collect();
    json_of(StatusCode::OK, &KeyList { keys, revision, epoch: Epoch(epoch), next })
}

/// The prefix of a query, to say whether the caller may use it.
pub(in crate::http) fn prefix_of_query(query: &Query) -> Result<Vec<u8>, Problem> {
    let mut faults = Vec::new();
    let prefix = prefix_of(query, &mut faults);
    refuse_faults(faults).map(|()| prefix)
}

/// Keys behind `after`, without those of the server itself, and a revision behind which a watcher misses nothing that they do
/// not show.
async fn visible(
    gateway: &Gateway,
    prefix: &[u8],
    mut after: Option<Arc<[u8]>>,
    limit: usize,
) -> Result<KeyPage, Problem> {
    let (mut keys, mut revision) = (Vec::new(), None);
    loop {
        let wanted = limit - keys.len();
        let page = gateway.store.keys(prefix, after.as_deref(), wanted).await?;
        let revision = *revision.get_or_insert(page.revision);
        let is_last = page.keys.len() < wanted;
        let last = page.keys.last().map(|info| info.key.clone());
        keys.extend(page.keys.into_iter().filter(|info| !key::is_reserved(&info.key)));
        if is_last || keys.len() >= limit {
            return Ok(KeyPage { keys, revision });
        }
        // Behind all of its own, which are ASCII, and never back to a key that it has.
        after = last.max(Some([RESERVED, &[0xff]].concat().into()));
    }
}

pub(super) fn prefix_of(query: &Query, faults: &mut Vec<FieldError>) -> Vec<u8> {
    let prefix = key::parse_prefix(query.get("prefix").unwrap_or_default());
    let rule = "must be at most 512 bytes, written as the beginning of a key";
    require(prefix, "prefix", rule, faults).unwrap_or_default().into_owned()
}

pub(super) fn write_expiry(expires_at: Option<hubbub_core::Timestamp>, out: &mut Vec<u8>) {
    if let Some(at) = expires_at {
        write_time(",\"expiresAt\":\"", at, out);
    }
}
