//! Parses JSON objects of clients, and writes members of answers that are hot or long.
//!
//! `name` is everything up to the value: comma, name, colon, and the quotation mark where the value needs no escaping.

use hubbub_core::Timestamp;
use hubbub_core::message::{write_json_string, write_u64};
use serde::Deserialize;
use serde::de::Error;

use crate::problem::Problem;

/// Reads an object. An array is refused here, because serde takes one for a struct, its fields by their places.
pub(crate) fn object<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, Problem> {
    refuse_array(text.as_bytes())?;
    serde_json::from_str(text).map_err(|error| Problem::malformed(&error))
}

/// The same from bytes that may not be UTF-8.
pub(crate) fn object_of_bytes<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, Problem> {
    refuse_array(bytes)?;
    serde_json::from_slice(bytes).map_err(|error| Problem::malformed(&error))
}

/// The same of a body that may be left out.
pub(crate) fn object_or_default<'a, T: Deserialize<'a> + Default>(bytes: &'a [u8]) -> Result<T, Problem> {
    if bytes.trim_ascii().is_empty() { Ok(T::default()) } else { object_of_bytes(bytes) }
}

fn refuse_array(bytes: &[u8]) -> Result<(), Problem> {
    if bytes.trim_ascii_start().starts_with(b"[") {
        return Err(Problem::malformed(&serde_json::Error::custom("an array, where an object belongs")));
    }
    Ok(())
}

pub(crate) fn write_number(name: &str, number: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(name.as_bytes());
    write_u64(number, out);
}

/// A text that may need escaping.
pub(crate) fn write_text(name: &str, text: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(name.as_bytes());
    write_json_string(text, out);
}

/// A text that may need escaping, or `null`.
pub(crate) fn write_text_or_null(name: &str, text: Option<&str>, out: &mut Vec<u8>) {
    match text {
        Some(text) => write_text(name, text, out),
        None => {
            out.extend_from_slice(name.as_bytes());
            out.extend_from_slice(b"null");
        }
    }
}

/// A text without anything to escape: an id, a name, a receipt.
pub(crate) fn write_plain(name: &str, text: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(text.as_bytes());
    out.push(b'"');
}

pub(crate) fn write_time(name: &str, time: Timestamp, out: &mut Vec<u8>) {
    out.extend_from_slice(name.as_bytes());
    time.write(out);
    out.push(b'"');
}

pub(crate) fn write_flag(name: &str, flag: bool, out: &mut Vec<u8>) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(if flag { b"true" } else { b"false" });
}

/// The items of an array, without its brackets.
pub(crate) fn write_items<T>(
    items: impl IntoIterator<Item = T>,
    out: &mut Vec<u8>,
    mut write: impl FnMut(T, &mut Vec<u8>),
) {
    for (index, item) in items.into_iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write(item, out);
    }
}
