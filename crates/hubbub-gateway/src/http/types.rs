//! Types that bodies and answers share: how each is written, and what the documents say about it.
//!
//! A struct that derives [`JsonSchema`] is a schema of the documents: its name, its members, and their comments as
//! descriptions. Members that are `Option` and may be left out are not nullable; [`OrNull`] marks those that are.

use std::borrow::Cow;
use std::fmt::Display;
use std::sync::Arc;

use hubbub_core::Timestamp;
use hubbub_core::id::ID_BYTES_MAX;
use hubbub_core::kv::KEY_BYTES_MAX;
use hubbub_core::message::MessageType as Kind;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Serialize, Serializer};
use serde_json::json;

/// Gives types a schema of their own name.
macro_rules! schema {
    ($($name:literal $(<$generic:ident>)? => $type:ty = $schema:expr;)*) => {$(
        impl$(<$generic: Display>)? JsonSchema for $type {
            fn schema_name() -> Cow<'static, str> {
                $name.into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                let schema = $schema;
                schema.try_into().unwrap_or_default()
            }
        }
    )*};
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct Id<T: Display = Arc<str>>(#[serde(serialize_with = "as_text")] pub(super) T);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(super) struct Time(#[serde(serialize_with = "as_text")] pub(super) Timestamp);

/// Names a history of the store.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Epoch(#[serde(serialize_with = "as_text")] pub(super) Arc<str>);

#[derive(Debug, Serialize)]
pub(super) struct Key(pub(super) String);

#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct MessageNumber(#[serde(serialize_with = "as_text")] pub(super) u64);

/// On input an integer stands for its decimal digits.
#[derive(Debug)]
pub(super) struct AnyId;

#[derive(Debug)]
pub(super) struct AnyTime;

#[derive(Debug)]
pub(super) struct Seq;

#[derive(Debug)]
pub(super) struct Revision;

#[derive(Debug)]
pub(super) struct MessageType;

const KINDS: [&str; 3] = [Kind::Text.as_str(), Kind::Join.as_str(), Kind::Leave.as_str()];
const REVISION: &str =
    "The store's number of the change that made the value: greater than any before, never used again.";
const KEY: &str = "A key as it is written in text, in paths as well as here: percent-encoded, so that a key from a list \
    goes into a path unchanged. Slashes and what else a path may hold stand for themselves, and on input so does \
    everything beyond ASCII, as UTF-8.";
const EPOCH: &str =
    "Names the store's history; new after a restore from backup. Send it along with a cursor.";
const NUMBER: &str =
    "Names a message of a queue: a number, never used again by this server, in the order of sending.";

schema! {
    "Id" <T> => Id<T> = json!({
        "type": "string", "pattern": format!("^[A-Za-z0-9_.:@-]{{1,{ID_BYTES_MAX}}}$"),
        "description": "What names a room, a user or a message.",
    });
    "AnyId" => AnyId = json!({
        "anyOf": [reference("Id"), {"type": "integer"}],
        "description": "On input an integer stands for its decimal digits.",
    });
    "Time" => Time = json!({
        "type": "string", "format": "date-time", "description": "RFC 3339, UTC, with milliseconds or finer.",
    });
    "AnyTime" => AnyTime = json!({
        "anyOf": [reference("Time"), {"type": "number"}],
        "description": "On input also with another offset, or as decimal seconds since 1970.",
    });
    "Seq" => Seq = json!({
        "type": "integer", "minimum": 1,
        "description": "A message's place in its room: from 1, strictly increasing, gaps allowed.",
    });
    "Epoch" => Epoch = json!({"type": "string", "description": EPOCH});
    "MessageType" => MessageType = json!({
        "type": "string", "enum": KINDS,
    });
    "Key" => Key = json!({
        "type": "string", "minLength": 1, "maxLength": 3 * KEY_BYTES_MAX, "description": KEY,
    });
    "Revision" => Revision = json!({"type": "integer", "minimum": 1, "description": REVISION});
    "MessageNumber" => MessageNumber = json!({
        "type": "string", "minLength": 1, "maxLength": 20, "description": NUMBER,
    });
}

pub(super) fn reference(name: &str) -> serde_json::Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

fn as_text<T: Display, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

/// Something that may be `null` although it may be left out too.
#[derive(Debug)]
pub(super) struct OrNull<T>(std::marker::PhantomData<T>);

/// Marks schemas of [`OrNull`] until the documents are written.
pub(super) const OR_NULL: &str = "x-or-null";

impl<T: JsonSchema> JsonSchema for OrNull<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("{}OrNull", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut schema = generator.subschema_for::<Option<T>>();
        schema.insert(OR_NULL.to_owned(), true.into());
        schema
    }
}
