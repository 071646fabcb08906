//! Parses JSON objects of clients.

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

fn refuse_array(bytes: &[u8]) -> Result<(), Problem> {
    if bytes.trim_ascii_start().starts_with(b"[") {
        return Err(Problem::malformed(&serde_json::Error::custom("an array, where an object belongs")));
    }
    Ok(())
}
