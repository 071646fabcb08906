//! The secret that an agent and its coordinators share. It never passes between them: the coordinator signs what the agent
//! said (HMAC with SHA-256), another thing for each connection, and the library compares signatures in constant time.

use std::fmt;
use std::path::Path;

use anyhow::{Context, ensure};
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};
use serde::{Deserialize, Serialize};

/// Shorter ones can be guessed by whoever sees a proof.
const BYTES_MIN: usize = 32;

/// It is not to be shown.
#[derive(Clone)]
pub(super) struct Secret(Vec<u8>);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

#[derive(Serialize, Deserialize)]
struct Claims {
    nonce: String,
}

impl Secret {
    /// Reads it from a file, of which `option` says the name.
    ///
    /// # Errors
    /// A file that cannot be read, or has too little in it.
    pub(super) fn read(option: &str, path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path);
        let text = text.with_context(|| format!("{option}: cannot read {}", path.display()))?;
        let secret = text.trim();
        let shown = path.display();
        ensure!(secret.len() >= BYTES_MIN, "{option}: {shown} must have at least {BYTES_MIN} bytes");
        Ok(Self(secret.into()))
    }

    /// Proves that the secret is known.
    pub(super) fn prove(&self, nonce: &str) -> anyhow::Result<String> {
        let claims = Claims { nonce: nonce.to_owned() };
        let proof =
            jsonwebtoken::encode(&Header::new(Algorithm::HS256), &claims, &EncodingKey::from_secret(&self.0));
        proof.context("cannot prove that the secret is known")
    }

    /// Whether it is a proof for what was said.
    pub(super) fn is_proved(&self, nonce: &str, proof: &str) -> bool {
        let mut rules = Validation::new(Algorithm::HS256);
        // What is signed is of this connection only, and two machines have two clocks.
        rules.required_spec_claims.clear();
        rules.validate_exp = false;
        let claims = jsonwebtoken::decode::<Claims>(proof, &DecodingKey::from_secret(&self.0), &rules);
        claims.is_ok_and(|token| token.claims.nonce == nonce)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_secret_proves_itself() {
        let secret = |text: &str| Secret(text.into());
        let own = secret("a secret of more than thirty-two bytes");
        let proof = own.prove("1-1").unwrap();
        assert!(own.is_proved("1-1", &proof));
        assert!(!own.is_proved("1-2", &proof), "the proof of another connection");
        let other = secret("another secret of more than 32 bytes");
        assert!(!own.is_proved("1-1", &other.prove("1-1").unwrap()));
        for none in ["", "a.b.c", &proof[..proof.len() - 2]] {
            assert!(!own.is_proved("1-1", none), "{none}");
        }
        assert_eq!(format!("{own:?}"), "***");
    }

    #[test]
    fn a_short_secret_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secret");
        std::fs::write(&path, "short\n").unwrap();
        let error = Secret::read("--secret-file", &path).unwrap_err().to_string();
        assert!(error.starts_with("--secret-file") && error.contains("32 bytes"), "{error}");
        assert!(Secret::read("--secret-file", &dir.path().join("none")).is_err());
    }
}
