//! From JSON to a checked message: parse loosely, then name every fault at once.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::error::Fault;
use crate::id::{ID_RULE, is_valid_id};
use crate::limits::Limits;
use crate::message::{MessageType, Send};
use crate::time::{TIMESTAMP_RULE, Timestamp};

/// A JSON value where a string or number belongs; anything else is remembered by its type's name, so that the
/// wrong type of one field does not hide the faults of the others.
#[derive(Debug, Clone, PartialEq)]
pub enum Loose<'a> {
    /// A string.
    Text(Cow<'a, str>),
    /// An integer, with its decimal digits.
    Int(i128, Digits),
    /// Another number.
    Float(f64),
    /// Neither; the name of its JSON type.
    Other(&'static str),
}

/// The decimal digits of an integer of at most 64 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Digits {
    bytes: [u8; 20],
    start: u8,
}

impl Digits {
    fn of(value: i128) -> Self {
        let mut bytes = [b'0'; 20];
        let mut start = bytes.len();
        let mut rest = value.unsigned_abs();
        for place in bytes.iter_mut().rev() {
            *place = b'0' + u8::try_from(rest % 10).unwrap_or(0);
            rest /= 10;
            start -= 1;
            if rest == 0 {
                break;
            }
        }
        if value < 0 && start > 0 {
            start -= 1;
            if let Some(sign) = bytes.get_mut(start) {
                *sign = b'-';
            }
        }
        Self { bytes, start: u8::try_from(start).unwrap_or(0) }
    }

    fn as_str(&self) -> &str {
        self.bytes
            .get(usize::from(self.start)..)
            .and_then(|b| std::str::from_utf8(b).ok())
            .unwrap_or_default()
    }
}

impl Loose<'_> {
    /// The value as an identifier is written: a string, or an integer's decimal digits.
    pub fn as_id(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Int(_, digits) => Some(digits.as_str()),
            Self::Float(_) | Self::Other(_) => None,
        }
    }

    pub(crate) fn as_text(&self) -> Option<&str> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }

    #[allow(clippy::cast_precision_loss)]
    pub(crate) fn as_time(&self) -> Option<Timestamp> {
        match self {
            Self::Text(text) => Timestamp::parse(text),
            Self::Int(seconds, _) => Timestamp::from_epoch_seconds(*seconds as f64),
            Self::Float(seconds) => Timestamp::from_epoch_seconds(*seconds),
            Self::Other(_) => None,
        }
    }
}

struct LooseVisitor;

impl<'de> Visitor<'de> for LooseVisitor {
    type Value = Loose<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }
    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Loose<'de>, E> {
        Ok(Loose::Text(Cow::Borrowed(text)))
    }
    fn visit_str<E>(self, text: &str) -> Result<Loose<'de>, E> {
        Ok(Loose::Text(Cow::Owned(text.to_owned())))
    }
    fn visit_u64<E>(self, value: u64) -> Result<Loose<'de>, E> {
        Ok(Loose::Int(value.into(), Digits::of(value.into())))
    }
    fn visit_i64<E>(self, value: i64) -> Result<Loose<'de>, E> {
        Ok(Loose::Int(value.into(), Digits::of(value.into())))
    }
    fn visit_f64<E>(self, value: f64) -> Result<Loose<'de>, E> {
        Ok(Loose::Float(value))
    }
    fn visit_bool<E>(self, _: bool) -> Result<Loose<'de>, E> {
        Ok(Loose::Other("a boolean"))
    }
    fn visit_unit<E>(self) -> Result<Loose<'de>, E> {
        Ok(Loose::Other("null"))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Loose<'de>, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Loose::Other("an array"))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Loose<'de>, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Loose::Other("an object"))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Loose<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(LooseVisitor)
    }
}

/// A message as somebody wrote it. Unknown fields are ignored; `null` counts as absent.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MessageDraft<'a> {
    /// The idempotency key.
    #[serde(borrow, deserialize_with = "present")]
    pub message_id: Option<Loose<'a>>,
    /// The room, where the path does not say it.
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

pub(crate) fn present<'de: 'a, 'a, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Loose<'a>>, D::Error> {
    Loose::deserialize(deserializer).map(|value| (value != Loose::Other("null")).then_some(value))
}

/// Which rules a message is checked against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rules {
    /// `/v1`: only `userId` and `message` are required.
    Api,
    /// `/chat/{room}`: all but `messageId` are required, and they are narrower.
    Chat,
}

/// What stands in for what a draft leaves out.
#[derive(Debug, Clone, Copy)]
pub struct Defaults<'a> {
    /// The room of the path, which the body's does not override.
    pub room: Option<&'a str>,
    /// Who calls.
    pub user: Option<&'a str>,
    /// The id the server made.
    pub id: &'a str,
    /// The server's clock.
    pub now: Timestamp,
}

pub(crate) const REQUIRED: &str = "is required";
pub(crate) const STRING: &str = "must be a string";

