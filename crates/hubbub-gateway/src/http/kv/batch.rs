//! `POST /v1/kv`: many changes and reads in one request, with an answer for each.
//!
//! All changes go to the store in one batch: puts first, then deletes, each with its own condition. Values are read once
//! the changes are durable.

use std::borrow::Cow;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hubbub_core::kv::{Condition, TTL_MS_MAX};
use hubbub_core::{ErrorCode, FieldError, KvOp, KvOutcome, Op, OpBatch, Outcome};
use hubbub_pipeline::kv::Value;
use hyper::StatusCode;
use schemars::JsonSchema;
use serde::Deserialize;

use super::key::{self, KEY_RULE};
use super::list::write_expiry;
use super::value::{TTL_RULE, ttl_ms, unknown_key};
use crate::Gateway;
use crate::auth::Right;
use crate::auth::caller::{Caller, Requirement};
use crate::http::endpoint::Call;
use crate::http::query::refuse_faults;
use crate::http::types::Key as KeyText;
use crate::http::{Answer, ITEMS_MAX, json};
use crate::json::{object_of_bytes, write_flag, write_items, write_number, write_plain, write_text};
use crate::problem::Problem;

/// Size of an answer beyond which values are left out as `too_large`.
pub(crate) const ANSWER_BYTES_MAX: usize = 8 * 1024 * 1024;

/// At most 1,000 items together.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(expecting = "an object", default)]
#[schemars(rename = "KeyBatch")]
pub(in crate::http) struct BatchBody {
    put: Vec<Put>,
    delete: Vec<Delete>,
    #[schemars(with = "Vec<KeyText>")]
    get: Vec<String>,
}

/// A value of at most {value_bytes} bytes.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(expecting = "an object", rename_all = "camelCase")]
#[schemars(inline)]
struct Put {
    #[schemars(with = "KeyText")]
    key: String,
    /// The value as text.
    value: Option<String>,
    /// Instead of `value`: bytes that are no UTF-8.
    #[schemars(extend("contentEncoding" = "base64"))]
    base64: Option<String>,
    /// Seconds it stays.
    #[schemars(extend("exclusiveMinimum" = 0, "maximum" = TTL_MS_MAX / 1_000))]
    ttl: Option<f64>,
    /// Only if the key has this revision; 0 = only if it is not there.
    if_revision: Option<u64>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged, rename_all_fields = "camelCase")]
#[schemars(inline)]
enum Delete {
    Key(#[schemars(with = "KeyText")] String),
    If {
        #[schemars(with = "KeyText")]
        key: String,
        /// Only if the key has this revision; 0 = only if it is not there.
        if_revision: Option<u64>,
    },
}

impl Delete {
    fn key(&self) -> &str {
        match self {
            Self::Key(key) | Self::If { key, .. } => key,
        }
    }

