//! Which rooms and keys a server has, and how they are removed, by its public protocol.

use std::collections::HashSet;
use std::time::Duration;

use anyhow::{Context, ensure};
use hubbub_core::text::counted;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::Thing;
use crate::client::Target;
use crate::client::caller::{Caller, get};
use crate::load::room_load::join;

/// Connections that remove what has many names.
const CONNECTIONS: usize = 16;
const TIMEOUT: Duration = Duration::from_secs(30);
/// How often is looked for rooms that are there again, because a message of a run that was given up came late.
const LOOKS: u32 = 5;
/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(50);

impl Thing {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Rooms { .. } => "rooms",
            Self::Keys { .. } => "keys",
            Self::Queues(_) => "queues",
            Self::Clients(_) => "clients",
        }
    }

    /// So many of them, in words.
    pub(super) fn counted(&self, count: u64) -> String {
        counted(count, self.name().trim_end_matches('s'))
    }

    /// Removes them. How many there were.
    pub(super) async fn remove(&self, target: &Target, is_measured: bool) -> anyhow::Result<u64> {
        let paths = |what: &str, numbers: &[u64], query: &str| {
            numbers.iter().map(|number| format!("/v1/{what}/{number}{query}")).collect()
        };
        match self {
            Self::Rooms { prefix, count, before } => remove_rooms(target, prefix, *count, before).await,
            Self::Keys { once_measured: true, .. } if !is_measured => {
                anyhow::bail!("some were there before, and it is not known which the run has put")
            }
            Self::Keys { prefix, .. } => remove_keys(target, prefix).await,
            Self::Queues(numbers) => delete(target, paths("queues", numbers, "?force=true")).await,
            Self::Clients(numbers) => delete(target, paths("clients", numbers, "")).await,
        }
    }
}

/// Which rooms from 1 to `count` behind `prefix` are there.
pub(super) async fn rooms(target: &Target, prefix: &str, count: u16) -> anyhow::Result<HashSet<String>> {
    let number = |room: &str| room.strip_prefix(prefix)?.parse::<u16>().ok();
    let is_one = |room: &str| {
        number(room).is_some_and(|it| (1..=count).contains(&it) && room == format!("{prefix}{it}"))
    };
    let mut found = HashSet::new();
    let mut after = Some(prefix.to_owned());
    while let Some(room) = after {
        let path = if room.is_empty() { String::new() } else { format!("&after={}", escaped(&room)) };
        let (names, next) = page(target, &format!("/v1/rooms?limit=1000{path}"), "rooms", "roomId").await?;
        // They come in the order of their bytes, so those with the prefix stand together.
        let is_past = names.last().is_some_and(|last| !last.starts_with(prefix));
        found.extend(names.into_iter().filter(|room| is_one(room)));
        after = next.filter(|_| !is_past);
    }
    Ok(found)
}

async fn remove_rooms(
    target: &Target,
    prefix: &str,
    count: u16,
    before: &HashSet<String>,
) -> anyhow::Result<u64> {
    let mut removed = 0;
    for _ in 0..LOOKS {
        let mut there = rooms(target, prefix, count).await?;
        there.retain(|room| !before.contains(room));
        if there.is_empty() {
            break;
        }
        let count = delete(target, there.iter().map(|room| format!("/v1/rooms/{room}")).collect()).await?;
        removed = count.max(removed);
        tokio::time::sleep(LOOK_EVERY).await;
    }
    Ok(removed)
}

/// A text as a parameter of a query has it.
fn escaped(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

fn keys_path(prefix: &str, after: &str, limit: usize) -> String {
    let after = if after.is_empty() { String::new() } else { format!("&after={}", escaped(after)) };
    format!("/v1/kv?limit={limit}&prefix={}{after}", escaped(prefix))
}

/// Whether there is any key behind `prefix`.
pub(super) async fn has_keys(target: &Target, prefix: &str) -> anyhow::Result<bool> {
    Ok(!page(target, &keys_path(prefix, "", 1), "keys", "key").await?.0.is_empty())
}

/// Keys of a run have a number behind the prefix; those of an agent the agent's number before that.
fn is_own_key(key: &str, prefix: &str) -> bool {
    let Some(rest) = key.strip_prefix(prefix) else { return false };
    let (agent, number) = rest.split_once('-').unwrap_or(("0", rest));
    [agent, number].iter().all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()))
}

