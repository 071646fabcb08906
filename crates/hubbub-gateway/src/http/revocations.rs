//! `/v1/auth/revocations`: tokens that are not valid any more.

use std::sync::Arc;

use hubbub_core::invariant::saturate;
use hubbub_core::kv::{Condition, TTL_MS_MAX};
use hubbub_core::store::ReadError;
use hubbub_core::{ErrorCode, FieldError, KvOp, Timestamp, UserId};
use hyper::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::api_keys::{change, check_room, json_value};
use super::endpoint::Call;
use super::query::{refuse_faults, require};
use super::types::{Id, Time};
use super::{Answer, json_of};
use crate::Gateway;
use crate::auth::credential_records::{Revoked, StoredRevocation};
use crate::json::object_of_bytes;
use crate::problem::Problem;

const JTI_BYTES_MAX: usize = 256;

/// How often a revocation is written that others of the same token or user overtake. One of them succeeds each time.
const ATTEMPTS_MAX: usize = 100;

/// Which tokens are not valid any more: one, or all of a user that were issued before a time.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(expecting = "an object", deny_unknown_fields)]
pub(super) struct RevocationDraft {
    /// The token's `jti`.
    jti: Option<String>,
    /// Instead: the user (`sub`).
    #[schemars(with = "Option<Id>")]
    user: Option<String>,
    /// With `user`: tokens issued before this, which may be in the future; without it, until now, and `auth.leeway` longer.
    #[schemars(with = "Option<Time>")]
    before: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Revocation {
    #[serde(skip_serializing_if = "Option::is_none")]
    jti: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<String>,
    /// Tokens of the user issued before this are revoked.
    #[serde(skip_serializing_if = "Option::is_none")]
    before: Option<Time>,
}

impl From<(Revoked, StoredRevocation)> for Revocation {
    fn from((of, stored): (Revoked, StoredRevocation)) -> Self {
        let StoredRevocation { subject, before } = stored;
        match of {
            Revoked::Token => Self { jti: Some(subject), user: None, before: None },
            Revoked::User => {
                let before = Some(Time::from_micros(before));
                Self { jti: None, user: Some(subject), before }
            }
        }
    }
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct RevocationList {
    revocations: Vec<Revocation>,
}

pub(super) async fn revoke_tokens(mut call: Call) -> Answer {
    let body = call.body().await?;
    let draft: RevocationDraft = object_of_bytes(&body)?;
    let gateway = call.gateway();
    let mut faults = Vec::new();
    let before = draft.before.as_deref().map(|text| {
        require(Timestamp::parse(text), "before", hubbub_core::time::TIMESTAMP_RULE, &mut faults)
    });
    let (of, subject) = match (draft.jti, draft.user) {
        (Some(jti), None) if draft.before.is_none() && (1..=JTI_BYTES_MAX).contains(&jti.len()) => {
            (Revoked::Token, jti)
        }
        (None, Some(user)) => {
            require(UserId::new(&user).ok(), "user", hubbub_core::id::ID_RULE, &mut faults);
            (Revoked::User, user)
        }
        _ => {
            let rule =
                format!("must be 1 to {JTI_BYTES_MAX} bytes; or give a user instead, and perhaps before");
            return Err(Problem::invalid(vec![FieldError::new("jti", rule)]));
        }
    };
    refuse_faults(faults)?;
    check_room(gateway, false).await?;
    let before = match of {
        Revoked::Token => 0,
        Revoked::User => before.flatten().unwrap_or_else(|| until_now(gateway)).as_micros(),
    };
    let stored = revoke(gateway, of, StoredRevocation { subject, before }).await?;
    tracing::info!(subject = stored.subject, "tokens were revoked");
    json_of(StatusCode::CREATED, &Revocation::from((of, stored)))
}

/// After every time at which a token may have been issued that there is now, by clocks that are ahead of this server's by as much
/// as tokens may be.
fn until_now(gateway: &Gateway) -> Timestamp {
    let now = gateway.store.kv_now().map_or(gateway.now(), |database| database.max(gateway.now()));
    gateway.auth.latest_issue(now)
}

/// Makes a revocation durable. What is revoked stays revoked: of several revocations of a user the latest time counts, also if
/// they come together. Returns what is revoked now.
async fn revoke(
    gateway: &Arc<Gateway>,
    of: Revoked,
    wanted: StoredRevocation,
) -> Result<StoredRevocation, Problem> {
    let key = of.key(&wanted.subject);
    for _ in 0..ATTEMPTS_MAX {
        let (known, condition) = known_before(gateway, of, &wanted.subject).await?;
        let before = match of {
            Revoked::Token => wanted.before,
            Revoked::User => wanted.before.max(known),
        };
        let stored = StoredRevocation { before, ..wanted.clone() };
        let (value, ttl_ms) = (json_value(&stored)?, Some(kept_ms(gateway, before)));
        match change(gateway, KvOp::Put { key: &key, value: &value, ttl_ms, condition }).await {
            Err(problem) if problem.code == ErrorCode::ConditionFailed => {}
            done => return done.map(|_| stored),
        }
    }
    Err(Problem::new(
        ErrorCode::Unavailable,
        "too many revocations of the same token or user at once; try again",
    ))
}

/// Up to when tokens of the subject are revoked already, in microseconds since 1970, and the condition under which that is so.
async fn known_before(gateway: &Gateway, of: Revoked, subject: &str) -> Result<(i64, Condition), Problem> {
    let (list, now) = (&gateway.auth.credentials, until_now(gateway).as_micros());
    let (stored, condition) = match gateway.store.value(&of.key(subject)).await {
        Ok(None) => (None, Condition::Absent),
        Ok(Some(entry)) => {
            let stored = serde_json::from_slice::<StoredRevocation>(&entry.value);
            // Nobody can read until when.
            (Some(stored.map_or(now, |stored| stored.before)), Condition::Is(entry.revision))
        }
        Err(ReadError::Damaged { .. }) => (Some(now), Condition::Always),
        Err(error) => return Err(error.into()),
    };
    let in_memory = list.revocation(of, subject).map(|known| known.before);
    let may_be_hidden = list.is_unreadable(of, subject).then_some(now);
    let known = [stored, in_memory, may_be_hidden].into_iter().flatten().max();
    Ok((known.unwrap_or(i64::MIN), condition))
}

/// How long a revocation is kept, in milliseconds: until no token can be valid any more that was issued before then. At most as
/// long as any key may be.
fn kept_ms(gateway: &Gateway, before: i64) -> u64 {
    let lifetime_ms: u64 = saturate(gateway.auth.lifetime_max().as_millis());
    let ahead: u64 = saturate(before.saturating_sub(gateway.now().as_micros()));
    lifetime_ms.saturating_add(ahead.div_ceil(1_000)).min(TTL_MS_MAX)
}

pub(super) async fn list_revocations(call: Call) -> Answer {
    let gateway = call.gateway();
    gateway.auth.refresh().await?;
    let revocations = gateway.auth.credentials.revocations().into_iter().map(Revocation::from).collect();
    json_of(StatusCode::OK, &RevocationList { revocations })
}

#[cfg(test)]
#[path = "revocations_tests.rs"]
mod tests;
