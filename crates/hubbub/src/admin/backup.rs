//! `hubbub backup`: fetches from a running server what the backup before does not have.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use crc32c::crc32c_append;
use http_body_util::BodyExt;
use hubbub_core::Clock;
use hubbub_core::id::write_uuid_v7;
use hubbub_store::embedded::file_crc32c;
use hyper::Method;
use serde::Deserialize;
use serde_json::json;

use super::shelf::{self, LIST, ListedFile, Listing};
use super::{only_one, size, sync_dir};
use crate::ambient::{KeyedRandom, SystemClock};
use crate::cli::BackupArgs;
use crate::client::connection::{Connection, Server, TIMEOUT};
use crate::client::{print, print_json};

/// The server may have to wait for a merge before it begins.
const BEGIN_MAX: Duration = Duration::from_secs(600);

/// What the server answers when a backup begins.
#[derive(Debug, Deserialize)]
struct Begun {
    epoch: String,
    messages: u64,
    files: Vec<ListedFile>,
}

/// What came from where, in files and bytes.
#[derive(Debug, Default)]
struct Copied {
    fetched: (u64, u64),
    linked: (u64, u64),
}

pub(crate) async fn backup(args: BackupArgs) -> anyhow::Result<()> {
    let server = Server::parse(&args.client.server)?;
    let mut connection = server.connect().await?;
    fs::create_dir_all(&args.dir).with_context(|| format!("making {}", args.dir.display()))?;
    let _lock = only_one(&args.dir, ".lock", "backup")?;
    shelf::remove_partial(&args.dir)?;

    let now = SystemClock::new().now();
    let mut id = String::new();
    write_uuid_v7(now, &KeyedRandom::new(), &mut id);
    let path = format!("/v1/backups/{id}");
    let begun = connection.request_within(BEGIN_MAX, Method::PUT, &path, String::new()).await?;
    let begun: Begun =
        serde_json::from_value(begun.success()?).context("the server's answer is no backup")?;
    let listing = Listing::new(now, begun.epoch, begun.messages, begun.files);
    let previous = shelf::complete(&args.dir)?.pop();
    let target = shelf::new_name(&args.dir, now, previous.as_deref());
    let mut job = Job {
        connection,
        files: format!("{path}/files"),
        partial: shelf::partial_of(&target),
        previous,
        copied: Copied::default(),
        pace: Pace::new(args.rate),
    };
    let made = job.make(&listing).await;
    if made.is_err() {
        // What cannot be removed now the next backup removes.
        let _ = fs::remove_dir_all(&job.partial);
    }
    // On the server it ends by itself if this fails, or if the connection broke.
    let _ = job.connection.request(Method::DELETE, &path, String::new()).await;
    made?;
    fs::rename(&job.partial, &target).with_context(|| format!("naming {}", target.display()))?;
    sync_dir(&args.dir)?;
    let removed = match args.keep {
        Some(keep) => remove_but(&args.dir, keep)?,
        None => 0,
    };
    report(&args, &target, &listing, &job.copied, removed)
}

/// A backup under way.
struct Job {
    connection: Connection,
    /// Path of its files on the server.
    files: String,
    partial: PathBuf,
    previous: Option<PathBuf>,
    copied: Copied,
    pace: Pace,
}

/// Holds writing back to a rate.
struct Pace {
    begun: tokio::time::Instant,
    bytes: u64,
    /// 0 = as fast as it goes.
    bytes_per_second: u64,
}

impl Pace {
    fn new(megabytes_per_second: u32) -> Self {
        let bytes_per_second = u64::from(megabytes_per_second) * 1_000_000;
        Self { begun: tokio::time::Instant::now(), bytes: 0, bytes_per_second }
    }

    /// Waits until so many more bytes are due.
    async fn wait(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
        if let Some(micros) = self.bytes.saturating_mul(1_000_000).checked_div(self.bytes_per_second) {
            tokio::time::sleep_until(self.begun + Duration::from_micros(micros)).await;
        }
    }
}

/// Written bytes are synced after so many, so that a sync of the server's journal does not find a large one before it.
const SYNC_BYTES: u64 = 1_000_000;

impl Job {
    async fn make(&mut self, listing: &Listing) -> anyhow::Result<()> {
        let mut dirs = BTreeSet::new();
        for file in &listing.files {
            let target = self.target(file)?;
            if let Some(dir) = target.parent().filter(|dir| !dirs.contains(*dir)) {
                fs::create_dir_all(dir).with_context(|| format!("making {}", dir.display()))?;
                dirs.insert(dir.to_owned());
            }
            self.take(file, &target).await?;
        }
        let path = self.partial.join(LIST);
        let text = serde_json::to_vec_pretty(listing).context("writing the list of files")?;
        let written = File::create(&path).and_then(|mut list| {
            list.write_all(&text)?;
            list.sync_all()
        });
        written.with_context(|| format!("writing {}", path.display()))?;
        dirs.iter().try_for_each(|dir| sync_dir(dir))?;
        sync_dir(&self.partial)
    }

