//! Verifies JSON Web Tokens (RFC 7519).
//!
//! Decided: `exp` is required, and at most `auth.max_lifetime` ahead. `none` and every algorithm but HS256, EdDSA, RS256
//! and ES256 are refused, and each key is for one of them. `crit` is refused, as nothing is understood that could be in it.
//! `aud` must name this server; a token for somebody is refused by a server that has no name. Times are compared with
//! `auth.leeway` of tolerance, on the server's clock.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use hubbub_core::invariant::saturate;
use hubbub_core::{Timestamp, UserId};
use jsonwebtoken::{Algorithm, Validation};
use serde::{Deserialize, Serialize};

use super::caller::{Access, RightsSource};
use super::grants::GrantsText;
use super::verifying_keys::{self, VerifyingKey};

/// Longest token. Its claims are read and kept for each connection.
pub(crate) const TOKEN_BYTES_MAX: usize = 8 * 1024;
const ID_BYTES_MAX: usize = 256;

/// How tokens are verified.
#[derive(Debug, Clone)]
pub struct TokenRules {
    /// Who they must be for (`aud`). Without it, tokens for somebody are refused.
    pub audience: Option<String>,
    /// Who must have issued them (`iss`).
    pub issuer: Option<String>,
    /// Tolerance for clocks that differ.
    pub leeway: Duration,
    /// Longest time until a token expires.
    pub max_lifetime: Duration,
}

/// The claims of a token.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Claims {
    /// The user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sub: Option<String>,
    /// When it expires, in seconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exp: Option<f64>,
    /// When it begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nbf: Option<f64>,
    /// When it was issued.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iat: Option<f64>,
    /// Its id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jti: Option<String>,
    /// Whom it is for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aud: Option<OneOrMany>,
    /// Who issued it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iss: Option<String>,
    /// What it allows.
    #[serde(flatten)]
    pub grants: GrantsText,
}

/// A text, or several.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(untagged)]
pub enum OneOrMany {
    /// One.
    One(String),
    /// Several.
    Many(Vec<String>),
}

impl OneOrMany {
    fn contains(&self, wanted: &str) -> bool {
        match self {
            Self::One(one) => one == wanted,
            Self::Many(many) => many.iter().any(|one| one == wanted),
        }
    }
}

/// Why a token was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refused {
    /// It will never be valid, or is not any more.
    Token(String),
    /// No key has its id. A newer set of keys may.
    UnknownKey,
    /// No set of keys could be read yet.
    NoKeys,
}

impl<T: Into<String>> From<T> for Refused {
    fn from(text: T) -> Self {
        Self::Token(text.into())
    }
}

/// Verifies tokens by the keys that there are.
pub struct Verifier {
    rules: TokenRules,
    fixed: Vec<VerifyingKey>,
    /// The key set; `None` = not read yet, if one is configured at all.
    set: RwLock<Option<Arc<Vec<VerifyingKey>>>>,
    has_set: bool,
}

impl Verifier {
    /// With a shared secret and a public key (PEM), if given. `has_set`: a key set will be added.
    pub fn new(
        rules: TokenRules,
        secret: Option<&str>,
        public_key: Option<&[u8]>,
        has_set: bool,
    ) -> Result<Self, String> {
        let mut fixed = Vec::new();
        if let Some(secret) = secret {
            fixed.push(verifying_keys::of_secret(secret)?);
        }
        if let Some(pem) = public_key {
            fixed.push(verifying_keys::of_pem(pem)?);
        }
        Ok(Self { rules, fixed, set: RwLock::new(None), has_set })
    }

