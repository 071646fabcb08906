//! The shapes of bodies and frames, as JSON Schema; one file for each subject.
//!
//! What the server writes is described completely: the tests refuse a member that is not listed. Clients shall ignore
//! members they do not know, so that new ones are no break.

mod basics;
mod keys;
mod messages;
mod queues;
mod rooms;
mod service;
mod stats;

use hubbub_core::limits::Limits;
use serde_json::{Map, Value, json};

/// A reference to one of [`all`].
pub(super) fn schema(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

/// An id as it is written in paths, queries and answers.
pub(super) fn id() -> Value {
    schema("Id")
}

/// A whole number from `least` on.
pub(super) fn integer(least: u64) -> Value {
    json!({"type": "integer", "minimum": least})
}

/// `limit` of a list.
pub(super) fn limit(default: usize, most: usize) -> Value {
    json!({"type": "integer", "minimum": 1, "maximum": most, "default": default})
}

/// A time on input.
pub(super) fn time() -> Value {
    schema("AnyTime")
}

/// A string out of these.
pub(super) fn one_of(words: &[&str]) -> Value {
    json!({"type": "string", "enum": words})
}

/// An object with members that are always there and members that may be.
pub(super) fn object(about: &str, required: Value, optional: Value) -> Value {
    let (mut members, names) = match required {
        Value::Object(members) => (members.clone(), members.keys().cloned().collect()),
        _ => (Map::new(), Vec::new()),
    };
    if let Value::Object(optional) = optional {
        members.extend(optional);
    }
    let mut object = json!({"type": "object", "properties": members});
    if let Some(object) = object.as_object_mut() {
        if !names.is_empty() {
            object.insert("required".into(), names.into());
        }
        if !about.is_empty() {
            object.insert("description".into(), about.into());
        }
    }
    object
}

/// `schema` with a description of its own.
pub(super) fn described(mut schema: Value, about: &str) -> Value {
    if let Some(members) = schema.as_object_mut() {
        members.insert("description".into(), about.into());
    }
    schema
}

/// An object with the members of several.
pub(super) fn merged(about: &str, parts: &[&Value]) -> Value {
    let mut members = Map::new();
    let mut required = Vec::new();
    for part in parts {
        members.extend(part.get("properties").and_then(Value::as_object).cloned().unwrap_or_default());
        required.extend(part.get("required").and_then(Value::as_array).cloned().unwrap_or_default());
    }
    json!({"type": "object", "description": about, "properties": members, "required": required})
}

/// Every shape by its name, in the order of the files.
pub(super) fn all(limits: &Limits) -> Map<String, Value> {
    let lists = [
        basics::all(),
        messages::all(limits),
        rooms::all(),
        queues::all(limits),
        keys::all(limits),
        stats::all(),
        service::all(),
    ];
    lists.into_iter().flatten().map(|(name, schema)| (name.to_owned(), schema)).collect()
}

/// The shapes of one subject.
type Named = Vec<(&'static str, Value)>;
