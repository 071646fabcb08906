//! The keys that tokens are signed with: a shared secret, a public key in a file, a JSON Web Key Set.
//!
//! Each key is for one algorithm, and a token is verified only by keys of its own: what is public can never be taken for a
//! secret. A token without an algorithm (`none`) has no key.

use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey};
use serde_json::Value;

/// Keys of one set.
pub(super) const KEYS_MAX: usize = 100;
/// Fewer bytes could be guessed: those of the hash.
pub(super) const SECRET_BYTES_MIN: usize = 32;

#[derive(Clone)]
pub(super) struct VerifyingKey {
    pub(super) id: Option<String>,
    pub(super) algorithm: Algorithm,
    pub(super) key: DecodingKey,
}

pub(super) fn of_secret(secret: &str) -> Result<VerifyingKey, String> {
    if secret.len() < SECRET_BYTES_MIN {
        return Err(format!(
            "auth.secret must have at least {SECRET_BYTES_MIN} bytes; make one with: openssl rand -base64 48"
        ));
    }
    let key = DecodingKey::from_secret(secret.as_bytes());
    Ok(VerifyingKey { id: None, algorithm: Algorithm::HS256, key })
}

/// From PEM: Ed25519, RSA or P-256.
pub(super) fn of_pem(pem: &[u8]) -> Result<VerifyingKey, String> {
    if String::from_utf8_lossy(pem).contains("PRIVATE KEY") {
        return Err("auth.public_key names a private key; the server needs only the public one".to_owned());
    }
    let kinds = [
        (Algorithm::EdDSA, DecodingKey::from_ed_pem(pem)),
        (Algorithm::ES256, DecodingKey::from_ec_pem(pem)),
        (Algorithm::RS256, DecodingKey::from_rsa_pem(pem)),
    ];
    let found = kinds.into_iter().find_map(|(algorithm, key)| Some((algorithm, key.ok()?)));
    let (algorithm, key) =
        found.ok_or("auth.public_key must be a public key in PEM: Ed25519, RSA or P-256")?;
    Ok(VerifyingKey { id: None, algorithm, key })
}

/// The keys of a set that can verify tokens here. Others are left out: a set may have keys for other purposes.
pub(super) fn of_set(text: &[u8]) -> Result<Vec<VerifyingKey>, String> {
    let set: Value = serde_json::from_slice(text).map_err(|error| format!("is no JSON: {error}"))?;
    let keys = set.get("keys").and_then(Value::as_array).ok_or("has no list of keys")?;
    if keys.len() > KEYS_MAX {
        return Err(format!("has {} keys; at most {KEYS_MAX} are taken", keys.len()));
    }
    let usable: Vec<VerifyingKey> = keys.iter().filter_map(of_jwk).collect();
    if usable.is_empty() {
        return Err("has no key for EdDSA, RS256 or ES256".to_owned());
    }
    Ok(usable)
}

fn of_jwk(value: &Value) -> Option<VerifyingKey> {
    let jwk: Jwk = serde_json::from_value(value.clone()).ok()?;
    if jwk.common.public_key_use.as_ref().is_some_and(|of| *of != PublicKeyUse::Signature) {
        return None;
    }
    // Never a secret: who can read the set could sign with it.
    let (algorithm, named) = match &jwk.algorithm {
        AlgorithmParameters::RSA(_) => (Algorithm::RS256, KeyAlgorithm::RS256),
        AlgorithmParameters::EllipticCurve(of) if of.curve == EllipticCurve::P256 => {
            (Algorithm::ES256, KeyAlgorithm::ES256)
        }
        AlgorithmParameters::OctetKeyPair(of) if of.curve == EllipticCurve::Ed25519 => {
            (Algorithm::EdDSA, KeyAlgorithm::EdDSA)
        }
        _ => return None,
    };
    if jwk.common.key_algorithm.is_some_and(|given| given != named) {
        return None;
    }
    let key = DecodingKey::from_jwk(&jwk).ok()?;
    Some(VerifyingKey { id: jwk.common.key_id, algorithm, key })
}