    /// Replaces the key set by that of a JSON document. The error says what is wrong with it; the set before stays.
    pub fn replace_set(&self, text: &[u8]) -> Result<(), String> {
        let keys = verifying_keys::of_set(text)?;
        *self.set.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(keys));
        Ok(())
    }

    /// The latest time at which a token may have been issued by whoever has a clock ahead of this server's.
    pub(crate) fn latest_issue(&self, now: Timestamp) -> Timestamp {
        later(now, self.rules.leeway)
    }

    /// Longest time that a token can be valid from now on: issued ahead of this server's clock by the leeway, and good for two more
    /// behind its end.
    pub(crate) fn lifetime_max(&self) -> Duration {
        self.rules.max_lifetime.saturating_add(self.rules.leeway.saturating_mul(3))
    }

    /// Why a token is refused, if it is.
    pub fn check(&self, token: &str, now: Timestamp) -> Result<(), String> {
        self.verify(token, now).map(drop).map_err(|refused| match refused {
            Refused::Token(reason) => reason,
            Refused::UnknownKey => "no key has its kid".to_owned(),
            Refused::NoKeys => "the key set is read by the server only".to_owned(),
        })
    }

    pub(crate) fn verify(&self, token: &str, now: Timestamp) -> Result<Access, Refused> {
        let claims = self.claims(token)?;
        self.check_times(&claims, now)?;
        self.check_names(&claims)?;
        let expires_at = claims.exp.and_then(time).ok_or("exp is missing")?;
        let subject = match claims.sub.as_deref() {
            Some(sub) => Some(
                UserId::new(sub)
                    .map_err(|_| format!("sub must be a user's id: {}", hubbub_core::id::ID_RULE))?,
            ),
            None if claims.grants.admin => None,
            None => return Err("sub is missing".into()),
        };
        if claims.jti.as_ref().is_some_and(|id| id.len() > ID_BYTES_MAX) {
            return Err(format!("jti must have at most {ID_BYTES_MAX} bytes").into());
        }
        let grants = claims.grants.parse()?;
        let source =
            RightsSource::Token { id: claims.jti.map(Into::into), issued_at: claims.iat.and_then(time) };
        Ok(Access { subject, grants, expires_at: Some(expires_at), leeway: self.rules.leeway, source })
    }

    /// The claims of a token whose signature is right.
    fn claims(&self, token: &str) -> Result<Claims, Refused> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(format!("it has more than {TOKEN_BYTES_MAX} bytes").into());
        }
        let header = jsonwebtoken::decode_header(token).map_err(|_| "it is no signed JSON Web Token")?;
        if header.crit.is_some() {
            return Err("crit is not supported".into());
        }
        let keys = self.candidates(header.alg, header.kid.as_deref())?;
        let mut validation = Validation::new(header.alg);
        // Checked here, on the server's clock and with all that is said of it.
        validation.required_spec_claims.clear();
        (validation.validate_exp, validation.validate_nbf, validation.validate_aud) = (false, false, false);
        let mut error = Refused::from("its signature is not by a key of this server");
        for key in keys {
            match jsonwebtoken::decode::<Claims>(token, &key.key, &validation) {
                Ok(decoded) => return Ok(decoded.claims),
                Err(failed) => {
                    if let jsonwebtoken::errors::ErrorKind::Json(json) = failed.kind() {
                        error = format!("its claims cannot be read: {json}").into();
                    }
                }
            }
        }
        Err(error)
    }

    /// The keys that may have signed a token: of the algorithm, and of the id if both have one.
    fn candidates(&self, algorithm: Algorithm, id: Option<&str>) -> Result<Vec<VerifyingKey>, Refused> {
        let of_algorithm = |key: &&VerifyingKey| key.algorithm == algorithm;
        let mut found: Vec<VerifyingKey> = self.fixed.iter().filter(of_algorithm).cloned().collect();
        let set = self.set.read().unwrap_or_else(PoisonError::into_inner).clone();
        let set_can_have_it = self.has_set && algorithm != Algorithm::HS256;
        let Some(set) = set else {
            return match found.is_empty() {
                true if set_can_have_it => Err(Refused::NoKeys),
                true => Err("its algorithm is not one of this server".into()),
                false => Ok(found),
            };
        };
        let is_named = |key: &&VerifyingKey| id.is_none_or(|id| key.id.as_deref() == Some(id));
        found.extend(set.iter().filter(of_algorithm).filter(is_named).cloned());
        match found.is_empty() {
            true if set_can_have_it && id.is_some() => Err(Refused::UnknownKey),
            true => Err("its algorithm is not one of this server".into()),
            false => Ok(found),
        }
    }

    fn check_times(&self, claims: &Claims, now: Timestamp) -> Result<(), Refused> {
        let at = |name: &str, given: Option<f64>| match given {
            None => Ok(None),
            Some(seconds) => time(seconds).map(Some).ok_or_else(|| format!("{name} is no time")),
        };
        let (exp, nbf, iat) = (at("exp", claims.exp)?, at("nbf", claims.nbf)?, at("iat", claims.iat)?);
        let exp = exp.ok_or("exp is missing")?;
        if now >= later(exp, self.rules.leeway) {
            return Err("it has expired".into());
        }
        let latest = self.latest_issue(now);
        if nbf.is_some_and(|nbf| nbf > latest) {
            return Err("it is not valid yet (nbf)".into());
        }
        if iat.is_some_and(|iat| iat > latest) {
            return Err("it was issued in the future (iat)".into());
        }
        // By `iat` if there is one: what is refused for this is refused for good, and revocations end no sooner than tokens.
        let from = iat.map_or(latest, |iat| later(iat, self.rules.leeway));
        if exp > later(from, self.rules.max_lifetime) {
            let most = hubbub_core::duration::show(self.rules.max_lifetime);
            let since = if iat.is_some() { "iat" } else { "now" };
            return Err(format!("it expires later than auth.max_lifetime ({most}) from {since}").into());
        }
        Ok(())
    }

    fn check_names(&self, claims: &Claims) -> Result<(), Refused> {
        let is_for_us = match (&self.rules.audience, &claims.aud) {
            (None, None) => true,
            (Some(wanted), Some(aud)) => aud.contains(wanted),
            (None, Some(_)) | (Some(_), None) => false,
        };
        if !is_for_us {
            return Err("it is for somebody else (aud)".into());
        }
        if self.rules.issuer.is_some() && claims.iss != self.rules.issuer {
            return Err("it was issued by somebody else (iss)".into());
        }
        Ok(())
    }
}

fn time(seconds: f64) -> Option<Timestamp> {
    Timestamp::from_epoch_seconds(seconds)
}

pub(super) fn later(time: Timestamp, by: Duration) -> Timestamp {
    Timestamp::from_micros(time.as_micros().saturating_add(saturate(by.as_micros())))
}

/// Header and claims of a token, whoever signed it.
pub fn unverified(token: &str) -> Result<(serde_json::Value, serde_json::Value), String> {
    let refused = |_| "it is no JSON Web Token".to_owned();
    let header = jsonwebtoken::decode_header(token).map_err(refused)?;
    let header = serde_json::to_value(header).map_err(|error| error.to_string())?;
    Ok((header, jsonwebtoken::dangerous::insecure_decode(token).map_err(refused)?.claims))
}

/// Signs claims with a shared secret (HS256).
pub fn mint(claims: &Claims, secret: &str) -> Result<String, String> {
    verifying_keys::of_secret(secret)?;
    let header = jsonwebtoken::Header::new(Algorithm::HS256);
    let key = jsonwebtoken::EncodingKey::from_secret(secret.as_bytes());
    claims.grants.parse()?;
    jsonwebtoken::encode(&header, claims, &key).map_err(|error| error.to_string())
}

#[cfg(test)]
#[path = "token_tests.rs"]
mod tests;
