//! From JSON to a checked message: parses loosely, then names every wrong field at once.

mod loose;

use serde::Deserialize;

use crate::error::FieldError;
use crate::id::{ID_RULE, is_valid_id};
use crate::limits::Limits;
use crate::message::{MessageType, Send};
use crate::text::check_text;
use crate::time::{TIMESTAMP_RULE, Timestamp};
pub(crate) use loose::present;
pub use loose::{Digits, Loose};

/// A message as received. Unknown fields are ignored; `null` counts as absent.
#[derive(Debug, Default, Deserialize)]
#[serde(expecting = "an object")]
#[serde(rename_all = "camelCase", default)]
pub struct MessageDraft<'a> {
    /// The idempotency key.
    #[serde(borrow, deserialize_with = "present")]
    pub message_id: Option<Loose<'a>>,
    /// The room, if the path does not name it.
    #[serde(borrow, deserialize_with = "present")]
    pub room_id: Option<Loose<'a>>,
    /// The sender.
    #[serde(borrow, deserialize_with = "present")]
    pub user_id: Option<Loose<'a>>,
    /// The sender's display name.
    #[serde(borrow, deserialize_with = "present")]
    pub username: Option<Loose<'a>>,
    /// The text.
    #[serde(borrow, deserialize_with = "present")]
    pub message: Option<Loose<'a>>,
    /// `TEXT`, `JOIN` or `LEAVE`.
    #[serde(borrow, deserialize_with = "present")]
    pub message_type: Option<Loose<'a>>,
    /// The sender's clock.
    #[serde(borrow, deserialize_with = "present")]
    pub timestamp: Option<Loose<'a>>,
}

/// The rules of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rules {
    /// `/v1`: only `userId` and `message` are required.
    Api,
    /// `/chat/{room}`: all fields but `messageId` are required, and narrower rules apply.
    Chat,
}

/// Values of fields that a draft leaves out.
#[derive(Debug, Clone, Copy)]
pub struct Defaults<'a> {
    /// The room in the path; the body cannot override it.
    pub room: Option<&'a str>,
    /// The caller.
    pub user: Option<&'a str>,
    /// The id that the server generated.
    pub id: &'a str,
    /// The server's clock.
    pub now: Timestamp,
}

/// Longest text under [`Rules::Chat`], in characters.
const CHAT_CHARS_MAX: usize = 500;

pub(crate) const REQUIRED: &str = "is required";

pub(crate) const STRING: &str = "must be a string";

impl MessageDraft<'_> {
    /// The sender's id, if it is a string or an integer.
    pub fn given_id(&self) -> Option<&str> {
        self.message_id.as_ref().and_then(Loose::as_id)
    }

    /// Checks every field and appends errors to `faults`. `Some` if there are none.
    pub fn check<'a>(
        &'a self,
        rules: Rules,
        limits: &Limits,
        defaults: &Defaults<'a>,
        faults: &mut Vec<FieldError>,
    ) -> Option<Send<'a>> {
        let before = faults.len();
        let room = match defaults.room {
            Some(room) => check_id("roomId", Some(room), faults),
            None => check_loose_id("roomId", self.room_id.as_ref(), None, faults),
        };
        let user = check_loose_id("userId", self.user_id.as_ref(), defaults.user, faults);
        let id = check_loose_id("messageId", self.message_id.as_ref(), Some(defaults.id), faults);
        let username = self.check_username(rules, faults);
        let chars_max = (rules == Rules::Chat).then_some(CHAT_CHARS_MAX);
        let text = check_message_text(self.message.as_ref(), chars_max, limits.message_bytes, faults);
        let is_optional = rules == Rules::Api;
        let kind = self.message_type.as_ref().map(|kind| kind.as_text().and_then(MessageType::parse));
        let default = is_optional.then_some(MessageType::Text);
        let kind = check_optional("messageType", kind, "must be TEXT, JOIN or LEAVE", default, faults);
        let timestamp = self.timestamp.as_ref().map(Loose::as_time);
        let default = is_optional.then_some(defaults.now);
        let timestamp = check_optional("timestamp", timestamp, TIMESTAMP_RULE, default, faults);
        if let (Rules::Chat, Some(Loose::Int(number, _))) = (rules, &self.user_id)
            && !(1..=100_000).contains(number)
        {
            faults.push(FieldError::new("userId", "must be between 1 and 100000"));
        }
        if faults.len() > before {
            return None;
        }
        let (kind, timestamp) = (kind?, timestamp?);
        Some(Send { room: room?, user: user?, id: id?, username, text: text?, kind, timestamp })
    }

    fn check_username(&self, rules: Rules, faults: &mut Vec<FieldError>) -> Option<&str> {
        let name = match self.username.as_ref().map(Loose::as_text) {
            Some(Some(name)) => name,
            None if rules == Rules::Api => return None,
            missing => {
                let rule = if missing.is_some() { STRING } else { REQUIRED };
                faults.push(FieldError::new("username", rule));
                return None;
            }
        };
        match rules {
            Rules::Chat
                if !(3..=20).contains(&name.len()) || !name.bytes().all(|b| b.is_ascii_alphanumeric()) =>
            {
                faults.push(FieldError::new("username", "must be 3 to 20 letters and digits"));
            }
            Rules::Api if name.is_empty() || name.len() > 255 || name.chars().any(char::is_control) => {
                faults.push(FieldError::new("username", "must be 1 to 255 bytes without control characters"));
            }
            _ => {}
        }
        Some(name)
    }
}

