//! The caller of a request. Without authentication callers name themselves; without a name they are the administrator.

use hubbub_core::UserId;
use hubbub_core::id::ID_RULE;
use hubbub_core::{ErrorCode, FieldError};
use hyper::HeaderMap;
use hyper::header::{HOST, ORIGIN};

use crate::http::query::Query;
use crate::problem::Problem;

const USER_HEADER: &str = "hubbub-user";

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Caller {
    /// `None` = the administrator, who may act for anybody.
    pub(crate) user: Option<UserId>,
}

impl Caller {
    /// From the header `Hubbub-User`, else from `?user=`.
    pub(crate) fn of(headers: &HeaderMap, query: &Query) -> Result<Self, Problem> {
        let header = headers.get(USER_HEADER).map(|value| value.to_str().unwrap_or_default());
        let Some(name) = header.or(query.get("user")) else { return Ok(Self::default()) };
        let user = UserId::new(name).map_err(|_| Problem::invalid(vec![FieldError::new("user", ID_RULE)]))?;
        Ok(Self { user: Some(user) })
    }

    pub(crate) fn as_str(&self) -> Option<&str> {
        self.user.as_ref().map(UserId::as_str)
    }

    pub(crate) fn check_administrator(&self) -> Result<(), Problem> {
        match self.as_str() {
            None => Ok(()),
            Some(user) => {
                Err(Problem::new(ErrorCode::Forbidden, format!("only the administrator may, not '{user}'")))
            }
        }
    }

    /// Refuses to take part in queues in somebody else's name.
    pub(crate) fn check_client(&self, client: &str) -> Result<(), Problem> {
        match self.as_str() {
            Some(user) if user != client => {
                let detail = format!("'{user}' may not act as '{client}'");
                Err(Problem::new(ErrorCode::Forbidden, detail))
            }
            _ => Ok(()),
        }
    }

    /// Refuses a message in somebody else's name.
    pub(crate) fn check_sender(&self, sender: &str) -> Result<(), Problem> {
        match self.as_str() {
            Some(user) if user != sender => {
                let rule = format!("must be the caller, '{user}'");
                Err(Problem {
                    faults: vec![FieldError::new("userId", rule)],
                    ..Problem::new(ErrorCode::Invalid, "")
                })
            }
            _ => Ok(()),
        }
    }
}

/// Refuses requests that a page of another site has a browser send. Callers need not authenticate, so being reachable from
/// a browser must not be enough. Programs other than browsers send no `Origin`.
pub(crate) fn check_origin(headers: &HeaderMap, allowed: &[String]) -> Result<(), Problem> {
    let Some(origin) = headers.get(ORIGIN) else { return Ok(()) };
    let origin = origin.to_str().unwrap_or_default();
    let host = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let site = origin.split_once("://").map_or("", |(_, site)| site);
    let is_own = !site.is_empty() && site.eq_ignore_ascii_case(host);
    if is_own || allowed.iter().any(|other| other.eq_ignore_ascii_case(origin)) {
        return Ok(());
    }
    let detail = format!("pages of {origin} may not act here; server.allowed_origins lists those that may");
    Err(Problem::new(ErrorCode::Forbidden, detail))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_other_sites_are_refused() {
        let check = |origin: Option<&str>, host: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(HOST, host.parse().unwrap());
            if let Some(origin) = origin {
                headers.insert(ORIGIN, origin.parse().unwrap());
            }
            check_origin(&headers, &["https://chat.example".to_owned()]).is_ok()
        };
        assert!(check(None, "127.0.0.1:8080"));
        assert!(check(Some("http://127.0.0.1:8080"), "127.0.0.1:8080"));
        assert!(check(Some("https://chat.example"), "127.0.0.1:8080"));
        for origin in
            ["http://evil.example", "http://127.0.0.1:8081", "null", "", "https://chat.example.evil"]
        {
            assert!(!check(Some(origin), "127.0.0.1:8080"), "{origin}");
        }
    }
}
