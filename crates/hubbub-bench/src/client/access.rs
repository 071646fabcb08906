//! How a run gets to servers that are not open to everybody: tokens, and whom to trust with TLS.
//!
//! Tokens come from a file, from the environment, or are made here with the server's own secret (HS256). They are never
//! shown, and no command line has them.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail, ensure};
use clap::Args;
use hubbub_tls::TlsFiles;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use rustls::ClientConfig;
use serde_json::json;

/// The variable with a token.
const TOKEN: &str = "HUBBUB_TOKEN";
/// Longer than any run.
const LIFETIME_S: i64 = 86_400;
/// Who asks for what belongs to no user: figures, queues to be made.
const SERVICE: &str = "bench";

/// The options of it.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct AccessArgs {
    /// Call the server with the token in this file; without it, with that of HUBBUB_TOKEN, if there is one. It must be an
    /// administrator's, as messages are sent in the name of many users
    #[arg(long, value_name = "FILE", conflicts_with = "secret_file")]
    pub token_file: Option<PathBuf>,
    /// The server's secret (auth.secret) is in this file: each connection is a user with a token of its own
    #[arg(long, value_name = "FILE")]
    pub secret_file: Option<PathBuf>,
    /// With https://, trust the authorities in this PEM file in place of the system's
    #[arg(long, value_name = "FILE")]
    pub ca: Option<PathBuf>,
    /// What the environment has.
    #[arg(skip)]
    pub given: Option<String>,
}

impl AccessArgs {
    /// Takes the token of the environment where no option says another.
    pub(crate) fn or_environment(mut self) -> Self {
        if self.token_file.is_none() && self.secret_file.is_none() {
            self.given = std::env::var(TOKEN).ok();
        }
        self
    }

    /// Reads the files.
    ///
    /// # Errors
    /// A file that cannot be read, or whose content is no token, no secret, or no certificate.
    pub(crate) fn credentials(&self) -> anyhow::Result<Credentials> {
        let read = |path: &Path| {
            let text = std::fs::read_to_string(path);
            text.with_context(|| format!("cannot read {}", path.display())).map(|text| text.trim().to_owned())
        };
        let given = self.token_file.as_deref().map(read).transpose()?;
        if let (Some(path), Some("")) = (&self.token_file, given.as_deref()) {
            bail!("--token-file: {} has no token in it", path.display());
        }
        let given = given.or_else(|| self.given.as_deref().map(|token| token.trim().to_owned()));
        let tokens = if let Some(path) = &self.secret_file {
            let secret = read(path)?;
            ensure!(!secret.is_empty(), "--secret-file: {} is empty", path.display());
            Tokens::Own(EncodingKey::from_secret(secret.as_bytes()))
        } else {
            match given.filter(|token| !token.is_empty()) {
                Some(token) => {
                    let is_token = token.bytes().all(|byte| byte.is_ascii_graphic());
                    ensure!(
                        is_token,
                        "--token-file or {TOKEN}: a token has no spaces and nothing beyond ASCII"
                    );
                    Tokens::Given(token)
                }
                None => Tokens::None,
            }
        };
        let tls = match &self.ca {
            Some(ca) => Some(client_config(Some(ca))?),
            None => None,
        };
        Ok(Credentials { tokens: Arc::new(tokens), tls })
    }
}

fn client_config(ca: Option<&Path>) -> anyhow::Result<Arc<ClientConfig>> {
    let files = TlsFiles { ca: ca.map(Into::into), ..TlsFiles::default() };
    Ok(Arc::new(files.client("bench")?))
}

/// Text that is not to be shown.
#[derive(Clone)]
pub(crate) struct Hidden(Arc<str>);

impl From<String> for Hidden {
    fn from(text: String) -> Self {
        Self(text.into())
    }
}

impl std::ops::Deref for Hidden {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

enum Tokens {
    None,
    /// One for all connections.
    Given(String),
    /// One for each user, made with this secret.
    Own(EncodingKey),
}

/// What connections show of themselves, and whom they trust.
#[derive(Clone)]
pub(crate) struct Credentials {
    tokens: Arc<Tokens>,
    tls: Option<Arc<ClientConfig>>,
}

impl Default for Credentials {
    fn default() -> Self {
        Self { tokens: Arc::new(Tokens::None), tls: None }
    }
}

/// Nothing of it is to be shown.
impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind())
    }
}

