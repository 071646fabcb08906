//! `/v1/auth/login` and `/v1/auth/logins`: people give a password, and see where they are logged in.
//!
//! A password is tried only after the attempt was counted. Names without an account are answered as wrong passwords are, and
//! take as long.

use std::net::IpAddr;

use hubbub_core::kv::Condition;
use hubbub_core::text::repeated;
use hubbub_core::{ErrorCode, FieldError, KvOp, LogLimit, UserId};
use hyper::StatusCode;
use hyper::header::USER_AGENT;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::accounts::{BODY_BYTES_MAX, logging_in};
use super::api_keys::{change, change_all, check_room, json_value, no_random};
use super::endpoint::Call;
use super::query::{cut, refuse_faults, require};
use super::types::{Id, Time};
use super::{Answer, json_of, no_content};
use crate::Gateway;
use crate::auth::accounts::{self, StoredAccount, StoredLogin, key_of_login};
use crate::auth::caller::Requirement;
use crate::auth::passwords::PASSWORD_CHARS;
use crate::auth::secrets::make_secret;
use crate::json::object_of_bytes;
use crate::problem::Problem;

/// What is kept of a browser's name for itself.
const AGENT_CHARS_MAX: usize = 200;

/// How people may log in here.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct WaysToLogIn {
    /// With name and password.
    accounts: bool,
}

pub(super) async fn ways_to_log_in(call: Call) -> Answer {
    json_of(StatusCode::OK, &WaysToLogIn { accounts: call.gateway().auth.logging_in.is_some() })
}

/// Who logs in.
#[derive(Deserialize, JsonSchema)]
#[serde(expecting = "an object", deny_unknown_fields)]
pub(super) struct LoginDraft {
    #[schemars(with = "Id")]
    user: String,
    password: String,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct NewLogin {
    /// Shown once. Use it like any token.
    token: String,
    login_id: String,
    user: Id<UserId>,
    /// Whether the account may do everything.
    admin: bool,
    expires_at: Time,
}

/// `POST /v1/auth/login`
pub(super) async fn log_in(mut call: Call) -> Answer {
    logging_in(call.gateway())?;
    let body = call.body_up_to(BODY_BYTES_MAX).await?;
    let LoginDraft { user, password } = object_of_bytes(&body)?;
    let mut faults = Vec::new();
    let user = require(UserId::new(&user).ok(), "user", hubbub_core::id::ID_RULE, &mut faults);
    if password.chars().count() > *PASSWORD_CHARS.end() {
        faults.push(FieldError::new("password", "must be the account's password"));
    }
    refuse_faults(faults)?;
    let Some(user) = user else { return Err(Problem::no_outcome()) };
    let gateway = call.gateway();
    let account = try_password(&call, &user, password).await?;
    let Some(account) = account else {
        gateway.metrics.logins_refused.inc();
        return Err(Problem::new(ErrorCode::Unauthorized, "the name or the password is wrong"));
    };
    let (id, token) = begin_login(&call, &account).await?;
    // The account may have been removed, or changed, since its password was compared.
    let access = gateway.auth.verify(&token)?;
    gateway.metrics.logins.inc();
    tracing::info!(user = account.user, id, "somebody logged in");
    let login = NewLogin {
        token,
        login_id: id,
        user: Id(user),
        admin: access.grants.is_admin,
        expires_at: Time(access.expires_at.unwrap_or_else(|| gateway.now())),
    };
    json_of(StatusCode::OK, &login)
}

/// The account of this name, if the password is right. Counts the attempt first.
pub(super) async fn try_password(
    call: &Call,
    user: &UserId,
    password: String,
) -> Result<Option<StoredAccount>, Problem> {
    let gateway = call.gateway();
    let logging_in = logging_in(gateway)?;
    let counted = logging_in.attempts.count(user, address_of(call), gateway.clock.monotonic());
    if let Err(exceeded) = counted {
        gateway.metrics.logins_limited.inc();
        return Err(exceeded.into());
    }
    gateway.auth.refresh().await?;
    let account = gateway.auth.credentials.account(user.as_str());
    let hash = account.as_ref().map(|account| account.hash.clone());
    let is_right = logging_in.passwords.verify(password, hash).await?;
    if account.is_none() || !is_right {
        log_refused(gateway, user, address_of(call));
    }
    Ok(account.filter(|_| is_right))
}

/// Whoever guesses is seen, but fills no log.
fn log_refused(gateway: &Gateway, user: &UserId, address: IpAddr) {
    static LINES: LogLimit = LogLimit::new();
    let user = user.as_str();
    match LINES.next(gateway.clock.monotonic()) {
        None => {}
        Some(0) => tracing::info!(user, %address, "a wrong name or password"),
        Some(left_out) => {
            tracing::info!(user, %address, left_out, "a wrong name or password, and others before it")
        }
    }
}

fn address_of(call: &Call) -> IpAddr {
    call.gateway().rates.client_address(call.peer.address, call.headers()).to_canonical()
}

/// Stores a login of an account, and deletes what it replaces. Its id and its token.
async fn begin_login(call: &Call, account: &StoredAccount) -> Result<(String, String), Problem> {
    let gateway = call.gateway();
    check_room(gateway, true).await?;
    let lifetime = logging_in(gateway)?.lifetime;
    let (id, token, hash) = make_secret(accounts::PREFIX).ok_or_else(no_random)?;
    let agent = call.headers().get(USER_AGENT).and_then(|agent| agent.to_str().ok()).unwrap_or_default();
    let stored = StoredLogin {
        address: address_of(call).to_string(),
        agent: agent.chars().take(AGENT_CHARS_MAX).collect(),
        ..StoredLogin::new(account, (gateway.now(), lifetime), hash)
    };
    let ttl_ms = Some(hubbub_core::invariant::saturate(lifetime.as_millis()));
    let value = json_value(&stored)?;
    let surplus: Vec<Vec<u8>> =
        gateway.auth.credentials.surplus_logins(&account.user).iter().map(|id| key_of_login(id)).collect();
    let key = key_of_login(&id);
    let mut ops = vec![KvOp::Put { key: &key, value: &value, ttl_ms, condition: Condition::Absent }];
    ops.extend(surplus.iter().map(|key| KvOp::Delete { key, condition: Condition::Always }));
    change_all(gateway, &ops).await?;
    Ok((id, token))
}

/// Where somebody is logged in.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Login {
    login_id: String,
    user: String,
    created_at: Time,
    expires_at: Time,
    /// Of the client, as far as the proxies in between are trusted.
    address: String,
    /// What the browser called itself.
    user_agent: String,
}

