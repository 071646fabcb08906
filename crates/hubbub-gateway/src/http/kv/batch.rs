//! `POST /v1/kv`: many changes and reads in one request, with an answer for each.
//!
//! All changes go to the store in one batch: puts first, then deletes, each with its own condition. Values are read once
//! the changes are durable.

use std::borrow::Cow;

use hubbub_core::kv::Condition;
use hubbub_core::message::{write_json_string, write_u64};
use hubbub_core::{ErrorCode, FieldError, KvOp, KvOutcome, Op, OpBatch, Outcome};
use hubbub_pipeline::kv::Value;
use hyper::StatusCode;
use serde::Deserialize;

use super::key::{self, KEY_RULE};
use super::list::write_expiry;
use super::value::{TTL_RULE, ttl_ms};
use crate::Gateway;
use crate::base64;
use crate::http::endpoint::Call;
use crate::http::query::refuse_faults;
use crate::http::{Answer, ITEMS_MAX, json};
use crate::json::object_of_bytes;
use crate::problem::Problem;

/// Size of an answer beyond which values are left out as `too_large`.
pub(crate) const ANSWER_BYTES_MAX: usize = 8 * 1024 * 1024;

#[derive(Debug, Default, Deserialize)]
#[serde(expecting = "an object")]
#[serde(default)]
struct BatchBody {
    put: Vec<Put>,
    delete: Vec<Delete>,
    get: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
#[serde(rename_all = "camelCase")]
struct Put {
    key: String,
    value: Option<String>,
    base64: Option<String>,
    ttl: Option<f64>,
    if_revision: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Delete {
    Key(String),
    #[serde(rename_all = "camelCase")]
    If {
        key: String,
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
    let (ops, gets) = check(&body, gateway.limits.value_bytes)?;
    let applied = if ops.is_empty() { None } else { Some(gateway.apply(&ops).await?) };
    let mut outcomes = applied.iter().flat_map(|applied| applied.outcomes());
    let mut out = b"{\"put\":[".to_vec();
    for (index, put) in body.put.iter().enumerate() {
        begin(index, &put.key, &mut out);
        match outcomes.next() {
            Some(Outcome::Kv(KvOutcome::Put { revision, expires_at, created })) => {
                out.extend_from_slice(b",\"revision\":");
                write_u64(*revision, &mut out);
                out.extend_from_slice(if *created { b",\"created\":true" } else { b",\"created\":false" });
                write_expiry(*expires_at, &mut out);
            }
            other => write_refusal(other, &mut out),
        }
        out.push(b'}');
    }
    out.extend_from_slice(b"],\"delete\":[");
    for (index, delete) in body.delete.iter().enumerate() {
        begin(index, delete.key(), &mut out);
        match outcomes.next() {
            Some(Outcome::Kv(KvOutcome::Deleted { revision })) => {
                out.extend_from_slice(if revision.is_some() {
                    b",\"deleted\":true"
                } else {
                    b",\"deleted\":false"
                });
            }
            other => write_refusal(other, &mut out),
        }
        out.push(b'}');
    }
    out.extend_from_slice(b"],\"get\":[");
    for (index, (text, key)) in body.get.iter().zip(&gets).enumerate() {
        begin(index, text, &mut out);
        write_found(gateway, key, &mut out).await?;
        out.push(b'}');
    }
    out.extend_from_slice(b"]}");
    Ok(json(StatusCode::OK, out))
}

type Key<'a> = Cow<'a, [u8]>;

/// The changes and the keys to read, or every fault.
fn check(body: &BatchBody, value_bytes: usize) -> Result<(OpBatch, Vec<Key<'_>>), Problem> {
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
            (None, Some(encoded)) => base64::decode(encoded).map(Cow::Owned),
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
            let condition = condition(delete.if_revision());
            ops.push(&Op::Kv(KvOp::Delete { key: &key, condition }));
        }
    }
    let gets = body.get.iter().enumerate().filter_map(|(index, key)| keys("get", index, key)).collect();
    refuse_faults(faults)?;
    Ok((ops, gets))
}

/// The beginning of an item, with its key as it was written.
fn begin(index: usize, key: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(if index == 0 { b"{\"key\":" } else { b",{\"key\":" });
    write_json_string(key, out);
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

async fn write_found(gateway: &Gateway, key: &[u8], out: &mut Vec<u8>) -> Result<(), Problem> {
    let Some(Value { bytes, revision, expires_at }) = gateway.keys.get(key).await?.value else {
        write_problem(&Problem::new(ErrorCode::UnknownKey, "there is no such key"), out);
        return Ok(());
    };
    if out.len() > ANSWER_BYTES_MAX {
        let detail = "the answer has no room for it; ask for this key again, with fewer others";
        write_problem(&Problem::new(ErrorCode::TooLarge, detail), out);
        return Ok(());
    }
    match std::str::from_utf8(&bytes) {
        Ok(text) => {
            out.extend_from_slice(b",\"value\":");
            write_json_string(text, out);
        }
        Err(_) => {
            out.extend_from_slice(b",\"base64\":\"");
            base64::encode(&bytes, out);
            out.push(b'"');
        }
    }
    out.extend_from_slice(b",\"revision\":");
    write_u64(revision, out);
    write_expiry(expires_at, out);
    Ok(())
}
