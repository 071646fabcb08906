//! Puts every key before anything is measured, many at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::ensure;
use tokio::task::JoinSet;

use super::client::Common;
use crate::client::Target;
use crate::client::caller::Caller;
use crate::load::room_load::join;
use crate::progress::Live;

const CONNECTIONS: usize = 8;
const BATCH: u64 = 500;
const TIMEOUT: Duration = Duration::from_secs(60);

pub(super) async fn preload(
    target: &Target,
    common: &Arc<Common>,
    live: &Arc<Live<'static>>,
) -> anyhow::Result<()> {
    let next = Arc::new(AtomicU64::new(0));
    let mut loaders = JoinSet::new();
    for _ in 0..CONNECTIONS {
        let (target, common, live, next) = (target.clone(), common.clone(), live.clone(), next.clone());
        loaders.spawn(async move {
            let mut caller = Caller::open(&target, TIMEOUT).await?;
            let mut body = Vec::new();
            loop {
                let from = next.fetch_add(BATCH, Ordering::Relaxed);
                let to = (from + BATCH).min(common.keys.len());
                if from >= to {
                    return anyhow::Ok(());
                }
                body.clear();
                let versions = write_body(&common, from..to, &mut body);
                put(&mut caller, &body).await?;
                for (key, version) in (from..to).zip(versions) {
                    common.keys.acknowledged(key, version);
                }
                live.inc(to - from);
            }
        });
    }
    join(loaders).await
}

/// Keys and values hold nothing that JSON would escape.
fn write_body(common: &Common, keys: std::ops::Range<u64>, body: &mut Vec<u8>) -> Vec<u32> {
    body.extend_from_slice(b"{\"put\":[");
    let mut versions = Vec::new();
    for key in keys {
        let version = common.keys.next_version(key, false);
        body.extend_from_slice(if versions.is_empty() { b"{\"key\":\"" } else { b",{\"key\":\"" });
        common.keys.write_key(key, body);
        body.extend_from_slice(b"\",\"value\":\"");
        common.keys.write_value(key, version, body);
        body.extend_from_slice(b"\"}");
        versions.push(version);
    }
    body.extend_from_slice(b"]}");
    versions
}

async fn put(caller: &mut Caller, body: &[u8]) -> anyhow::Result<()> {
    let heard = caller.request("POST", "/v1/kv", body, |response| {
        (response.status, memchr::memmem::find(response.body, b"\"code\":").is_some())
    });
    let (status, is_refused) =
        heard.await.map_err(|cause| anyhow::anyhow!("no answer to many keys at once: {cause:?}"))?;
    ensure!(status == 200 && !is_refused, "putting many keys at once was answered with status {status}");
    Ok(())
}