impl MessageDraft<'_> {
    /// The id the sender gave, if it gave a usable one.
    pub fn given_id(&self) -> Option<&str> {
        self.message_id.as_ref().and_then(Loose::as_id)
    }

    /// Checks every field and appends what is wrong to `faults`; `Some` when nothing is.
    pub fn check<'a>(
        &'a self,
        rules: Rules,
        limits: &Limits,
        defaults: &Defaults<'a>,
        faults: &mut Vec<Fault>,
    ) -> Option<Send<'a>> {
        let before = faults.len();
        let room = match defaults.room {
            Some(room) => check_id("roomId", Some(room), faults),
            None => check_loose_id("roomId", self.room_id.as_ref(), None, faults),
        };
        let user = check_loose_id("userId", self.user_id.as_ref(), defaults.user, faults);
        let id = check_loose_id("messageId", self.message_id.as_ref(), Some(defaults.id), faults);
        let username = self.check_username(rules, faults);
        let text = self.check_text(rules, limits, faults);
        let kind = self.check_kind(rules, faults);
        let timestamp = self.check_timestamp(rules, defaults.now, faults);
        if let (Rules::Chat, Some(Loose::Int(number, _))) = (rules, &self.user_id)
            && !(1..=100_000).contains(number)
        {
            faults.push(Fault::new("userId", "must be between 1 and 100000"));
        }
        if faults.len() > before {
            return None;
        }
        Some(Send { room: room?, user: user?, id: id?, username, text: text?, kind, timestamp })
    }

    fn check_username(&self, rules: Rules, faults: &mut Vec<Fault>) -> Option<&str> {
        let Some(value) = &self.username else {
            if rules == Rules::Chat {
                faults.push(Fault::new("username", REQUIRED));
            }
            return None;
        };
        let Some(name) = value.as_text() else {
            faults.push(Fault::new("username", STRING));
            return None;
        };
        match rules {
            Rules::Chat
                if !(3..=20).contains(&name.len()) || !name.bytes().all(|b| b.is_ascii_alphanumeric()) =>
            {
                faults.push(Fault::new("username", "must be 3 to 20 letters and digits"));
            }
            Rules::Api if name.is_empty() || name.len() > 255 || name.chars().any(char::is_control) => {
                faults.push(Fault::new("username", "must be 1 to 255 bytes without control characters"));
            }
            _ => {}
        }
        Some(name)
    }

    fn check_text(&self, rules: Rules, limits: &Limits, faults: &mut Vec<Fault>) -> Option<&str> {
        let fault = match self.message.as_ref().map(Loose::as_text) {
            None => Fault::new("message", REQUIRED),
            Some(None) => Fault::new("message", STRING),
            Some(Some("")) => Fault::new("message", "must not be empty"),
            Some(Some(text)) if text.contains('\0') => Fault::new("message", "must not contain U+0000"),
            // Counting characters is needed only where bytes do not already decide.
            Some(Some(text)) if rules == Rules::Chat && text.len() > 500 && text.chars().count() > 500 => {
                Fault::new("message", "must be 1 to 500 characters")
            }
            Some(Some(text)) if text.len() > limits.message_bytes => {
                Fault::new("message", format!("must be at most {} bytes", limits.message_bytes))
            }
            Some(Some(text)) => return Some(text),
        };
        faults.push(fault);
        None
    }

    fn check_kind(&self, rules: Rules, faults: &mut Vec<Fault>) -> MessageType {
        match &self.message_type {
            None if rules == Rules::Chat => faults.push(Fault::new("messageType", REQUIRED)),
            None => {}
            Some(value) => match value.as_text().and_then(MessageType::parse) {
                Some(kind) => return kind,
                None => faults.push(Fault::new("messageType", "must be TEXT, JOIN or LEAVE")),
            },
        }
        MessageType::Text
    }

    fn check_timestamp(&self, rules: Rules, now: Timestamp, faults: &mut Vec<Fault>) -> Timestamp {
        match &self.timestamp {
            None if rules == Rules::Chat => faults.push(Fault::new("timestamp", REQUIRED)),
            None => {}
            Some(value) => match value.as_time() {
                Some(time) => return time,
                None => faults.push(Fault::new("timestamp", TIMESTAMP_RULE)),
            },
        }
        now
    }
}

pub(crate) fn check_loose_id<'a>(
    field: &'static str,
    value: Option<&'a Loose<'_>>,
    default: Option<&'a str>,
    faults: &mut Vec<Fault>,
) -> Option<&'a str> {
    match value.map(Loose::as_id) {
        Some(None) => {
            faults.push(Fault::new(field, "must be a string or an integer"));
            None
        }
        Some(given) => check_id(field, given, faults),
        None => check_id(field, default, faults),
    }
}

fn check_id<'a>(field: &'static str, id: Option<&'a str>, faults: &mut Vec<Fault>) -> Option<&'a str> {
    let rule = match id {
        Some(id) if is_valid_id(id) => return Some(id),
        Some(_) => ID_RULE,
        None => REQUIRED,
    };
    faults.push(Fault::new(field, rule));
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
    fn a_minimal_message_is_filled_up() {
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