/// In the order of their ids.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct LoginList {
    logins: Vec<Login>,
    /// The `after` of the next page; `null` at the end.
    next: Option<String>,
}

/// `GET /v1/auth/logins`: for administrators those of everybody, or of one user; for who is logged in, those of the account.
pub(super) async fn list_logins(call: Call) -> Answer {
    let (gateway, caller) = (call.gateway(), call.caller()?);
    let mut faults = Vec::new();
    let wanted = call.query.id("user", UserId::new, &mut faults);
    refuse_faults(faults)?;
    let (after, limit) = call.page(UserId::new)?;
    let user = wanted.or_else(|| caller.user.clone());
    if let Some(user) = &user {
        caller.may(Requirement::Logins(user.as_str()))?;
    }
    logging_in(gateway)?;
    gateway.auth.refresh().await?;
    let (user, after) = (user.as_ref().map(UserId::as_str), after.as_ref().map(UserId::as_str));
    let logins = gateway.auth.credentials.logins(user, after, limit.saturating_add(1));
    let (logins, next) = cut(logins, limit, |(id, _)| id.clone());
    let of = |(login_id, stored): (String, StoredLogin)| {
        let StoredLogin { user, created_at, expires_at, address, agent: user_agent, .. } = stored;
        Login {
            login_id,
            user,
            created_at: Time::from_micros(created_at),
            expires_at: Time::from_micros(expires_at),
            address,
            user_agent,
        }
    };
    json_of(StatusCode::OK, &LoginList { logins: logins.into_iter().map(of).collect(), next })
}

/// `DELETE /v1/auth/logins/{loginId}`
pub(super) async fn end_login(call: Call) -> Answer {
    let (gateway, caller, id) = (call.gateway(), call.caller()?, call.parameter("loginId"));
    logging_in(gateway)?;
    gateway.auth.refresh().await?;
    let user = gateway.auth.credentials.login_by_id(id).map(|login| login.user);
    // Nobody is told of the logins of others.
    let user = user.filter(|user| caller.is_allowed(Requirement::Logins(user)));
    let unknown = || Problem::new(ErrorCode::NotFound, format!("there is no login '{}'", repeated(id)));
    let user = user.ok_or_else(unknown)?;
    change(gateway, KvOp::Delete { key: &key_of_login(id), condition: Condition::Always }).await?;
    tracing::info!(user, id, "a login was ended");
    Ok(no_content())
}