async fn remove_keys(target: &Target, prefix: &str) -> anyhow::Result<u64> {
    let mut caller = Caller::open(target, TIMEOUT).await?;
    let (mut removed, mut after) = (0, Some(String::new()));
    while let Some(key) = after {
        let (mut keys, next) = page(target, &keys_path(prefix, &key, 1000), "keys", "key").await?;
        keys.retain(|key| is_own_key(key, prefix));
        if !keys.is_empty() {
            let body = json!({"delete": keys}).to_string();
            let status = caller.request("POST", "/v1/kv", body.as_bytes(), |response| response.status).await;
            let status = status.map_err(|cause| anyhow::anyhow!("no answer: {}", cause.name()))?;
            ensure!(status == 200, "POST /v1/kv was answered with status {status}");
            removed += keys.len() as u64;
        }
        after = next;
    }
    Ok(removed)
}

/// The clients that there are, of those named by numbers.
pub(super) async fn clients(target: &Target) -> anyhow::Result<HashSet<u64>> {
    let (mut found, mut after) = (HashSet::new(), Some(String::new()));
    while let Some(query) = after {
        let (names, next) =
            page(target, &format!("/v1/clients?limit=1000{query}"), "clients", "client").await?;
        found.extend(names.iter().filter_map(|name| name.parse::<u64>().ok()));
        after = next.map(|next| format!("&after={}", escaped(&next)));
    }
    Ok(found)
}

/// One page of a list: the names in it, and where the next one begins.
async fn page(
    target: &Target,
    path: &str,
    list: &str,
    name: &str,
) -> anyhow::Result<(Vec<String>, Option<String>)> {
    let page: Value = serde_json::from_str(&get(target, path).await?).context("the answer is no JSON")?;
    let entries =
        page.get(list).and_then(Value::as_array).with_context(|| format!("the answer has no {list}"))?;
    let names = entries.iter().filter_map(|entry| Some(entry.get(name)?.as_str()?.to_owned())).collect();
    Ok((names, page.get("next").and_then(Value::as_str).map(str::to_owned)))
}

/// Deletes what is at these paths; what is not there is none. How many were.
async fn delete(target: &Target, paths: Vec<String>) -> anyhow::Result<u64> {
    let count = paths.len() as u64;
    let mut removers = JoinSet::new();
    for part in paths.chunks(paths.len().div_ceil(CONNECTIONS).max(1)) {
        let (target, part) = (target.clone(), part.to_vec());
        removers.spawn(async move {
            let mut caller = Caller::open(&target, TIMEOUT).await?;
            for path in part {
                let status = caller.request("DELETE", &path, b"", |response| response.status).await;
                let status = status.map_err(|cause| anyhow::anyhow!("no answer: {}", cause.name()))?;
                ensure!(matches!(status, 200 | 204 | 404), "DELETE {path} was answered with status {status}");
            }
            anyhow::Ok(())
        });
    }
    join(removers).await?;
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_keys_of_a_run_are_its_own() {
        for (key, is_own) in [
            ("bench-0", true),
            ("bench-17", true),
            ("bench-2-17", true),
            ("bench-", false),
            ("bench-x", false),
            ("bench-1-2-3", false),
            ("bench--1", false),
            ("bench-1/name", false),
            ("other-1", false),
        ] {
            assert_eq!(is_own_key(key, "bench-"), is_own, "{key}");
        }
        assert_eq!(keys_path("a b/", "a%20b", 2), "/v1/kv?limit=2&prefix=a%20b%2F&after=a%2520b");
    }
}