    fn if_revision(&self) -> Option<u64> {
        match self {
            Self::Key(_) => None,
            Self::If { if_revision, .. } => *if_revision,
        }
    }
}

/// 0 stands for a key that is not there.
fn condition(if_revision: Option<u64>) -> Condition {
    match if_revision {
        None => Condition::Always,
        Some(0) => Condition::Absent,
        Some(revision) => Condition::Is(revision),
    }
}

pub(in crate::http) async fn batch(mut call: Call) -> Answer {
    let bytes = call.body().await?;
    let gateway = call.gateway();
    let body: BatchBody = object_of_bytes(&bytes)?;
    let (ops, gets) = check(&body, gateway.limits.value_bytes, call.caller_ref()?)?;
    // Before anything is changed: then a refusal says so.
    let _turn = if gets.is_empty() { None } else { Some(gateway.outgoing_memory.permit_large().await?) };
    let applied = if ops.is_empty() { None } else { Some(gateway.apply(&ops).await?) };
    let mut outcomes = applied.iter().flat_map(|applied| applied.outcomes());
    let mut out = b"{\"put\":[".to_vec();
    write_items(&body.put, &mut out, |put, out| {
        write_text("{\"key\":", &put.key, out);
        match outcomes.next() {
            Some(Outcome::Kv(KvOutcome::Put { revision, expires_at, created })) => {
                write_number(",\"revision\":", *revision, out);
                write_flag(",\"created\":", *created, out);
                write_expiry(*expires_at, out);
            }
            other => write_refusal(other, out),
        }
        out.push(b'}');
    });
    out.extend_from_slice(b"],\"delete\":[");
    write_items(&body.delete, &mut out, |delete, out| {
        write_text("{\"key\":", delete.key(), out);
        match outcomes.next() {
            Some(Outcome::Kv(KvOutcome::Deleted { revision })) => {
                write_flag(",\"deleted\":", revision.is_some(), out);
            }
            other => write_refusal(other, out),
        }
        out.push(b'}');
    });
    out.extend_from_slice(b"],\"get\":[");
    // One question to a shared store is enough for all of them.
    let as_of = gateway.clock.monotonic();
    let mut failed: Option<Problem> = None;
    for (index, (text, key)) in body.get.iter().zip(&gets).enumerate() {
        write_text(if index == 0 { "{\"key\":" } else { ",{\"key\":" }, text, &mut out);
        if failed.is_none() {
            failed = write_found(gateway, (key, as_of), &mut out).await.err();
            // What was changed is told all the same, and the store asked no more.
            if let Some(problem) = failed.take_if(|_| applied.is_none()) {
                return Err(problem);
            }
        }
        failed.iter().for_each(|problem| write_problem(problem, &mut out));
        out.push(b'}');
    }
    out.extend_from_slice(b"]}");
    Ok(json(StatusCode::OK, out))
}

type Key<'a> = Cow<'a, [u8]>;

/// The changes and the keys to read, or every fault.
fn check<'a>(
    body: &'a BatchBody,
    value_bytes: usize,
    caller: &Caller,
) -> Result<(OpBatch, Vec<Key<'a>>), Problem> {
    let mut faults = Vec::new();
    let items = body.put.len() + body.delete.len() + body.get.len();
    if items > ITEMS_MAX {
        faults.push(FieldError::new(
            "put, delete, get",
            format!("must have at most {ITEMS_MAX} items together"),
        ));
        refuse_faults(std::mem::take(&mut faults))?;
    }
    let mut ops = OpBatch::default();
    for (index, put) in body.put.iter().enumerate() {
        let mut fault = |field: &str, rule: &str| {
            faults.push(FieldError::new("put", format!("item {index}: {field} {rule}")));
        };
        let key = key::parse(&put.key);
        if key.is_none() {
            fault("key", KEY_RULE);
        }
        let ttl = put.ttl.map(ttl_ms);
        if ttl == Some(None) {
            fault("ttl", TTL_RULE);
        }
        let value = match (&put.value, &put.base64) {
            (Some(text), None) => Some(Cow::Borrowed(text.as_bytes())),
            (None, Some(encoded)) => STANDARD.decode(encoded).ok().map(Cow::Owned),
            _ => None,
        };
        match &value {
            None => fault("value", "must be text, or instead base64 must be bytes in base64"),
            Some(value) if value.len() > value_bytes => {
                fault("value", &format!("must have at most {value_bytes} bytes"));
            }
            Some(_) => {}
        }
        if let (Some(key), Some(value)) = (key, value) {
            caller.may(Requirement::Key(Right::Write, &key))?;
            let (ttl_ms, condition) = (ttl.flatten(), condition(put.if_revision));
            ops.push(&Op::Kv(KvOp::Put { key: &key, value: &value, ttl_ms, condition }));
        }
    }
    let mut keys = |field: &'static str, index: usize, text| {
        let key = key::parse(text);
        if key.is_none() {
            faults.push(FieldError::new(field, format!("item {index}: key {KEY_RULE}")));
        }
        key
    };
    for (index, delete) in body.delete.iter().enumerate() {
        if let Some(key) = keys("delete", index, delete.key()) {
            caller.may(Requirement::Key(Right::Write, &key))?;
            let condition = condition(delete.if_revision());
            ops.push(&Op::Kv(KvOp::Delete { key: &key, condition }));
        }
    }
    let gets: Vec<Key<'a>> =
        body.get.iter().enumerate().filter_map(|(index, key)| keys("get", index, key)).collect();
    refuse_faults(faults)?;
    gets.iter().try_for_each(|key| caller.may(Requirement::Key(Right::Read, key)))?;
    Ok((ops, gets))
}

fn write_refusal(outcome: Option<&Outcome>, out: &mut Vec<u8>) {
    let problem = match outcome {
        Some(Outcome::Refused(refusal)) => Problem::refusal(*refusal),
        _ => Problem::no_outcome(),
    };
    write_problem(&problem, out);
}

fn write_problem(problem: &Problem, out: &mut Vec<u8>) {
    out.push(b',');
    problem.write_members(out);
}

async fn write_found(
    gateway: &Gateway,
    (key, as_of): (&[u8], Duration),
    out: &mut Vec<u8>,
) -> Result<(), Problem> {
    let found = gateway.keys.get_as_of(key, as_of).await?;
    let Some(Value { bytes, revision, expires_at }) = found.value else {
        write_problem(&unknown_key(key), out);
        return Ok(());
    };
    if out.len() > ANSWER_BYTES_MAX {
        let detail = "the answer has no room for it; ask for this key again, with fewer others";
        write_problem(&Problem::new(ErrorCode::TooLarge, detail), out);
        return Ok(());
    }
    match std::str::from_utf8(&bytes) {
        Ok(text) => write_text(",\"value\":", text, out),
        Err(_) => write_plain(",\"base64\":\"", &STANDARD.encode(&bytes), out),
    }
    write_number(",\"revision\":", revision, out);
    write_expiry(expires_at, out);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back() {
        let known = [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("\u{fb}\u{ff}", "w7vDvw=="),
        ];
        for (plain, encoded) in known {
            assert_eq!(STANDARD.encode(plain), encoded);
            assert_eq!(STANDARD.decode(encoded).ok().as_deref(), Some(plain.as_bytes()));
        }
        for wrong in ["Z", "Zg", "Zg=", "Zh==", "Zm9=", "Zg==Zg==", "Z===", "====", "Zm 9v", "Zm9-"] {
            assert_eq!(STANDARD.decode(wrong).ok(), None, "{wrong}");
        }
    }
}
