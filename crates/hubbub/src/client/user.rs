//! `hubbub user`: accounts with passwords, and where they are logged in.

use std::io::{IsTerminal, Read};

use anyhow::{Context, ensure};
use hyper::Method;
use serde_json::{Value, json};

use super::pages::Pages;
use super::session::{Session, escape, with_query};
use super::table::Table;
use super::{show, text};
use crate::admin::token::grant_members;
use crate::cli::{AccountAction, AccountArgs, ActionArgs, RightsArgs};

/// A line of input with a password has fewer bytes.
const INPUT_MAX: u64 = 4 * 1024;

pub(crate) async fn run(args: ActionArgs<AccountAction>) -> anyhow::Result<()> {
    let mut session = Session::new(&args.client)?;
    match args.action {
        AccountAction::Add(AccountArgs { name, grants }) => {
            let mut draft = grant_members(&grants)?;
            draft.insert("user".into(), json!(name));
            draft.insert("password".into(), json!(new_password(&name)?));
            let made = session.post("/v1/auth/accounts", Value::Object(draft).to_string()).await?;
            show(session.is_json, &made, |made| format!("added: {}\n", text(made, "user")))
        }
        // With `--none` there are no other options.
        AccountAction::Rights(RightsArgs { name, none: _, grants }) => {
            let rights = Value::Object(grant_members(&grants)?).to_string();
            session.replace(&path(&name, ""), rights, ("updated", "user")).await
        }
        AccountAction::Password { name } => {
            let body = json!({"password": new_password(&name)?}).to_string();
            let done = ("password set", name.as_str());
            session.change_with(Method::PUT, &path(&name, "/password"), body, done).await
        }
        AccountAction::Remove { name } => {
            session.change(Method::DELETE, &path(&name, ""), ("removed", &name)).await
        }
        AccountAction::List => {
            let pages = Pages::new("/v1/auth/accounts".into(), "accounts", usize::MAX);
            session.table(pages, Table::new(["account", "since", "rights"]), account_row).await
        }
        AccountAction::Logins { name } => {
            let of_all = "/v1/auth/logins";
            let path = name.map_or_else(|| of_all.into(), |name| with_query(of_all, [("user", Some(name))]));
            let table = Table::new(["login", "account", "since", "address", "browser"]);
            session.table(Pages::new(path, "logins", usize::MAX), table, login_row).await
        }
        AccountAction::Logout { login } => {
            let path = format!("/v1/auth/logins/{}", escape(&login));
            session.change(Method::DELETE, &path, ("ended", &login)).await
        }
    }
}

fn path(name: &str, rest: &str) -> String {
    format!("/v1/auth/accounts/{}{rest}", escape(name))
}

/// The new password: from the terminal, where it is not shown and asked for twice; else the first line of standard input.
fn new_password(name: &str) -> anyhow::Result<String> {
    if std::io::stdin().is_terminal() {
        let ask = |prompt: String| rpassword::prompt_password(prompt).context("asking for the password");
        let password = ask(format!("New password of {name}: "))?;
        ensure!(password == ask("The same again: ".into())?, "the two passwords differ");
        return Ok(password);
    }
    let mut input = String::new();
    let read = std::io::stdin().take(INPUT_MAX).read_to_string(&mut input);
    read.context("reading the password from standard input")?;
    let password = input.lines().next().unwrap_or_default();
    ensure!(!password.is_empty(), "there is no password on standard input");
    Ok(password.to_owned())
}

fn account_row(account: &Value) -> [String; 3] {
    [text(account, "user").to_owned(), text(account, "createdAt").to_owned(), rights_of(account)]
}

/// "administrator", or "rooms *=rw, queues jobs=r"; "no rights" of an account or a key that may do nothing.
pub(super) fn rights_of(account: &Value) -> String {
    if super::is_true(account, "admin") {
        return "administrator".to_owned();
    }
    let mut all = Vec::new();
    for kind in ["rooms", "queues", "kv"] {
        let granted = account.get(kind).and_then(Value::as_object).into_iter().flatten();
        all.extend(
            granted.map(|(name, letters)| format!("{kind} {name}={}", letters.as_str().unwrap_or_default())),
        );
    }
    let scopes = account.get("scopes").and_then(Value::as_array).into_iter().flatten();
    all.extend(scopes.filter_map(Value::as_str).map(|scope| format!("scope {scope}")));
    if all.is_empty() { "no rights".to_owned() } else { all.join(", ") }
}

fn login_row(login: &Value) -> [String; 5] {
    ["loginId", "user", "createdAt", "address", "userAgent"].map(|name| super::plain(text(login, name)))
}
