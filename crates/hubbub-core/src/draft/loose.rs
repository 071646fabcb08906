//! JSON values of any type, so that a wrong type of one field does not hide errors of the others.

use std::borrow::Cow;
use std::fmt;
use std::io::Write;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::time::Timestamp;

/// A JSON value where a string or number belongs. Of other values only the type's name is kept.
#[derive(Debug, Clone, PartialEq)]
pub enum Loose<'a> {
    /// A string.
    Text(Cow<'a, str>),
    /// An integer and its decimal digits.
    Int(i128, Digits),
    /// Another number.
    Float(f64),
    /// Another value: the name of its JSON type.
    Other(&'static str),
}

/// The decimal digits of an integer of at most 64 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Digits {
    /// The longest number has 20 characters, with its sign.
    bytes: [u8; 20],
    length: usize,
}

impl Digits {
    pub(super) fn of(value: i128) -> Self {
        let mut bytes = [0; 20];
        let mut free = bytes.as_mut_slice();
        // What does not fit has more than 64 bits.
        let _ = write!(free, "{value}");
        let length = 20 - free.len();
        Self { bytes, length }
    }

    pub(super) fn as_str(&self) -> &str {
        let digits = self.bytes.get(..self.length).unwrap_or_default();
        std::str::from_utf8(digits).unwrap_or_default()
    }
}

impl Loose<'_> {
    /// The value as an identifier: a string, or an integer's decimal digits.
    pub fn as_id(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Int(_, digits) => Some(digits.as_str()),
            Self::Float(_) | Self::Other(_) => None,
        }
    }

    /// The value as a whole number from 0 on.
    pub fn as_u64(&self) -> Option<u64> {
        if let Self::Int(number, _) = self { u64::try_from(*number).ok() } else { None }
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

pub(crate) fn present<'de: 'a, 'a, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Loose<'a>>, D::Error> {
    Loose::deserialize(deserializer).map(|value| (value != Loose::Other("null")).then_some(value))
}
