//! The schemas of bodies, answers and frames, derived from Rust types.
//!
//! An answer that is serialized has its type beside its handler. What is written or read by hand has a type here that
//! only says what it is like; the process test `documents_are_true` compares both kinds with real answers.
//!
//! What the server writes is described completely: the tests refuse a member that is not listed. Clients shall ignore
//! members they do not know, so that new ones are no break.

// The types of these modules are never made: they are their schemas.
#[expect(dead_code)]
mod basics;
#[expect(dead_code)]
mod keys;
#[expect(dead_code)]
mod messages;
#[expect(dead_code)]
mod queues;

use hubbub_core::limits::Limits;
use schemars::generate::{SchemaGenerator, SchemaSettings};
use serde_json::{Map, Value, json};

pub(super) use self::basics::{LineProblem, Position, list_codes};
pub(super) use self::messages::{DraftWithRoom, Message};

use self::basics::Problem;
use self::{keys as key_types, messages as message_types, queues as queue_types};
use crate::http::sse::HEARTBEAT;
use crate::http::types::{AnyId, AnyTime, OR_NULL, reference};
use crate::http::{
    ITEMS_MAX, accounts, api_keys, backups, connections, health, kv, logins, members,
    queues as queue_answers, revocations, rooms, stats, timeline, watching,
};

/// A reference to one of [`all`].
pub(in crate::http) fn schema(name: &str) -> Value {
    reference(name)
}

/// An id as it is written in paths, queries and answers.
pub(in crate::http) fn id(_: &Limits) -> Value {
    schema("Id")
}

/// A whole number.
pub(in crate::http) fn integer(_: &Limits) -> Value {
    json!({"type": "integer", "minimum": 0})
}

/// `limit` of a list.
pub(in crate::http) fn limit(least: usize, default: usize, most: usize) -> Value {
    json!({"type": "integer", "minimum": least, "maximum": most, "default": default})
}

/// A time on input.
pub(in crate::http) fn time(_: &Limits) -> Value {
    schema("AnyTime")
}

pub(in crate::http) fn text(_: &Limits) -> Value {
    json!({"type": "string"})
}

/// A string out of these.
pub(in crate::http) fn one_of(words: &[&str]) -> Value {
    json!({"type": "string", "enum": words})
}

/// Every schema by its name.
pub(super) fn all(limits: &Limits) -> Map<String, Value> {
    macro_rules! schemas_of {
        ($settings:expr; $($type:ty),* $(,)?) => {{
            let mut generator = generator($settings);
            $(generator.subschema_for::<$type>();)*
            generator.take_definitions(false)
        }};
    }
    // What is written by hand, too: of its members an `Option` may be left out, an `OrNull` may be `null`.
    let mut all = schemas_of!(SchemaSettings::draft2020_12().for_deserialize();
        AnyId, AnyTime, Position, Problem, LineProblem,
        DraftWithRoom, message_types::Draft, Message, message_types::Receipt, message_types::Accepted,
        message_types::LineAnswer, message_types::HistoryPage, message_types::UserRoomList, message_types::UserMessages,
        rooms::RoomSettingsBody, members::ReadBody<'_>,
        queue_answers::QueueSettings, queue_types::QueueDraft, queue_types::QueueDrafts, queue_types::Take,
        queue_types::TakeOnLease, queue_types::TakeOfSender, queue_types::AckBody, queue_types::NackBody,
        queue_types::ExtendBody, queue_answers::AckManyBody<'_>, queue_answers::RedriveBody<'_>,
        queue_types::QueueReceipt, queue_types::QueueReceipts, queue_types::QueueMessages,
        queue_types::WaitingMessages, queue_types::Acked,
        kv::BatchBody, key_types::KeyChange, key_types::Watching, key_types::KeyBatchAnswer, health::Live,
        api_keys::KeyDraft, revocations::RevocationDraft, logins::LoginDraft, accounts::AccountDraft, accounts::RightsDraft,
        accounts::PasswordDraft,
    );
    all.extend(schemas_of!(SchemaSettings::draft2020_12().for_serialize();
        timeline::Timeline, rooms::Room, rooms::RoomList, members::Presence, members::ReadMark, members::MemberList, members::Erased,
        queue_answers::Queue, queue_answers::QueueList, queue_answers::ClientList,
        queue_answers::Nacked, queue_answers::Extended, queue_answers::Redriven, kv::KeyList,
        stats::Current<stats::Totals>, stats::Current<stats::RoomStatsList>, stats::Current<stats::UserStatsList>,
        stats::Current<stats::HourStatsList>, stats::Current<stats::ActiveUsers>,
        stats::Current<stats::ParticipationList>, stats::Current<stats::Audit>, stats::Report,
        health::Health, backups::Backup, api_keys::Me, api_keys::ApiKey, api_keys::NewApiKey, api_keys::ApiKeyList,
        revocations::Revocation, revocations::RevocationList, logins::WaysToLogIn, logins::NewLogin, accounts::Account,
        accounts::AccountList, logins::LoginList, connections::ConnectionList, watching::Begun,
        watching::ServerState, crate::trends::Sample,
    ));
    all.values_mut().for_each(|schema| finish(schema, limits));
    all
}

