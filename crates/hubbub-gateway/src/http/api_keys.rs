//! `/v1/auth`: what a caller may, the cookie of pages, and API keys. Accounts are in [`super::accounts`], revoked tokens in
//! [`super::revocations`].

use std::borrow::Cow;
use std::sync::Arc;

use hubbub_core::invariant::saturate;
use hubbub_core::kv::Condition;
use hubbub_core::text::repeated;
use hubbub_core::{ErrorCode, FieldError, KvOp, KvOutcome, Op, OpBatch, Outcome, Timestamp, UserId};
use hyper::header::{HeaderValue, ORIGIN, SET_COOKIE};
use hyper::{Method, Response, StatusCode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::endpoint::Call;
use super::query::{refuse_faults, require};
use super::types::{Id, Time};
use super::{Answer, Body, json_of, no_content};
use crate::Gateway;
use crate::auth::accounts::{key_of_login, login_of};
use crate::auth::caller::RightsSource;
use crate::auth::credential_records::{StoredKey, key_of_key};
use crate::auth::credential_store::{self, ENTRIES_MAX};
use crate::auth::request_token::{COOKIE_NAME, token_of};
use crate::auth::secrets::make_secret;
use crate::auth::{GrantsText, Scope};
use crate::json::object_of_bytes;
use crate::problem::Problem;

/// Longest life of the cookie, in seconds; a page renews it.
const COOKIE_SECONDS_MAX: i64 = 15 * 60;
/// Longest name and value of a cookie that browsers keep.
const COOKIE_BYTES_MAX: usize = 4_096;
const NAME_CHARS_MAX: usize = 100;
/// Longest life of an API key that has one: ten years, in seconds.
const TTL_MAX: u64 = 10 * 366 * 86_400;

/// Who calls, and what the caller may.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Me {
    /// `null` = the administrator.
    user_id: Option<Id<UserId>>,
    /// Whether the caller may do everything.
    admin: bool,
    /// Whether this server asks for tokens.
    authentication: bool,
    /// When the token ends.
    expires_at: Option<Time>,
    scopes: Vec<Scope>,
    /// Who logged in with a password, and the login; an administrator's account, too.
    #[serde(flatten)]
    login: Option<OwnLogin>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct OwnLogin {
    account: Id<UserId>,
    login_id: String,
}

pub(super) async fn me(call: Call) -> Answer {
    let caller = call.caller()?;
    let access = caller.access();
    json_of(
        StatusCode::OK,
        &Me {
            user_id: caller.user.clone().map(Id),
            admin: caller.is_administrator(),
            authentication: access.source != RightsSource::Anyone,
            expires_at: access.expires_at.map(Time),
            scopes: access.grants.scopes(),
            login: login_of(access)
                .zip(access.subject.clone())
                .map(|(id, account)| OwnLogin { account: Id(account), login_id: id.to_owned() }),
        },
    )
}

/// `POST /v1/auth/session`: the token of the header as a cookie, for event streams, which a page cannot set headers for.
pub(super) async fn open_session(call: Call) -> Answer {
    let (caller, gateway) = (call.caller()?, call.gateway());
    let token = token_of(&Method::POST, call.headers())?.filter(|_| gateway.auth.is_on());
    let Some(token) = token else { return Ok(no_content()) };
    let cookie_bytes = COOKIE_NAME.len() + token.len();
    if cookie_bytes > COOKIE_BYTES_MAX {
        // A browser would drop it and say nothing.
        let rule = format!(
            "is too long for a cookie: {cookie_bytes} bytes with the name, {COOKIE_BYTES_MAX} at most"
        );
        return Err(Problem::invalid(vec![FieldError::new("Authorization", rule)]));
    }
    // For as long as the token lasts and not too long.
    let left = caller.access().expires_at.map_or(COOKIE_SECONDS_MAX, |expires_at| {
        (expires_at.as_micros() - gateway.now().as_micros()) / 1_000_000
    });
    let mut response = no_content();
    write_cookie(&call, token, left.clamp(0, COOKIE_SECONDS_MAX), &mut response);
    Ok(response)
}

/// `DELETE /v1/auth/session`: forgets the cookie, and ends the login of the header, if there is one.
pub(super) async fn close_session(call: Call) -> Answer {
    let caller = match call.caller() {
        // A token that is not valid any more has nothing to end.
        Err(problem) if problem.code == ErrorCode::Unauthorized => None,
        caller => Some(caller?),
    };
    if let Some(id) = caller.as_ref().and_then(|caller| login_of(caller.access())) {
        let op = KvOp::Delete { key: &key_of_login(id), condition: Condition::Always };
        change(call.gateway(), op).await?;
    }
    let mut response = no_content();
    write_cookie(&call, "", 0, &mut response);
    Ok(response)
}

fn write_cookie(call: &Call, token: &str, seconds: i64, response: &mut Response<Body>) {
    let origin = call.headers().get(ORIGIN).and_then(|origin| origin.to_str().ok()).unwrap_or_default();
    // The page says by itself how it came here, whatever stands in between.
    let secure = if origin.starts_with("https://") { "; Secure" } else { "" };
    let cookie =
        format!("{COOKIE_NAME}={token}; Max-Age={seconds}; Path=/; HttpOnly; SameSite=Strict{secure}");
    if let Ok(mut cookie) = HeaderValue::from_str(&cookie) {
        cookie.set_sensitive(true);
        response.headers_mut().insert(SET_COOKIE, cookie);
    }
}

/// What the new API key is for.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(expecting = "an object", rename_all = "camelCase")]
pub(super) struct KeyDraft {
    /// For people.
    #[schemars(length(min = 1, max = NAME_CHARS_MAX))]
    name: String,
    /// Whom the key stands for: the sender of its messages.
    #[schemars(with = "Id")]
    user: String,
    /// Seconds until it ends; without it, it ends when it is revoked.
    #[schemars(range(min = 1, max = TTL_MAX))]
    ttl: Option<u64>,
    #[serde(flatten)]
    grants: GrantsText,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct ApiKey {
    key_id: String,
    name: String,
    user: String,
    created_at: Time,
    /// `null` = when it is revoked.
    expires_at: Option<Time>,
    #[serde(flatten)]
    grants: GrantsText,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct NewApiKey {
    /// Shown once: only a hash is stored.
    api_key: String,
    #[serde(flatten)]
    about: ApiKey,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct ApiKeyList {
    keys: Vec<ApiKey>,
}

impl ApiKey {
    fn of(key_id: String, stored: StoredKey) -> Self {
        let StoredKey { name, user, created_at, expires_at, grants, .. } = stored;
        let (created_at, expires_at) = (Time::from_micros(created_at), expires_at.map(Time::from_micros));
        Self { key_id, name, user, created_at, expires_at, grants }
    }
}

pub(super) async fn create_key(mut call: Call) -> Answer {
    if !call.gateway().auth.is_on() {
        // Everybody could make one here, and it would be valid as soon as tokens are asked for.
        let reason = "this server asks for no tokens, so it makes no API keys: set auth.secret, auth.public_key or \
                      auth.jwks first";
        return Err(Problem::new(ErrorCode::NotSupported, reason));
    }
    let body = call.body().await?;
    let draft: KeyDraft = object_of_bytes(&body)?;
    let gateway = call.gateway();
    let mut faults = Vec::new();
    let name = Some(&draft.name).filter(|name| {
        (1..=NAME_CHARS_MAX).contains(&name.chars().count()) && !name.chars().any(char::is_control)
    });
    require(name, "name", format!("must be 1 to {NAME_CHARS_MAX} characters"), &mut faults);
    require(UserId::new(&draft.user).ok(), "user", hubbub_core::id::ID_RULE, &mut faults);
    if draft.ttl.is_some_and(|ttl| !(1..=TTL_MAX).contains(&ttl)) {
        faults.push(FieldError::new("ttl", format!("must be between 1 and {TTL_MAX}")));
    }
    if let Err(rule) = draft.grants.parse() {
        faults.push(grants_fault(rule));
    }
    refuse_faults(faults)?;
    check_room(gateway, false).await?;
    let now = gateway.now();
    let ttl_ms = draft.ttl.map(|ttl| ttl.saturating_mul(1_000));
    let expires_at = ttl_ms.map(|ttl_ms| {
        Timestamp::from_micros(now.as_micros().saturating_add(saturate(ttl_ms.saturating_mul(1_000))))
    });
    let (id, key, hash) = make_secret(credential_store::PREFIX).ok_or_else(no_random)?;
    let stored = StoredKey::new((draft.name, draft.user), draft.grants, (now, expires_at), hash);
    let value = json_value(&stored)?;
    let op = KvOp::Put { key: &key_of_key(&id), value: &value, ttl_ms, condition: Condition::Absent };
    change(gateway, op).await?;
    tracing::info!(id, name = stored.name, user = stored.user, "an API key was created");
    json_of(StatusCode::CREATED, &NewApiKey { api_key: key, about: ApiKey::of(id, stored) })
}

/// An entry as it is stored.
pub(super) fn json_value(stored: &impl Serialize) -> Result<Vec<u8>, Problem> {
    serde_json::to_vec(stored).map_err(|error| Problem::malformed(&error))
}

pub(super) fn no_random() -> Problem {
    Problem::new(ErrorCode::Internal, "the system gave no random bytes")
}

/// The claim at fault, and its rule.
pub(super) fn grants_fault(text: String) -> FieldError {
    let (claim, rule) = text.split_once(": ").unwrap_or(("", &text));
    let field = ["rooms", "queues", "kv"].into_iter().find(|field| *field == claim).unwrap_or("grants");
    FieldError::new(field, Cow::Owned(rule.to_owned()))
}

/// Refuses one more entry when there are as many as a store may hold. Logins, which everybody with a password makes, take no
/// room from other entries, least of all from revocations.
pub(super) async fn check_room(gateway: &Gateway, is_login: bool) -> Result<(), Problem> {
    // What has expired leaves room.
    gateway.auth.refresh().await?;
    if gateway.auth.credentials.has_room(is_login, ENTRIES_MAX) {
        return Ok(());
    }
    let rule = format!(
        "there are {ENTRIES_MAX} API keys, revocations, accounts and logins; revoke keys that nobody needs"
    );
    Err(Problem::invalid(vec![FieldError::new("keys", rule)]))
}

pub(super) async fn list_keys(call: Call) -> Answer {
    let gateway = call.gateway();
    gateway.auth.refresh().await?;
    let keys =
        gateway.auth.credentials.keys().into_iter().map(|(id, stored)| ApiKey::of(id, stored)).collect();
    json_of(StatusCode::OK, &ApiKeyList { keys })
}

pub(super) async fn revoke_key(call: Call) -> Answer {
    let gateway = call.gateway();
    let id = call.parameter("keyId");
    let unknown = || Problem::new(ErrorCode::NotFound, format!("there is no API key '{}'", repeated(id)));
    if !id.bytes().all(|byte| byte.is_ascii_alphanumeric()) || !(1..=64).contains(&id.len()) {
        return Err(unknown());
    }
    let op = KvOp::Delete { key: &key_of_key(id), condition: Condition::Always };
    match change(gateway, op).await? {
        KvOutcome::Deleted { revision: Some(_) } => {
            tracing::info!(id, "an API key was revoked");
            Ok(no_content())
        }
        _ => Err(unknown()),
    }
}

/// Makes a change durable, and has this server go by it before it is answered.
pub(super) async fn change(gateway: &Arc<Gateway>, op: KvOp<'_>) -> Result<KvOutcome, Problem> {
    change_all(gateway, &[op]).await?.pop().ok_or_else(Problem::no_outcome)
}

/// The same of several changes in one batch; the first that is refused is the answer.
pub(super) async fn change_all(
    gateway: &Arc<Gateway>,
    changes: &[KvOp<'_>],
) -> Result<Vec<KvOutcome>, Problem> {
    let mut ops = OpBatch::default();
    changes.iter().for_each(|op| ops.push(&Op::Kv(*op)));
    let gateway = gateway.clone();
    // A task of its own: when the client hangs up meanwhile, this server goes by the change all the same.
    let changing = tokio::spawn(async move {
        let applied = gateway.apply(&ops).await?;
        gateway.auth.refresh().await?;
        Ok::<_, Problem>(applied)
    });
    let applied = changing.await.map_err(|_| Problem::no_outcome())??;
    let outcomes = applied.outcomes().iter().map(|outcome| match outcome {
        Outcome::Kv(outcome) => Ok(*outcome),
        Outcome::Refused(refusal) => Err(Problem::refusal(*refusal)),
        _ => Err(Problem::no_outcome()),
    });
    outcomes.collect()
}
