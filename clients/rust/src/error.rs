//! Refusals by the server, and failures to reach it.

use std::fmt;
use std::ops::Deref;
use std::time::Duration;

use serde::Deserialize;

/// A refusal by the server, or a failure to reach it. Decide by [`Problem::code`]; the codes are in `docs/api.md`.
///
/// Codes of this crate: `unreachable` (no connection, or no answer), `closed`, `queue_full`, `protocol` (a success that is
/// not what a Hubbub server answers), `unexpected` (a refusal that is not of one, and whose status says no more) and, of
/// what cannot be sent at all, `invalid`.
#[derive(Debug, Clone)]
pub struct Error(Box<Problem>);

/// What an [`Error`] says.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Problem {
    /// What it is, for programs.
    pub code: String,
    /// The same for people.
    pub detail: String,
    /// Whether the same may succeed later.
    pub retryable: bool,
    /// Status of the answer; 0 if there was none.
    pub status: u16,
    /// Fields that break a rule.
    pub errors: Vec<Fault>,
    /// Where a cursor that cannot be honoured may go on.
    pub epoch: String,
    /// Oldest position that is kept.
    pub oldest: u64,
    /// Newest position.
    pub head: u64,
    /// What a key has that does not meet a condition.
    pub revision: u64,
    /// An earlier attempt of the same call went unanswered, and may have taken effect.
    #[serde(skip)]
    pub is_open: bool,
    /// How long the server asks to wait.
    #[serde(skip)]
    pub retry_after: Duration,
    /// Content type of an answer that is not of a Hubbub server, or has no body; empty if it named none. `None` for the
    /// server's own errors.
    #[serde(skip)]
    pub content_type: Option<String>,
}

/// A rule that a field breaks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Fault {
    /// The field.
    pub field: String,
    /// The rule.
    pub rule: String,
}

impl Deref for Error {
    type Target = Problem;

    fn deref(&self) -> &Problem {
        &self.0
    }
}

impl From<Problem> for Error {
    fn from(problem: Problem) -> Self {
        Self(Box::new(problem))
    }
}

impl std::error::Error for Error {}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Problem { code, detail, errors, .. } = &*self.0;
        let faults: Vec<String> =
            errors.iter().map(|fault| format!("{} {}", fault.field, fault.rule)).collect();
        let text = if faults.is_empty() { detail } else { &faults.join("; ") };
        if code == UNREACHABLE { f.write_str(text) } else { write!(f, "{text} ({code})") }
    }
}

const UNREACHABLE: &str = "unreachable";

impl Error {
    pub(crate) fn new(code: &str, detail: impl Into<String>) -> Self {
        Problem { code: code.to_owned(), detail: detail.into(), ..Problem::default() }.into()
    }

    /// Nobody knows whether the server got it.
    pub(crate) fn unreachable(detail: impl Into<String>) -> Self {
        let detail = detail.into();
        Problem { code: UNREACHABLE.to_owned(), detail, retryable: true, ..Problem::default() }.into()
    }

    /// An answer that is not the server's, whatever its status: a proxy's page, for instance.
    pub(crate) fn strange(why: impl fmt::Display) -> Self {
        Self::new("protocol", format!("the server's answer is not what is expected: {why}"))
    }

    pub(crate) fn closed() -> Self {
        Self::new("closed", "the client was closed, or the server refused it")
    }

    /// Whether it has this code.
    pub fn is(&self, code: &str) -> bool {
        self.code == code
    }

    /// The token was refused, by the server or by a proxy.
    pub(crate) fn is_unauthorized(&self) -> bool {
        self.is("unauthorized") || self.status == 401
    }

    /// Nobody knows whether the request took effect. A proxy's error (`unexpected`) says nothing of what the server did.
    pub(crate) fn leaves_open(&self) -> bool {
        ["unconfirmed", "internal", "unexpected", UNREACHABLE].contains(&self.code.as_str())
    }

    pub(crate) fn with(mut self, change: impl FnOnce(&mut Problem)) -> Self {
        change(&mut self.0);
        self
    }
}
