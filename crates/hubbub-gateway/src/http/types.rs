//! Types that bodies and answers share: how each is written, and what the documents say about it.
//!
//! A struct that derives [`JsonSchema`] is a schema of the documents: its name, its members, and their comments as
//! descriptions. Members that are `Option` and may be left out are not nullable; [`OrNull`] marks those that are.

use std::borrow::Cow;
use std::fmt::Display;
use std::num::NonZeroU64;
use std::sync::Arc;

use hubbub_core::Timestamp;
use hubbub_core::id::ID_BYTES_MAX;
use hubbub_core::kv::KEY_BYTES_MAX;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Serialize, Serializer};
use serde_json::json;

/// What names a room, a user or a message.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[schemars(rename = "Id", bound = "", extend("pattern" = format!("^[A-Za-z0-9_.:@-]{{1,{ID_BYTES_MAX}}}$")))]
pub(super) struct Id<T: Display = Arc<str>>(
    #[serde(serialize_with = "as_text")]
    #[schemars(with = "String")]
    pub(super) T,
);

/// RFC 3339, UTC, with milliseconds or finer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[schemars(extend("format" = "date-time"))]
pub(super) struct Time(
    #[serde(serialize_with = "as_text")]
    #[schemars(with = "String")]
    pub(super) Timestamp,
);

impl Time {
    /// So many microseconds since 1970.
    pub(super) fn from_micros(micros: i64) -> Self {
        Self(Timestamp::from_micros(micros))
    }
}

/// Names the store's history; new after a restore from backup. Send it along with a cursor.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(super) struct Epoch(
    #[serde(serialize_with = "as_text")]
    #[schemars(with = "String")]
    pub(super) Arc<str>,
);

/// A key as it is written in text, in paths as well as here: percent-encoded, so that a key from a list goes into a path
/// unchanged. Slashes and what else a path may hold stand for themselves, and on input so does everything beyond ASCII,
/// as UTF-8.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Key(#[schemars(length(min = 1, max = 3 * KEY_BYTES_MAX))] pub(super) String);

/// Names a message of a queue: a number, never used again by this server, in the order of sending.
#[derive(Debug, Clone, Copy, Serialize, JsonSchema)]
pub(super) struct MessageNumber(
    #[serde(serialize_with = "as_text")]
    #[schemars(with = "String", length(min = 1, max = 20))]
    pub(super) u64,
);

/// On input an integer stands for its decimal digits.
#[derive(JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "it is its schema")]
pub(super) enum AnyId {
    Text(Id),
    Number(i64),
}

/// On input also with another offset, or as decimal seconds since 1970.
#[derive(JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "it is its schema")]
pub(super) enum AnyTime {
    Text(Time),
    Seconds(f64),
}

/// A message's place in its room: from 1, strictly increasing, gaps allowed.
#[derive(JsonSchema)]
pub(super) struct Seq(#[expect(dead_code)] NonZeroU64);

/// The store's number of the change that made the value: greater than any before, never used again.
#[derive(JsonSchema)]
pub(super) struct Revision(#[expect(dead_code)] NonZeroU64);

#[derive(JsonSchema)]
#[schemars(rename_all = "UPPERCASE")]
#[expect(dead_code, reason = "it is its schema")]
pub(super) enum MessageType {
    Text,
    Join,
    Leave,
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
