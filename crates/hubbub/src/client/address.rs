//! The address of a server, and the token it is called with.

use std::fs::File;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, bail};
use hubbub_client::{Address, Client, Options};

use crate::output::notice;

/// The variable with a token.
const TOKEN: &str = "HUBBUB_TOKEN";
/// The variable with a file of certificates to trust.
const AUTHORITIES: &str = "SSL_CERT_FILE";

/// Pauses between attempts, and how long and how often a request is repeated that may be.
const PAUSES: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(1)];
const PATIENCE: Duration = Duration::from_secs(3);
/// The same for work that may take hours.
const PATIENCE_LONG: Duration = Duration::from_secs(180);
const ATTEMPTS_MIN: u32 = 6;

/// Longest time for an answer.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);

/// A server's address, as `--server` names it, and what says there who calls.
#[derive(Debug, Clone)]
pub(crate) struct Server {
    address: Address,
    options: Options,
}

impl FromStr for Server {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let [backoff_first, backoff_max] = PAUSES;
        let options = Options {
            backoff_first,
            backoff_max,
            patience: PATIENCE,
            attempts_min: ATTEMPTS_MIN,
            answer_max: TIMEOUT,
            ..Options::default()
        };
        let refused = |error: hubbub_client::Error| {
            format!("{}, HOST:PORT, or PORT alone for this machine", error.detail)
        };
        let address = text.parse().map_err(refused)?;
        Ok(Self { address, options })
    }
}

impl Server {
    /// Calls the server with the token of a file, else of the environment, if there is one.
    pub(crate) fn with_token(mut self, file: Option<&Path>) -> anyhow::Result<Self> {
        self.check_authorities()?;
        self.options.token = token(file)?;
        if self.has_token() && self.address.shows_secrets() {
            notice(&format!(
                "the token goes to {} without encryption: everybody on the way can read and use it; use https://",
                self.url()
            ));
        }
        Ok(self)
    }

    /// Otherwise a file that cannot be read would trust nobody, and look like a bad certificate.
    fn check_authorities(&self) -> anyhow::Result<()> {
        let Some(file) = std::env::var_os(AUTHORITIES).filter(|_| self.url().starts_with("https://")) else {
            return Ok(());
        };
        let opened = File::open(&file);
        opened.with_context(|| format!("{AUTHORITIES}: reading {}", Path::new(&file).display()))?;
        Ok(())
    }

    /// Calls the server as this user, where it asks for no tokens.
    pub(crate) fn with_user(mut self, user: String) -> Self {
        self.options.user = Some(user);
        self
    }

    /// Bears that the server restarts meanwhile.
    pub(crate) fn with_long_patience(mut self) -> Self {
        self.options.patience = PATIENCE_LONG;
        self
    }

    /// Whether the token says who calls.
    pub(crate) fn has_token(&self) -> bool {
        self.options.token.is_some()
    }

    /// The address as a URL.
    pub(crate) fn url(&self) -> String {
        self.address.to_string()
    }

    /// A client of it.
    pub(crate) fn client(&self) -> Client {
        Client::of(self.address.clone(), self.options.clone())
    }
}

/// The token of a file, else of the environment.
fn token(file: Option<&Path>) -> anyhow::Result<Option<String>> {
    let token = match file {
        Some(file) => std::fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?,
        None => std::env::var(TOKEN).unwrap_or_default(),
    };
    let token = token.trim();
    if let Some(file) = file.filter(|_| token.is_empty()) {
        // Else the call would be that of somebody without a token, who may be the administrator.
        bail!("--token-file {}: the file has no token in it", file.display());
    }
    if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        bail!("--token-file or {TOKEN}: a token has no spaces and nothing beyond ASCII");
    }
    Ok(Some(token).filter(|token| !token.is_empty()).map(str::to_owned))
}
