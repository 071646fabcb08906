//! Who calls. Without authentication the caller says so itself; none = administrator.

use hubbub_core::UserId;
use hubbub_core::id::ID_RULE;
use hubbub_core::{ErrorCode, Fault};
use hyper::HeaderMap;

use crate::http::query::Query;
use crate::problem::Problem;

/// The header that names the caller.
const USER_HEADER: &str = "hubbub-user";

/// On whose behalf a request or a socket acts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Caller {
    /// `None` = administrator, who may speak for anybody.
    pub(crate) user: Option<UserId>,
}

impl Caller {
    /// From the header `Hubbub-User`, else from `?user=`.
    pub(crate) fn of(headers: &HeaderMap, query: &Query) -> Result<Self, Problem> {
        let header = headers.get(USER_HEADER).map(|value| value.to_str().unwrap_or_default());
        let Some(name) = header.or(query.get("user")) else { return Ok(Self::default()) };
        let user = UserId::new(name).map_err(|_| Problem::invalid(vec![Fault::new("user", ID_RULE)]))?;
        Ok(Self { user: Some(user) })
    }

    pub(crate) fn as_str(&self) -> Option<&str> {
        self.user.as_ref().map(UserId::as_str)
    }

    /// Refuses a message in somebody else's name.
    pub(crate) fn check_sender(&self, sender: &str) -> Result<(), Problem> {
        match self.as_str() {
            Some(user) if user != sender => {
                let rule = format!("must be the caller, '{user}'");
                Err(Problem {
                    faults: vec![Fault::new("userId", rule)],
                    ..Problem::new(ErrorCode::Invalid, "")
                })
            }
            _ => Ok(()),
        }
    }
}
