//! `/v1/auth/accounts`: accounts with passwords. Logging in with them is in [`super::logins`].

use std::collections::BTreeMap;
use std::sync::Arc;

use hubbub_core::kv::Condition;
use hubbub_core::{ErrorCode, FieldError, KvOp, KvOutcome, UserId};
use hyper::StatusCode;
use schemars::JsonSchema;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use super::api_keys::{change, change_all, check_room, grants_fault, json_value, no_random};
use super::endpoint::Call;
use super::logins::try_password;
use super::query::{cut, refuse_faults, require};
use super::types::{Id, Time};
use super::{Answer, json_of, no_content};
use crate::Gateway;
use crate::auth::GrantsText;
use crate::auth::accounts::{LoggingIn, StoredAccount, key_of_account, key_of_login, login_of};
use crate::auth::passwords::PASSWORD_CHARS;
use crate::auth::secrets::make_id;
use crate::json::object_of_bytes;
use crate::problem::Problem;

/// A name and two passwords, or what an account may do.
pub(super) const BODY_BYTES_MAX: usize = 64 * 1024;

/// What logging in takes; refused where accounts are off.
pub(super) fn logging_in(gateway: &Gateway) -> Result<&LoggingIn, Problem> {
    let off =
        || Problem::new(ErrorCode::NotSupported, "this server has no accounts; auth.accounts turns them on");
    gateway.auth.logging_in.as_ref().ok_or_else(off)
}

/// The new account.
#[derive(Deserialize, JsonSchema)]
#[serde(expecting = "an object", rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct AccountDraft {
    /// Its name, and the sender of its messages.
    #[schemars(with = "Id")]
    user: String,
    #[schemars(length(min = *PASSWORD_CHARS.start(), max = *PASSWORD_CHARS.end()))]
    password: String,
    /// Where nothing is said of rights, it may read and write in all rooms that are open to it; `{"rooms": {}}` is no right.
    #[serde(flatten)]
    grants: GrantsText,
}

/// What the account may do from now on, and nothing else.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(expecting = "an object", deny_unknown_fields)]
pub(super) struct RightsDraft {
    #[serde(flatten)]
    grants: GrantsText,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Account {
    user: String,
    created_at: Time,
    password_changed_at: Time,
    #[serde(flatten)]
    grants: GrantsText,
}

/// By name.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct AccountList {
    accounts: Vec<Account>,
    /// The `after` of the next page; `null` at the end.
    next: Option<String>,
}

impl From<StoredAccount> for Account {
    fn from(stored: StoredAccount) -> Self {
        let StoredAccount { user, created_at, password_at, grants, .. } = stored;
        Self {
            user,
            created_at: Time::from_micros(created_at),
            password_changed_at: Time::from_micros(password_at),
            grants,
        }
    }
}

/// What a new account may of which nothing else is said: rooms that are for members ask for membership on top.
fn default_grants() -> GrantsText {
    GrantsText { rooms: BTreeMap::from([("*".to_owned(), "rw".to_owned())]), ..GrantsText::default() }
}

/// Whether the draft of an account says anything of rights.
fn says_rights(body: &[u8]) -> Result<bool, Problem> {
    let members: BTreeMap<String, IgnoredAny> = object_of_bytes(body)?;
    Ok(members.keys().any(|name| !matches!(&**name, "user" | "password")))
}

fn check_password(password: &str, field: &'static str, faults: &mut Vec<FieldError>) {
    if !PASSWORD_CHARS.contains(&password.chars().count()) {
        let (least, most) = (PASSWORD_CHARS.start(), PASSWORD_CHARS.end());
        faults.push(FieldError::new(field, format!("must be {least} to {most} characters")));
    }
}

fn check_grants(grants: &GrantsText, faults: &mut Vec<FieldError>) {
    if let Err(rule) = grants.parse() {
        faults.push(grants_fault(rule));
    }
}

/// `POST /v1/auth/accounts`
pub(super) async fn add_account(mut call: Call) -> Answer {
    logging_in(call.gateway())?;
    let body = call.body_up_to(BODY_BYTES_MAX).await?;
    let AccountDraft { user, password, grants } = object_of_bytes(&body)?;
    let grants = if says_rights(&body)? { grants } else { default_grants() };
    let mut faults = Vec::new();
    require(UserId::new(&user).ok(), "user", hubbub_core::id::ID_RULE, &mut faults);
    check_password(&password, "password", &mut faults);
    check_grants(&grants, &mut faults);
    refuse_faults(faults)?;
    let gateway = call.gateway();
    check_room(gateway, false).await?;
    let hash = logging_in(gateway)?.passwords.hash(password).await?;
    // Hashes may wait for others.
    call.check_token().await?;
    let (id, now) = (make_id().ok_or_else(no_random)?, gateway.now().as_micros());
    let stored = StoredAccount {
        user,
        id,
        generation: 1,
        kept: None,
        hash,
        created_at: now,
        password_at: now,
        grants,
    };
    let (key, value) = (key_of_account(&stored.user), json_value(&stored)?);
    let op = KvOp::Put { key: &key, value: &value, ttl_ms: None, condition: Condition::Absent };
    change(gateway, op).await.map_err(|problem| match problem.code {
        ErrorCode::ConditionFailed => {
            Problem { detail: "there is an account of this name already".into(), ..problem }
        }
        _ => problem,
    })?;
    tracing::info!(user = stored.user, "an account was added");
    json_of(StatusCode::CREATED, &Account::from(stored))
}