    /// Where a file goes.
    fn target(&self, file: &ListedFile) -> anyhow::Result<PathBuf> {
        let target = self.partial.join(&file.name);
        if !target.starts_with(&self.partial) || file.name.split('/').any(|part| part == "..") {
            bail!("the server names a file {}, which leads out of the backup", file.name);
        }
        Ok(target)
    }

    async fn take(&mut self, file: &ListedFile, target: &Path) -> anyhow::Result<()> {
        if let Some(known) = self.previous.as_ref().map(|previous| previous.join(&file.name))
            && link(&known, target, file)?
        {
            self.copied.linked.0 += 1;
            self.copied.linked.1 += file.bytes;
            return Ok(());
        }
        self.fetch(file, target).await.with_context(|| format!("fetching {}", file.name))?;
        self.copied.fetched.0 += 1;
        self.copied.fetched.1 += file.bytes;
        Ok(())
    }

    async fn fetch(&mut self, file: &ListedFile, target: &Path) -> anyhow::Result<()> {
        let path = format!("{}/{}", self.files, file.name.replace('/', "%2F"));
        let begin = self.connection.begin(Method::GET, &path, String::new());
        let response = tokio::time::timeout(TIMEOUT, begin).await.context("no answer in time")??;
        if !response.status().is_success() {
            bail!("the server answered {}; begin the backup again", response.status());
        }
        let mut body = response.into_body();
        let mut writer = File::create(target).with_context(|| format!("making {}", target.display()))?;
        let (mut bytes, mut synced, mut crc) = (0, 0, 0);
        while let Some(frame) =
            tokio::time::timeout(TIMEOUT, body.frame()).await.context("no answer in time")?
        {
            let frame = frame.context("the answer ended early")?;
            let piece = frame.data_ref().map_or(&[][..], |piece| piece);
            (bytes, crc) = (bytes + piece.len() as u64, crc32c_append(crc, piece));
            writer.write_all(piece).with_context(|| format!("writing {}", target.display()))?;
            if bytes - synced >= SYNC_BYTES {
                synced = bytes;
                writer.sync_data().with_context(|| format!("syncing {}", target.display()))?;
            }
            self.pace.wait(piece.len()).await;
        }
        if (bytes, crc) != (file.bytes, file.crc32c) {
            bail!("length or checksum is not the one the server said; run 'hubbub verify' on its data");
        }
        writer.sync_all().with_context(|| format!("syncing {}", target.display()))
    }
}

/// Takes a file from the backup before, if it is still what it should be. Says whether it did.
fn link(known: &Path, target: &Path, file: &ListedFile) -> anyhow::Result<bool> {
    // Read as a whole: a backup made of links must not hand on what a bad disk did to an older one.
    if !fs::metadata(known).is_ok_and(|found| found.len() == file.bytes)
        || !file_crc32c(known).is_ok_and(|found| found == (file.bytes, file.crc32c))
    {
        return Ok(false);
    }
    if fs::hard_link(known, target).is_ok() {
        return Ok(true);
    }
    // Some file systems know no hard links.
    fs::copy(known, target).with_context(|| format!("copying {}", known.display()))?;
    File::open(target)
        .and_then(|file| file.sync_all())
        .with_context(|| format!("syncing {}", target.display()))?;
    Ok(true)
}

/// Removes all but the newest `keep`. Says how many.
fn remove_but(dir: &Path, keep: u32) -> anyhow::Result<usize> {
    let all = shelf::complete(dir)?;
    let old = all.len().saturating_sub(usize::try_from(keep).unwrap_or(usize::MAX));
    for backup in all.iter().take(old) {
        shelf::remove(backup)?;
    }
    Ok(old)
}

fn report(
    args: &BackupArgs,
    target: &Path,
    listing: &Listing,
    copied: &Copied,
    removed: usize,
) -> anyhow::Result<()> {
    let Copied { fetched, linked } = copied;
    if args.client.json {
        return print_json(&json!({
            "backup": target, "epoch": listing.epoch, "messages": listing.messages,
            "filesFetched": fetched.0, "bytesFetched": fetched.1,
            "filesLinked": linked.0, "bytesLinked": linked.1, "backupsRemoved": removed,
        }));
    }
    print(&format!(
        "{}: {} messages; fetched {} files ({}), linked {} ({}) from the backup before, removed {removed} older backups\n",
        target.display(),
        listing.messages,
        fetched.0,
        size(fetched.1),
        linked.0,
        size(linked.1),
    ))
}
