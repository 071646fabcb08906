//! `hubbub kv`: reads and writes values by key.

use std::io::Read;

use anyhow::{Context, bail};
use hyper::Method;
use hyper::header::{ETAG, HeaderName, IF_MATCH, IF_NONE_MATCH};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};

use super::connection::{Answer, TIMEOUT, failed_at};
use super::pages::Pages;
use super::session::{Session, with_query};
use super::table::Table;
use super::{kv_watch, number, print_json, text};
use crate::cli::{ActionArgs, KvAction};
use crate::output::{Refusal, print};

/// Characters to escape in a path. Percent signs stay: keys are already escaped as the server does.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'%').remove(b'/');

pub(crate) async fn run(args: ActionArgs<KvAction>) -> anyhow::Result<()> {
    let mut session = Session::new(&args.client)?;
    match args.action {
        KvAction::Watch { prefix, after, count } => kv_watch::watch(session, prefix, after, count).await,
        KvAction::Get { key } if args.client.json => get_json(&mut session, &key).await,
        KvAction::Get { key } => {
            let path = path_of(&key);
            let answer = session.connection.read(&path).await;
            print(answer.map_err(|error| failed_at(&path, &error))?.body)
        }
        KvAction::Put { key, value, ttl, if_revision, if_absent } => {
            let value = match value.as_deref() {
                None | Some("-") => read_input()?,
                Some(value) => value.as_bytes().to_vec(),
            };
            let ttl = ttl.map(|ttl| ttl.as_secs_f64().to_string());
            let headers = [
                (IF_MATCH, condition(if_revision)),
                (IF_NONE_MATCH, if_absent.then(|| "*".to_owned())),
                (HeaderName::from_static("hubbub-ttl"), ttl),
            ];
            let answer = request(&mut session, Method::PUT, &key, &headers, value).await?;
            let is_new = answer.status.as_u16() == 201;
            if !args.client.json {
                return session.say((if is_new { "created" } else { "updated" }, &key));
            }
            let tag = answer.headers.get(ETAG).and_then(|tag| tag.to_str().ok()).unwrap_or_default();
            let revision: Option<u64> = tag.trim_matches('"').parse().ok();
            print_json(&json!({"key": key, "revision": revision, "created": is_new}))
        }
        KvAction::Del { key, if_revision } => {
            let headers = [(IF_MATCH, condition(if_revision))];
            request(&mut session, Method::DELETE, &key, &headers, Vec::new()).await?;
            session.say(("deleted", &key))
        }
        KvAction::Ls { prefix } => {
            let path = with_query("/v1/kv", [("prefix", Some(prefix))]);
            let row = |key: &Value| {
                let number = |name: &str| number(key, name).to_string();
                let expires = key.get("expiresAt").and_then(Value::as_str).unwrap_or("-").to_owned();
                [text(key, "key").to_owned(), number("revision"), number("bytes"), expires]
            };
            let table = Table::new(["key", "revision", "bytes", "expires"]);
            session.table(Pages::new(path, "keys", usize::MAX), table, row).await
        }
    }
}

fn read_input() -> anyhow::Result<Vec<u8>> {
    let mut value = Vec::new();
    std::io::stdin().read_to_end(&mut value).context("reading the value from standard input")?;
    Ok(value)
}

fn path_of(key: &str) -> String {
    format!("/kv/{}", utf8_percent_encode(key, ESCAPED))
}

fn condition(if_revision: Option<u64>) -> Option<String> {
    if_revision.map(|revision| format!("\"{revision}\""))
}

/// Sends a request about one key. Returns the answer if it is a success.
async fn request(
    session: &mut Session,
    method: Method,
    key: &str,
    headers: &[(HeaderName, Option<String>)],
    value: Vec<u8>,
) -> anyhow::Result<hubbub_client::Answer> {
    let path = path_of(key);
    let headers = headers.iter().filter_map(|(name, value)| Some((name.clone(), value.as_deref()?)));
    let headers: Vec<_> = headers.collect();
    let answer = session.connection.whole(TIMEOUT, method, &path, &headers, value).await?;
    if !answer.status.is_success() {
        Answer::lenient(answer.status, &answer.body).success()?;
    }
    Ok(answer)
}

async fn get_json(session: &mut Session, key: &str) -> anyhow::Result<()> {
    let found = session.post("/v1/kv", json!({"get": [key]}).to_string()).await?;
    let item = found.pointer("/get/0").context("the server's answer holds no value")?;
    if let Some(code) = item.get("code").and_then(Value::as_str) {
        let status = number(item, "status").try_into().unwrap_or_default();
        bail!(Refusal { status, code: code.to_owned(), detail: text(item, "detail").to_owned() });
    }
    print_json(item)
}