pub(super) async fn list_accounts(call: Call) -> Answer {
    let (gateway, (after, limit)) = (call.gateway(), call.page(UserId::new)?);
    logging_in(gateway)?;
    gateway.auth.refresh().await?;
    let accounts =
        gateway.auth.credentials.accounts(after.as_ref().map(UserId::as_str), limit.saturating_add(1));
    let (accounts, next) = cut(accounts, limit, |last| last.user.clone());
    let accounts = accounts.into_iter().map(Account::from).collect();
    json_of(StatusCode::OK, &AccountList { accounts, next })
}

fn no_account(user: &str) -> Problem {
    Problem::new(ErrorCode::NotFound, format!("there is no account '{user}'"))
}

/// `PUT /v1/auth/accounts/{user}`
pub(super) async fn set_rights(mut call: Call) -> Answer {
    logging_in(call.gateway())?;
    let body = call.body_up_to(BODY_BYTES_MAX).await?;
    let RightsDraft { grants } = object_of_bytes(&body)?;
    let mut faults = Vec::new();
    check_grants(&grants, &mut faults);
    refuse_faults(faults)?;
    let (user, gateway) = (call.user()?, call.gateway());
    let stored = update(gateway, &user, |stored| {
        (stored.grants, stored.kept) = (grants, None);
        true
    })
    .await?;
    tracing::info!(user = stored.user, "the rights of an account were changed");
    json_of(StatusCode::OK, &Account::from(stored))
}

/// Changes an account, which ends its logins but the one it keeps. `change` says whether it is still the account that is
/// meant.
async fn update(
    gateway: &Arc<Gateway>,
    user: &UserId,
    change_it: impl FnOnce(&mut StoredAccount) -> bool,
) -> Result<StoredAccount, Problem> {
    let key = key_of_account(user.as_str());
    let unknown = || no_account(user.as_str());
    let entry = gateway.store.value(&key).await?.ok_or_else(unknown)?;
    let mut stored: StoredAccount = serde_json::from_slice(&entry.value).map_err(|_| unknown())?;
    if !change_it(&mut stored) {
        return Err(Problem::new(ErrorCode::ConditionFailed, "the account was changed meanwhile; try again"));
    }
    stored.generation = stored.generation.saturating_add(1);
    let value = json_value(&stored)?;
    let condition = Condition::Is(entry.revision);
    change(gateway, KvOp::Put { key: &key, value: &value, ttl_ms: None, condition }).await?;
    Ok(stored)
}

/// `DELETE /v1/auth/accounts/{user}`
pub(super) async fn remove_account(call: Call) -> Answer {
    let (user, gateway) = (call.user()?, call.gateway());
    logging_in(gateway)?;
    gateway.auth.refresh().await?;
    let (account, logins) =
        (key_of_account(user.as_str()), gateway.auth.credentials.login_ids(user.as_str()));
    let logins: Vec<Vec<u8>> = logins.iter().map(|id| key_of_login(id)).collect();
    let keys = std::iter::once(&account).chain(&logins);
    let ops: Vec<_> = keys.map(|key| KvOp::Delete { key, condition: Condition::Always }).collect();
    match change_all(gateway, &ops).await?.first() {
        Some(KvOutcome::Deleted { revision: Some(_) }) => {
            tracing::info!(user = user.as_str(), "an account was removed");
            Ok(no_content())
        }
        _ => Err(no_account(user.as_str())),
    }
}

/// The account's new password.
#[derive(Deserialize, JsonSchema)]
#[serde(expecting = "an object", deny_unknown_fields)]
pub(super) struct PasswordDraft {
    #[schemars(length(min = *PASSWORD_CHARS.start(), max = *PASSWORD_CHARS.end()))]
    password: String,
    /// The password until now; administrators need none.
    current: Option<String>,
}

/// `PUT /v1/auth/accounts/{user}/password`
pub(super) async fn change_password(mut call: Call) -> Answer {
    logging_in(call.gateway())?;
    let body = call.body_up_to(BODY_BYTES_MAX).await?;
    let PasswordDraft { password, current } = object_of_bytes(&body)?;
    let (user, caller) = (call.user()?, call.caller()?);
    let mut faults = Vec::new();
    check_password(&password, "password", &mut faults);
    if !caller.is_administrator() && current.is_none() {
        faults.push(FieldError::new("current", "is required: the password until now"));
    }
    refuse_faults(faults)?;
    let gateway = call.gateway();
    // The hash that was compared: another one since is of another change.
    let mut compared = None;
    if let Some(current) = current.filter(|_| !caller.is_administrator()) {
        let account = try_password(&call, &user, current).await?;
        let wrong = || Problem::invalid(vec![FieldError::new("current", "is not the account's password")]);
        compared = Some(account.ok_or_else(wrong)?.hash);
    }
    let hash = logging_in(gateway)?.passwords.hash(password).await?;
    // Whoever was logged out meanwhile changes nothing any more.
    call.check_token().await?;
    let own = caller.access().subject.as_ref().filter(|subject| **subject == user);
    let own = own.and_then(|_| login_of(caller.access()));
    let own = own.and_then(|id| Some((id, gateway.auth.credentials.login_by_id(id)?)));
    let now = gateway.now().as_micros();
    let stored = update(gateway, &user, |stored| {
        let is_same = compared.is_none_or(|compared| compared == stored.hash);
        // What another change has ended is not brought back.
        stored.kept = own.filter(|(id, login)| stored.accepts(id, login)).map(|(id, _)| id.to_owned());
        (stored.hash, stored.password_at) = (hash, now);
        is_same
    })
    .await?;
    tracing::info!(user = stored.user, "the password of an account was changed");
    Ok(no_content())
}
