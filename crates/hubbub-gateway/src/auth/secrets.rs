//! Random ids and secrets, and the hashes by which the store knows them.
//!
//! A secret has 256 random bits, so its hash needs neither salt nor rounds.

use std::fmt::Write as _;

use aws_lc_rs::{constant_time, digest, rand};

const SECRET_BYTES: usize = 32;

/// `None` = the system gives no random bytes.
pub(super) fn random<const N: usize>() -> Option<[u8; N]> {
    let mut bytes = [0; N];
    rand::fill(&mut bytes).ok()?;
    Some(bytes)
}

/// The hash of a secret, or of a name of any length and content; 64 hexadecimal digits.
pub(super) fn hash(text: &str) -> String {
    hex(digest::digest(&digest::SHA256, text.as_bytes()).as_ref())
}

pub(super) fn hex(bytes: &[u8]) -> String {
    let mut digits = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        // Writing to a string does not fail.
        let _ = write!(digits, "{byte:02x}");
    }
    digits
}

/// Compares two hashes in constant time.
pub(super) fn are_same(one: &str, other: &str) -> bool {
    constant_time::verify_slices_are_equal(one.as_bytes(), other.as_bytes()).is_ok()
}

/// A new API key or login: its id, what its owner gets, which begins with `prefix`, and the hash that is stored. `None` = the
/// system gives no random bytes.
pub(crate) fn make_secret(prefix: &str) -> Option<(String, String, String)> {
    let (id, secret) = (make_id()?, hex(&random::<SECRET_BYTES>()?));
    let token = format!("{prefix}{id}_{secret}");
    Some((id, token, hash(&secret)))
}

/// 64 random bits.
pub(crate) fn make_id() -> Option<String> {
    Some(hex(&random::<8>()?))
}