impl Credentials {
    /// As reports name it.
    pub(crate) fn kind(&self) -> &'static str {
        match *self.tokens {
            Tokens::None => "none",
            Tokens::Given(_) => "one",
            Tokens::Own(_) => "one for each user",
        }
    }

    /// Whether each connection must be one user.
    pub(crate) fn has_own_users(&self) -> bool {
        matches!(*self.tokens, Tokens::Own(_))
    }

    /// How to encrypt; by default the system's authorities are trusted.
    pub(crate) fn tls(&self) -> anyhow::Result<Arc<ClientConfig>> {
        self.tls.clone().map_or_else(|| client_config(None), Ok)
    }

    /// The token for what belongs to no user.
    pub(crate) fn of_service(&self) -> Option<String> {
        self.token(|exp| json!({ "sub": SERVICE, "exp": exp, "admin": true }))
    }

    /// The token of a user. If one cannot be made, the server refuses what comes without it.
    pub(crate) fn of_user(&self, name: &str) -> Option<String> {
        let (all, every_key) = (json!({ "*": "rw" }), json!({ "": "rw" }));
        self.token(|exp| {
            json!({
                "sub": name, "exp": exp, "rooms": all, "queues": all, "kv": every_key, "scopes": ["clients"],
            })
        })
    }

    /// `claims` of a token that ends at a time, in seconds.
    fn token(&self, claims: impl FnOnce(i64) -> serde_json::Value) -> Option<String> {
        match &*self.tokens {
            Tokens::None => None,
            Tokens::Given(token) => Some(token.clone()),
            Tokens::Own(key) => {
                let now_s = crate::host::machine::now().as_micros() / 1_000_000;
                let claims = claims(now_s.saturating_add(LIFETIME_S));
                jsonwebtoken::encode(&Header::new(Algorithm::HS256), &claims, key).ok()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use jsonwebtoken::{DecodingKey, Validation};
    use serde_json::Value;

    use super::*;
    use crate::client::Target;

    const SECRET: &str = "a secret of 32 bytes, and some more";

    fn claims(token: &str) -> Value {
        let key = DecodingKey::from_secret(SECRET.as_bytes());
        jsonwebtoken::decode::<Value>(token, &key, &Validation::new(Algorithm::HS256)).expect("signed").claims
    }

    #[test]
    fn each_user_has_a_token_of_its_own() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("secret");
        std::fs::write(&file, format!("{SECRET}\n")).expect("written");
        let args =
            AccessArgs { secret_file: Some(file), given: Some("ignored".into()), ..AccessArgs::default() };
        let credentials = args.credentials().expect("a secret");
        let of_ada = claims(&credentials.of_user("ada").expect("a token"));
        assert_eq!((of_ada.get("sub"), of_ada.get("admin")), (Some(&json!("ada")), None));
        let of_service = claims(&credentials.of_service().expect("a token"));
        assert_eq!(of_service.get("admin"), Some(&json!(true)));

        let target = Target::with("http://127.0.0.1:1", &credentials).expect("an address");
        let (ada, bob) = (target.of_user("ada"), target.of_user("bob"));
        assert!(ada.headers.starts_with("Authorization: Bearer ") && ada.headers.ends_with("\r\n"));
        assert!(*ada.headers != *bob.headers && *ada.headers != *target.headers);
        assert!(ada.greeting().is_none());
        let line = target.line("127.0.0.1:2").expect("an address").of_user("ada").greeting();
        assert!(line.is_some_and(|line| line.starts_with("auth\ntoken:ey")));
        // None of it is shown.
        let shown = format!("{target:?}");
        assert!(!shown.contains(SECRET) && !shown.contains("eyJ"), "{shown}");
    }

    #[test]
    fn what_is_no_token_is_refused() {
        let given = |text: &str| AccessArgs { given: Some(text.to_owned()), ..AccessArgs::default() };
        assert_eq!(given(" ").credentials().expect("none").kind(), "none");
        let credentials = given(" a.b.c\n").credentials().expect("one");
        assert_eq!(credentials.of_user("ada"), credentials.of_service());
        assert!(!credentials.has_own_users() && credentials.of_service().as_deref() == Some("a.b.c"));
        let error = given("a b").credentials().expect_err("not a token").to_string();
        assert!(error.contains("no spaces") && !error.contains("a b"), "{error}");
        let absent = AccessArgs { secret_file: Some("/no/such".into()), ..AccessArgs::default() };
        assert!(absent.credentials().is_err());
    }
}
