//! Random ids and secrets, and the hashes by which the store knows them.
//!
//! A secret has 256 random bits, so its hash needs neither salt nor rounds.

use aws_lc_rs::{constant_time, digest, rand};

const SECRET_BYTES: usize = 32;

/// The hash of a secret, or of a name of any length and content; 64 hexadecimal digits.
pub(super) fn hash(text: &str) -> String {
    hex(digest::digest(&digest::SHA256, text.as_bytes()).as_ref())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Compares two hashes in constant time.
pub(super) fn are_same(one: &str, other: &str) -> bool {
    constant_time::verify_slices_are_equal(one.as_bytes(), other.as_bytes()).is_ok()
}

/// A new API key or login: its id, what its owner gets, which begins with `prefix`, and the hash that is stored. `None` = the
/// system gives no random bytes.
pub(crate) fn make_secret(prefix: &str) -> Option<(String, String, String)> {
    let (id, mut secret) = (make_id()?, [0; SECRET_BYTES]);
    rand::fill(&mut secret).ok()?;
    let secret = hex(&secret);
    let token = format!("{prefix}{id}_{secret}");
    Some((id, token, hash(&secret)))
}

/// 64 random bits.
pub(crate) fn make_id() -> Option<String> {
    let mut id = [0; 8];
    rand::fill(&mut id).ok()?;
    Some(hex(&id))
}
