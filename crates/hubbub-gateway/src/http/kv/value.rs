//! `GET`, `HEAD`, `PUT` and `DELETE /kv/{key}`: raw bytes in and out.

use hubbub_core::invariant::saturate;
use hubbub_core::kv::{Condition, TTL_MS_MAX};
use hubbub_core::text::repeated;
use hubbub_core::{ErrorCode, FieldError, KvOp, KvOutcome, Op, OpBatch, Outcome, Refusal};
use hubbub_pipeline::kv::KeyRead;
use hyper::header::{CACHE_CONTROL, ETAG, HeaderName, HeaderValue};
use hyper::{HeaderMap, Response, StatusCode};

use super::condition::Preconditions;
use super::key;
use crate::Gateway;
use crate::http::consistency;
use crate::http::endpoint::Call;
use crate::http::{Answer, Body, empty, no_content, respond, revision_tag};
use crate::problem::Problem;

const TTL: HeaderName = HeaderName::from_static("hubbub-ttl");
const CACHE: HeaderName = HeaderName::from_static("hubbub-cache");

pub(crate) const TTL_RULE: &str = "must be seconds, more than 0 and at most 100 years; parts of one as 0.5";

/// Attempts at a change whose condition the store cannot evaluate, while others change the key.
const ATTEMPTS_MAX: usize = 16;

pub(in crate::http) async fn get(call: Call) -> Answer {
    let gateway = call.gateway();
    let key = key::of_path(call.parameter("key"))?;
    let preconditions = Preconditions::of(call.headers())?;
    let as_of = consistency::value_as_of(gateway, call.headers())?;
    let KeyRead { value, is_hit } = gateway.keys.get_as_of(&key, as_of).await?;
    // First: a condition does not count where the answer would be a refusal without it (RFC 9110, 13.2.1).
    let value = value.ok_or_else(|| unknown_key(&key))?;
    let revision = Some(value.revision);
    if !preconditions.is_matched(revision) {
        return Err(Problem::refusal(Refusal::Condition { revision }).uncounted());
    }
    let left = gateway.keys.time_left(&value);
    let mut response = if preconditions.is_known(revision) {
        empty(StatusCode::NOT_MODIFIED)
    } else {
        respond(StatusCode::OK, "application/octet-stream", value.bytes)
    };
    let headers = response.headers_mut();
    headers.insert(ETAG, revision_tag(value.revision));
    // A proxy that compressed it would change the bytes that the entity tag stands for.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
    headers.insert(CACHE, HeaderValue::from_static(if is_hit { "hit" } else { "miss" }));
    if let Some(left) = left {
        // Rounded up: a value that is still there has time left.
        let seconds = saturate::<u128, u64>(left.as_micros().div_ceil(1_000_000)).max(1);
        headers.insert(TTL, HeaderValue::from(seconds));
    }
    Ok(response)
}

/// The key is shown as paths have it.
pub(super) fn unknown_key(key: &[u8]) -> Problem {
    Problem::new(ErrorCode::UnknownKey, format!("there is no key '{}'", repeated(&key::text(key))))
}

pub(in crate::http) async fn put(mut call: Call) -> Answer {
    let value_bytes = call.gateway().limits.value_bytes;
    let key = key::of_path(call.parameter("key"))?.into_owned();
    let preconditions = Preconditions::of(call.headers())?;
    let ttl_ms = ttl_of(call.headers())?;
    let value = call.body_up_to(value_bytes).await?;
    let gateway = call.gateway();
    let op = |condition| KvOp::Put { key: &key, value: &value, ttl_ms, condition };
    match change(gateway, &key, &preconditions, op).await? {
        KvOutcome::Put { revision, created, .. } => Ok(changed(revision, created)),
        _ => Err(Problem::no_outcome()),
    }
}

pub(in crate::http) async fn delete(call: Call) -> Answer {
    let gateway = call.gateway();
    let key = key::of_path(call.parameter("key"))?;
    let preconditions = Preconditions::of(call.headers())?;
    match change(gateway, &key, &preconditions, |condition| KvOp::Delete { key: &key, condition }).await? {
        KvOutcome::Deleted { revision: Some(_) } => Ok(no_content()),
        KvOutcome::Deleted { revision: None } => Err(unknown_key(&key)),
        _ => Err(Problem::no_outcome()),
    }
}

fn changed(revision: u64, is_new: bool) -> Response<Body> {
    let mut response = empty(if is_new { StatusCode::CREATED } else { StatusCode::NO_CONTENT });
    response.headers_mut().insert(ETAG, revision_tag(revision));
    response
}

/// Makes a change under its preconditions. Those the store cannot evaluate are evaluated here on the key's revision, and
/// the change is made on the condition that the key still has it.
async fn change<'a>(
    gateway: &Gateway,
    key: &[u8],
    preconditions: &Preconditions,
    op: impl Fn(Condition) -> KvOp<'a>,
) -> Result<KvOutcome, Problem> {
    let refused = |revision| Problem::refusal(Refusal::Condition { revision });
    let simple = preconditions.condition();
    let mut condition = match simple {
        Some(condition) => condition,
        None => {
            let revision = gateway.keys.get(key).await?.value.map(|value| value.revision);
            preconditions.condition_at(revision).ok_or_else(|| refused(revision).uncounted())?
        }
    };
    let mut ops = OpBatch::default();
    for _ in 0..ATTEMPTS_MAX {
        ops.clear();
        ops.push(&Op::Kv(op(condition)));
        match gateway.apply(&ops).await?.outcomes().first() {
            Some(Outcome::Kv(outcome)) => return Ok(*outcome),
            Some(Outcome::Refused(Refusal::Condition { revision })) if simple.is_none() => {
                condition = preconditions.condition_at(*revision).ok_or_else(|| refused(*revision))?;
            }
            Some(Outcome::Refused(refusal)) => return Err(Problem::refusal(*refusal)),
            _ => return Err(Problem::no_outcome()),
        }
    }
    Err(Problem::new(ErrorCode::Overloaded, "others changed the key again and again; nothing was stored"))
}

fn ttl_of(headers: &HeaderMap) -> Result<Option<u64>, Problem> {
    let Some(ttl) = headers.get(TTL) else { return Ok(None) };
    let ttl = ttl.to_str().ok().and_then(|ttl| ttl.parse().ok()).and_then(ttl_ms);
    ttl.map(Some).ok_or_else(|| Problem::invalid(vec![FieldError::new("Hubbub-TTL", TTL_RULE)]))
}

pub(super) fn ttl_ms(seconds: f64) -> Option<u64> {
    let ms = (seconds * 1_000.0).ceil();
    // The bounds leave nothing that a u64 could not hold.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
    (ms >= 1.0 && ms <= TTL_MS_MAX as f64).then_some(ms as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_to_live_are_read() {
        let read = |ttl: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(TTL, ttl.parse().unwrap());
            ttl_of(&headers).ok()
        };
        assert_eq!(ttl_of(&HeaderMap::new()).unwrap(), None);
        assert_eq!(read("10"), Some(Some(10_000)));
        assert_eq!(read("0.25"), Some(Some(250)));
        for wrong in ["", "0", "-1", "1s", "NaN", "inf", "4000000000"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
