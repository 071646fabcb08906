//! `hubbub kv`: reads and writes values by key.

use std::io::{Read, Write};

use anyhow::{Context, bail};
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::header::{ETAG, HeaderName, IF_MATCH, IF_NONE_MATCH};
use hyper::{HeaderMap, Method};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use serde_json::{Value, json};

use super::connection::{Answer, Connection, Server, TIMEOUT};
use super::{kv_watch, print, print_json};
use crate::cli::{KvAction, KvArgs};

/// Keys in one request.
const PAGE: usize = 500;
/// Characters to escape in a path. Percent signs stay: keys are already escaped as the server does.
const ESCAPED: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'`')
    .add(b'{')
    .add(b'}')
    .add(b'\\')
    .add(b'^')
    .add(b'|')
    .add(b'[')
    .add(b']');

pub(crate) async fn run(args: KvArgs) -> anyhow::Result<()> {
    let server = Server::parse(&args.client.server)?;
    let is_json = args.client.json;
    match args.action {
        KvAction::Watch { prefix, after, count } => {
            kv_watch::watch(server, &prefix, after, count, is_json).await
        }
        KvAction::Get { key } => get(&mut server.connect().await?, &key, is_json).await,
        KvAction::Put { key, value, ttl, if_revision, if_absent } => {
            let value = match value.as_deref() {
                None | Some("-") => read_input()?,
                Some(value) => value.as_bytes().to_vec(),
            };
            let mut headers = condition(if_revision);
            headers.extend(if_absent.then(|| (IF_NONE_MATCH, "*".to_owned())));
            let ttl = ttl.map(|ttl| ttl.as_secs_f64().to_string());
            headers.extend(ttl.map(|ttl| (HeaderName::from_static("hubbub-ttl"), ttl)));
            let mut connection = server.connect().await?;
            let (answer, tag) = request(&mut connection, Method::PUT, &key, &headers, value).await?;
            let is_new = answer.status.as_u16() == 201;
            answer.success()?;
            if is_json {
                let revision: Option<u64> = tag.trim_matches('"').parse().ok();
                return print_json(&json!({"key": key, "revision": revision, "created": is_new}));
            }
            Ok(())
        }
        KvAction::Del { key, if_revision } => {
            let headers = condition(if_revision);
            let (answer, _) =
                request(&mut server.connect().await?, Method::DELETE, &key, &headers, Vec::new()).await?;
            answer.success()?;
            Ok(())
        }
        KvAction::Ls { prefix } => list(&mut server.connect().await?, &prefix, is_json).await,
    }
}

fn read_input() -> anyhow::Result<Vec<u8>> {
    let mut value = Vec::new();
    std::io::stdin().read_to_end(&mut value).context("reading the value from standard input")?;
    Ok(value)
}

fn condition(if_revision: Option<u64>) -> Vec<(HeaderName, String)> {
    if_revision.map(|revision| (IF_MATCH, format!("\"{revision}\""))).into_iter().collect()
}

fn path_of(key: &str) -> String {
    format!("/kv/{}", utf8_percent_encode(key, ESCAPED))
}

/// What the server answered, as bytes.
async fn raw(
    connection: &mut Connection,
    method: Method,
    key: &str,
    headers: &[(HeaderName, String)],
    value: Vec<u8>,
) -> anyhow::Result<(hyper::StatusCode, HeaderMap, Bytes)> {
    let headers = headers.iter().map(|(name, value)| (name.clone(), value.as_str()));
    let asking = async {
        let response = connection.begin_with(method, &path_of(key), headers, value).await?;
        let (parts, body) = response.into_parts();
        anyhow::Ok((parts.status, parts.headers, body.collect().await?.to_bytes()))
    };
    tokio::time::timeout(TIMEOUT, asking).await.context("no answer in time")?
}

/// A change's answer, and the entity tag it has.
async fn request(
    connection: &mut Connection,
    method: Method,
    key: &str,
    headers: &[(HeaderName, String)],
    value: Vec<u8>,
) -> anyhow::Result<(Answer, String)> {
    let (status, headers, body) = raw(connection, method, key, headers, value).await?;
    let tag = headers.get(ETAG).and_then(|tag| tag.to_str().ok()).unwrap_or_default().to_owned();
    Ok((Answer { status, body: serde_json::from_slice(&body).unwrap_or_default() }, tag))
}

async fn get(connection: &mut Connection, key: &str, is_json: bool) -> anyhow::Result<()> {
    if is_json {
        let body = json!({"get": [key]}).to_string();
        let found = connection.request(Method::POST, "/v1/kv", body).await?.success()?;
        let item = found.pointer("/get/0").context("the server's answer holds no value")?;
        if let Some(code) = item.get("code").and_then(Value::as_str) {
            let detail = item.get("detail").and_then(Value::as_str).unwrap_or_default();
            bail!("the server answered: {detail} ({code})");
        }
        return print_json(item);
    }
    let (status, _, body) = raw(connection, Method::GET, key, &[], Vec::new()).await?;
    if !status.is_success() {
        Answer { status, body: serde_json::from_slice(&body).unwrap_or_default() }.success()?;
    }
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(&body).and_then(|()| stdout.flush()).context("writing to standard output")
}

async fn list(connection: &mut Connection, prefix: &str, is_json: bool) -> anyhow::Result<()> {
    let mut after: Option<String> = None;
    loop {
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.append_pair("limit", &PAGE.to_string()).append_pair("prefix", prefix);
        if let Some(after) = &after {
            query.append_pair("after", after);
        }
        let page = connection.get(&format!("/v1/kv?{}", query.finish())).await?;
        for key in page.get("keys").and_then(Value::as_array).into_iter().flatten() {
            if is_json {
                print_json(key)?;
                continue;
            }
            let text = |name: &str| key.get(name).and_then(Value::as_str).unwrap_or_default();
            let number = |name: &str| key.get(name).and_then(Value::as_u64).unwrap_or_default();
            let (revision, bytes) = (number("revision"), number("bytes"));
            let line = format!("{revision:>10} {bytes:>9}  {}  {}", text("key"), text("expiresAt"));
            print(&format!("{}\n", line.trim_end()))?;
        }
        after = page.get("next").and_then(Value::as_str).map(str::to_owned);
        if after.is_none() {
            return Ok(());
        }
    }
}