pub(super) fn generator(settings: SchemaSettings) -> SchemaGenerator {
    settings.with(|settings| settings.definitions_path = "/components/schemas".into()).into_generator()
}

/// Brings a derived schema into the form of the documents: limits in descriptions, no formats of Rust's numbers, and
/// members that may be left out are not nullable, too.
pub(super) fn finish(schema: &mut Value, limits: &Limits) {
    let Some(keywords) = schema.as_object_mut() else { return };
    if let Some(Value::String(about)) = keywords.get_mut("description") {
        *about = with_limits(about, limits);
    }
    if keywords.get("format").and_then(Value::as_str).is_some_and(is_rust_number) {
        keywords.remove("format");
    }
    let required: Vec<Value> =
        keywords.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
    for (keyword, value) in keywords.iter_mut() {
        match (keyword.as_str(), value) {
            ("properties", Value::Object(members)) => {
                members.iter_mut().for_each(|(name, member)| {
                    finish(member, limits);
                    strip_null(member, required.iter().any(|one| one == name.as_str()));
                });
            }
            ("maximum", limit @ Value::String(_)) => {
                let most = limit.as_str().map(|name| with_limits(name, limits));
                *limit = most.and_then(|most| most.parse::<u64>().ok()).into();
            }
            ("anyOf", Value::Array(choices)) => choices.iter_mut().for_each(|one| finish(one, limits)),
            ("items" | "additionalProperties", value) => finish(value, limits),
            _ => {}
        }
    }
}

/// One line, with the limits of this server for the names in braces.
pub(super) fn with_limits(about: &str, limits: &Limits) -> String {
    let values = [
        ("{message_bytes}", limits.message_bytes as u64),
        ("{queue_message_bytes}", limits.queue_message_bytes as u64),
        ("{value_bytes}", limits.value_bytes as u64),
        ("{body_bytes}", limits.body_bytes as u64),
        ("{page_messages}", limits.page_messages as u64),
        ("{items}", ITEMS_MAX as u64),
        ("{batch_answer_mib}", (kv::ANSWER_BYTES_MAX >> 20) as u64),
        ("{changes_kept}", hubbub_core::kv::CHANGES_KEPT as u64),
        ("{heartbeat_seconds}", HEARTBEAT.as_secs()),
    ];
    let about = about.replace('\n', " ");
    values.iter().fold(about, |about, (name, value)| about.replace(name, &value.to_string()))
}

fn is_rust_number(format: &str) -> bool {
    format.starts_with("uint") || format.starts_with("int") || ["float", "double"].contains(&format)
}

/// Takes the mark out, and where there is none and the member may be left out, `null`.
fn strip_null(member: &mut Value, is_required: bool) {
    let Some(keywords) = member.as_object_mut() else { return };
    if keywords.remove(OR_NULL).is_some() || is_required {
        return;
    }
    if let Some(Value::Array(kinds)) = keywords.get_mut("type") {
        kinds.retain(|kind| kind != "null");
        if let [kind] = kinds.as_slice() {
            let kind = kind.clone();
            keywords.insert("type".to_owned(), kind);
        }
    }
    if let Some(Value::Array(values)) = keywords.get_mut("enum") {
        values.retain(|value| !value.is_null());
    }
    if let Some(Value::Array(choices)) = keywords.get_mut("anyOf") {
        choices.retain(|choice| choice.get("type").is_none_or(|kind| kind != "null"));
        if let [Value::Object(only)] = choices.as_slice() {
            let only = only.clone();
            keywords.remove("anyOf");
            only.into_iter().for_each(|(keyword, value)| {
                keywords.entry(keyword).or_insert(value);
            });
        }
    }
}
