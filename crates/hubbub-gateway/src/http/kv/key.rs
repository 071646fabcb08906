//! Keys in text.
//!
//! A key is 1 to 512 bytes, any of them. In a path it is written percent-encoded, slashes as they are, and wherever
//! else text has a key, in JSON and in queries, it is written the same way: so a key from a list goes into a path
//! unchanged.

use std::borrow::Cow;

use hubbub_core::FieldError;
use hubbub_core::kv::KEY_BYTES_MAX;
use percent_encoding::{AsciiSet, CONTROLS, percent_encode};

use crate::auth::credential_store::RESERVED;
use crate::problem::Problem;

pub(crate) const KEY_RULE: &str = "must be 1 to 512 bytes, written as in a path: % and two hex digits for a byte; what begins with %00hubbub/ is reserved";

const _: () = assert!(KEY_BYTES_MAX == 512);

/// What is written as % and two hex digits, besides everything beyond ASCII: what a path may not hold.
const ESCAPED: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'[')
    .add(b'\\')
    .add(b']')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

pub(in crate::http) fn of_path(text: &str) -> Result<Cow<'_, [u8]>, Problem> {
    parse(text).ok_or_else(|| Problem::invalid(vec![FieldError::new("key", KEY_RULE)]))
}

pub(super) fn parse(text: &str) -> Option<Cow<'_, [u8]>> {
    decode(text).filter(|key| (1..=KEY_BYTES_MAX).contains(&key.len()) && !is_reserved(key))
}

/// Whether the server keeps something of its own there, which no client reads or writes.
pub(super) fn is_reserved(key: &[u8]) -> bool {
    key.starts_with(RESERVED)
}

pub(crate) fn parse_prefix(text: &str) -> Option<Cow<'_, [u8]>> {
    decode(text).filter(|prefix| prefix.len() <= KEY_BYTES_MAX)
}

fn decode(text: &str) -> Option<Cow<'_, [u8]>> {
    if !text.contains('%') {
        return Some(Cow::Borrowed(text.as_bytes()));
    }
    let mut parts = text.split('%');
    let mut key = parts.next()?.as_bytes().to_vec();
    for part in parts {
        let (digits, rest) = part.as_bytes().split_at_checked(2)?;
        let digits = digits.iter().map(|digit| char::from(*digit).to_digit(16));
        let byte = digits.reduce(|high, low| Some(high? * 16 + low?))??;
        key.push(u8::try_from(byte).ok()?);
        key.extend_from_slice(rest);
    }
    Some(Cow::Owned(key))
}

/// Appends a key as text; nothing in it needs escaping in JSON.
pub(super) fn write(key: &[u8], out: &mut Vec<u8>) {
    for part in percent_encode(key, ESCAPED) {
        out.extend_from_slice(part.as_bytes());
    }
}

pub(super) fn text(key: &[u8]) -> String {
    percent_encode(key, ESCAPED).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_as_they_are_written() {
        for key in [
            &b"a"[..],
            b"user:1/name",
            b"a b%/\"\\?#",
            "m\u{fc}\u{df}".as_bytes(),
            &[0, 0xff, 0x80],
            b"//",
            &[7; 512],
        ] {
            let text = text(key);
            assert!(
                text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'"' && byte != b'\\'),
                "{text}"
            );
            assert_eq!(parse(&text).as_deref(), Some(key), "{text}");
        }
        assert_eq!(text(b"user:1/a b"), "user:1/a%20b");
        assert_eq!(
            parse("m\u{fc}%C3%9f").as_deref(),
            Some("m\u{fc}\u{df}".as_bytes()),
            "what could be escaped need not be"
        );
    }

    #[test]
    fn what_is_no_key_is_refused() {
        for text in ["", "100%", "%4", "%zz", "%+1", "%\u{fc}", &"x".repeat(513)] {
            assert_eq!(parse(text), None, "{text}");
        }
        assert_eq!(parse_prefix("").as_deref(), Some(&b""[..]));
        assert_eq!(parse_prefix(&"x".repeat(513)), None);
        assert!(of_path("").is_err());
        assert_eq!(of_path("/a/").unwrap().as_ref(), b"/a/");
    }
}