/// A field, if present, with its value, if valid. `default` = `None` where it is required.
fn check_optional<T>(
    field: &'static str,
    value: Option<Option<T>>,
    rule: &'static str,
    default: Option<T>,
    faults: &mut Vec<FieldError>,
) -> Option<T> {
    let (checked, rule) = value.map_or((default, REQUIRED), |value| (value, rule));
    if checked.is_none() {
        faults.push(FieldError::new(field, rule));
    }
    checked
}

/// Checks the text of a message, which is at most `chars_max` characters, if given, and `bytes_max` bytes.
pub(crate) fn check_message_text<'a>(
    value: Option<&'a Loose<'_>>,
    chars_max: Option<usize>,
    bytes_max: usize,
    faults: &mut Vec<FieldError>,
) -> Option<&'a str> {
    let fault = match value.map(Loose::as_text) {
        None => FieldError::new("message", REQUIRED),
        Some(None) => FieldError::new("message", STRING),
        Some(Some("")) => FieldError::new("message", "must not be empty"),
        Some(Some(text)) => match check_text(text, chars_max, bytes_max) {
            Ok(()) => return Some(text),
            Err(rule) => FieldError::new("message", rule),
        },
    };
    faults.push(fault);
    None
}

pub(crate) fn check_loose_id<'a>(
    field: &'static str,
    value: Option<&'a Loose<'_>>,
    default: Option<&'a str>,
    faults: &mut Vec<FieldError>,
) -> Option<&'a str> {
    if let Some(None) = value.map(Loose::as_id) {
        faults.push(FieldError::new(field, "must be a string or an integer"));
        return None;
    }
    check_id(field, value.and_then(Loose::as_id).or(default), faults)
}

fn check_id<'a>(field: &'static str, id: Option<&'a str>, faults: &mut Vec<FieldError>) -> Option<&'a str> {
    let rule = match id {
        Some(id) if is_valid_id(id) => return Some(id),
        Some(_) => ID_RULE,
        None => REQUIRED,
    };
    faults.push(FieldError::new(field, rule));
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEFAULTS: Defaults<'static> =
        Defaults { room: Some("lobby"), user: None, id: "made-1", now: Timestamp::from_micros(7_000_000) };

    fn faults(json: &str, rules: Rules) -> Vec<String> {
        let draft: MessageDraft<'_> = serde_json::from_str(json).unwrap();
        let mut faults = Vec::new();
        let checked = draft.check(rules, &Limits::default(), &DEFAULTS, &mut faults);
        assert_eq!(checked.is_some(), faults.is_empty());
        faults.into_iter().map(|f| format!("{} {}", f.field, f.rule)).collect()
    }

    #[test]
    fn missing_fields_get_their_defaults() {
        let draft: MessageDraft<'_> =
            serde_json::from_str(r#"{"userId":42,"message":"hi","messageId":null,"extra":[1]}"#).unwrap();
        let send = draft.check(Rules::Api, &Limits::default(), &DEFAULTS, &mut Vec::new()).unwrap();
        assert_eq!((send.room, send.user, send.id, send.text), ("lobby", "42", "made-1", "hi"));
        assert_eq!((send.kind, send.timestamp, send.username), (MessageType::Text, DEFAULTS.now, None));
    }

    #[test]
    fn every_fault_is_named() {
        let got = faults(
            r#"{"userId":true,"username":7,"message":"","messageType":"SHOUT","timestamp":"soon","messageId":"a b"}"#,
            Rules::Api,
        );
        let fields: Vec<_> = got.iter().filter_map(|f| f.split(' ').next()).collect();
        assert_eq!(fields, ["userId", "messageId", "username", "message", "messageType", "timestamp"]);
    }

    #[test]
    fn chat_is_stricter() {
        assert_eq!(
            faults(
                r#"{"userId":1,"username":"ada1","message":"hi","timestamp":"2026-01-31T12:00:00Z","messageType":"text"}"#,
                Rules::Chat
            ),
            [""; 0]
        );
        assert_eq!(faults("{}", Rules::Chat).len(), 5);
        for (field, json) in [
            (
                "userId",
                r#"{"userId":100001,"username":"ada1","message":"hi","timestamp":"2026-01-31T12:00:00Z","messageType":"text"}"#,
            ),
            (
                "userId",
                r#"{"userId":0,"username":"ada1","message":"hi","timestamp":"2026-01-31T12:00:00Z","messageType":"text"}"#,
            ),
            (
                "username",
                r#"{"userId":1,"username":"a_b","message":"hi","timestamp":"2026-01-31T12:00:00Z","messageType":"text"}"#,
            ),
        ] {
            let got = faults(json, Rules::Chat);
            assert!(got.len() == 1 && got[0].starts_with(field), "{got:?}");
        }
        let long = format!(
            r#"{{"userId":1,"username":"ada1","message":"{}","timestamp":1,"messageType":"text"}}"#,
            "é".repeat(501)
        );
        assert_eq!(faults(&long, Rules::Chat).len(), 1);
    }

    #[test]
    fn integers_mean_their_digits() {
        for (value, digits) in
            [(0, "0"), (i64::MIN.into(), "-9223372036854775808"), (u64::MAX.into(), "18446744073709551615")]
        {
            assert_eq!(Digits::of(value).as_str(), digits);
        }
    }
}
