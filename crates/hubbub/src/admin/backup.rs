//! `hubbub backup`: an incremental backup of a running server. Files that the previous backup has are linked.

mod writing;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use http_body_util::BodyExt;
use hubbub_core::Clock;
use hubbub_core::backoff::Backoff;
use hubbub_core::backup::BackupFile;
use hubbub_core::invariant::saturate;
use hubbub_core::text::counted;
use hubbub_store::embedded::file_crc32c;
use hyper::Method;
use serde::Deserialize;
use serde_json::json;
use tokio::time::{Instant, sleep_until};

use super::catalog::{self, LIST, Listing};
use super::{lock_directory, make_private, make_within, sync_dir};
use crate::cli::BackupArgs;
use crate::client::connection::{Connection, TIMEOUT, failed};
use crate::client::session::{make_id, pause};
use crate::client::show;
use crate::output::size;
use crate::progress::Progress;
use crate::system::SystemClock;
use writing::{Pace, Writing};

/// The server may have to wait for a merge before it begins.
const BEGIN_MAX: Duration = Duration::from_secs(600);

/// The server lets go of a backup that nobody asks for in an hour, and reading a large file of the previous one may take as
/// long.
const ASK_EVERY: Duration = Duration::from_secs(300);

/// Attempts to fetch one file, and the pauses between them.
const ATTEMPTS: u32 = 6;
const PAUSES: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(2));

/// Bytes that are read at once of a file of the previous backup.
const STEP_BYTES: usize = 256 << 10;

/// The server's answer to the begin of a backup.
#[derive(Debug, Deserialize)]
struct Begun {
    epoch: String,
    messages: u64,
    files: Vec<BackupFile>,
}

impl Begun {
    /// Begins the backup of this path, or asks for it again.
    async fn ask(connection: &mut Connection, path: &str) -> anyhow::Result<Self> {
        let begun = connection.request(BEGIN_MAX, Method::PUT, path, "").await?;
        serde_json::from_value(begun.success()?).context("the server's answer is not a backup")
    }
}

/// Numbers of files and bytes by source.
#[derive(Debug, Default)]
struct Copied {
    fetched: (u64, u64),
    linked: (u64, u64),
}

pub(crate) async fn backup(args: BackupArgs) -> anyhow::Result<()> {
    let mut connection = args.client.server()?.connect().await?;
    make_private(&args.dir)?;
    let _lock = lock_directory(&args.dir, ".lock", "backup")?;
    catalog::remove_partial(&args.dir)?;
    let previous = catalog::complete(&args.dir)?.pop();

    let now = SystemClock::new().now();
    let path = format!("/v1/backups/{}", make_id());
    let begun = Begun::ask(&mut connection, &path).await?;
    let listing = Listing::new(now, begun.epoch, begun.messages, begun.files);
    let target = catalog::new_name(&args.dir, now, previous.as_deref());
    let progress = Progress::of_bytes("backing up", listing.files.iter().map(|file| file.bytes).sum());
    let mut job = Job {
        connection,
        progress,
        path,
        asked: Instant::now(),
        dir: args.dir.clone(),
        partial: catalog::partial_of(&target),
        previous,
        copied: Copied::default(),
        pace: Pace::new(u64::from(args.rate) * 1_000_000),
    };
    let made = job.make(&listing).await;
    if made.is_err() {
        // The next backup removes what is left.
        let _ = fs::remove_dir_all(&job.partial);
    }
    job.progress.finish();
    // If this fails, the server ends the backup by itself.
    let _ = job.connection.request(TIMEOUT, Method::DELETE, &job.path, "").await;
    made?;
    fs::rename(&job.partial, &target).with_context(|| format!("naming {}", target.display()))?;
    sync_dir(&args.dir)?;
    let removed = match args.keep {
        Some(keep) => remove_but(&args.dir, keep)?,
        None => 0,
    };
    report(&args, &target, &listing, &job.copied, removed)
}

struct Job {
    connection: Connection,
    progress: Progress,
    /// Its path on the server, and when it was asked for last.
    path: String,
    asked: Instant,
    /// The directory of backups.
    dir: PathBuf,
    partial: PathBuf,
    previous: Option<PathBuf>,
    copied: Copied,
    pace: Pace,
}

impl Job {
    async fn make(&mut self, listing: &Listing) -> anyhow::Result<()> {
        let mut dirs = BTreeSet::new();
        for file in &listing.files {
            let target = self.target(file)?;
            if let Some(dir) = target.parent().filter(|dir| !dirs.contains(*dir)) {
                make_within(&self.dir, dir)?;
                dirs.insert(dir.to_owned());
            }
            self.copy(file, target, listing).await?;
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

    fn target(&self, file: &BackupFile) -> anyhow::Result<PathBuf> {
        let target = self.partial.join(&file.name);
        if !target.starts_with(&self.partial) || file.name.split('/').any(|part| part == "..") {
            bail!("the server sent the path {}, which is outside of the backup", file.name);
        }
        Ok(target)
    }

    async fn copy(&mut self, file: &BackupFile, target: PathBuf, listing: &Listing) -> anyhow::Result<()> {
        let old = self.previous.as_ref().map(|previous| previous.join(&file.name));
        let linked = match &old {
            Some(old) => self.link(old.clone(), target.clone(), file, listing).await?,
            None => Old::Differs,
        };
        match (linked, &old) {
            (Old::Linked, _) => self.progress.add(file.bytes),
            (Old::CannotLink, Some(old)) => {
                let copied = self.copy_old(old, file, &target, listing).await;
                copied.with_context(|| format!("copying {}", old.display()))?;
            }
            (Old::Differs | Old::CannotLink, _) => {
                self.fetch(file, &target).await.with_context(|| format!("fetching {}", file.name))?;
                self.copied.fetched.0 += 1;
                self.copied.fetched.1 += file.bytes;
                return Ok(());
            }
        }
        self.copied.linked.0 += 1;
        self.copied.linked.1 += file.bytes;
        Ok(())
    }

    /// Does what [`link`] does, and asks for the backup again now and then.
    async fn link(
        &mut self,
        old: PathBuf,
        target: PathBuf,
        file: &BackupFile,
        listing: &Listing,
    ) -> anyhow::Result<Old> {
        let file = file.clone();
        let mut linking = tokio::task::spawn_blocking(move || link(&old, &target, &file));
        loop {
            tokio::select! {
                biased;
                () = sleep_until(self.asked + ASK_EVERY) => self.ask_again(listing).await?,
                linked = &mut linking => return linked.context("linking ended early"),
            }
        }
    }

    /// Asks for the backup once more, so that the server keeps it.
    async fn ask_again(&mut self, listing: &Listing) -> anyhow::Result<()> {
        // One question without an answer does no harm: there are several in the time that the server waits.
        if let Ok(begun) = Begun::ask(&mut self.connection, &self.path).await
            && begun.files != listing.files
        {
            bail!("the server has let go of the backup; begin it again");
        }
        self.asked = Instant::now();
        Ok(())
    }

    /// Copies a file of the previous backup, as some file systems do not support hard links.
    async fn copy_old(
        &mut self,
        old: &Path,
        file: &BackupFile,
        target: &Path,
        listing: &Listing,
    ) -> anyhow::Result<()> {
        let (mut reader, mut writing) = (File::open(old)?, Writing::create(target)?);
        let mut buffer = vec![0; STEP_BYTES];
        loop {
            let count = reader.read(&mut buffer)?;
            let piece = buffer.get(..count).unwrap_or_default();
            if piece.is_empty() {
                break;
            }
            writing.add(piece, &mut self.pace).await?;
            self.progress.add(piece.len() as u64);
            if self.asked.elapsed() >= ASK_EVERY {
                self.ask_again(listing).await?;
            }
        }
        if writing.finish()? != (file.bytes, file.crc32c) {
            bail!("it has changed meanwhile");
        }
        Ok(())
    }

    /// Fetches a file, in several attempts if need be.
    async fn fetch(&mut self, file: &BackupFile, target: &Path) -> anyhow::Result<()> {
        let (mut backoff, mut attempts) = (PAUSES, 0);
        loop {
            let Err(broken) = self.try_to_fetch(file, target).await? else { return Ok(()) };
            attempts += 1;
            if attempts == ATTEMPTS {
                return Err(broken.error);
            }
            pause(&mut backoff, broken.asked).await;
        }
    }

    /// Makes one attempt, from the beginning of the file.
    async fn try_to_fetch(&mut self, file: &BackupFile, target: &Path) -> anyhow::Result<Result<(), Broken>> {
        let path = format!("{}/files/{}", self.path, file.name.replace('/', "%2F"));
        let mut body = match self.connection.begin(Method::GET, &path).await {
            Ok(response) => response.into_body(),
            Err(refused) => {
                let (is_final, asked) = (!refused.retryable, refused.retry_after);
                let error = failed(refused).context("begin the backup again");
                return if is_final { Err(error) } else { Ok(Err(Broken { error, asked })) };
            }
        };
        let mut writing = Writing::create(target)?;
        loop {
            let frame = match tokio::time::timeout(TIMEOUT, body.frame()).await {
                Ok(None) => break,
                Ok(Some(Ok(frame))) => Ok(frame),
                Ok(Some(Err(error))) => Err(anyhow::Error::new(error).context("the answer ended early")),
                Err(_) => Err(anyhow!("no answer in time")),
            };
            let frame = match frame {
                Ok(frame) => frame,
                Err(error) => {
                    self.progress.take_back(writing.bytes());
                    return Ok(Err(Broken { error, asked: Duration::ZERO }));
                }
            };
            if let Some(piece) = frame.data_ref() {
                writing.add(piece, &mut self.pace).await?;
                self.progress.add(piece.len() as u64);
            }
        }
        if writing.finish()? != (file.bytes, file.crc32c) {
            bail!("length or checksum differ from the server's; run 'hubbub verify' on its data");
        }
        Ok(Ok(()))
    }
}

/// Why a file did not come whole, which another attempt may mend, and how long the server asks to wait.
struct Broken {
    error: anyhow::Error,
    asked: Duration,
}

/// What became of the file of the previous backup.
#[derive(Debug, PartialEq, Eq)]
enum Old {
    Linked,
    /// It is the same, but the file system has no hard links.
    CannotLink,
    /// It is not there, another one, or damaged.
    Differs,
}

/// Links a file of the previous backup, if it is unchanged and undamaged.
fn link(old: &Path, target: &Path, file: &BackupFile) -> Old {
    // The whole file is read: links must not spread damage of an older backup.
    if !fs::metadata(old).is_ok_and(|found| found.len() == file.bytes)
        || !file_crc32c(old).is_ok_and(|found| found == (file.bytes, file.crc32c))
    {
        return Old::Differs;
    }
    if fs::hard_link(old, target).is_ok() { Old::Linked } else { Old::CannotLink }
}

/// Removes all but the newest `keep` backups. Returns their number.
fn remove_but(dir: &Path, keep: u32) -> anyhow::Result<usize> {
    let all = catalog::complete(dir)?;
    let old = all.len().saturating_sub(saturate(keep));
    for backup in all.iter().take(old) {
        catalog::remove(backup)?;
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
    let shown = json!({
        "backup": target, "epoch": listing.epoch, "messages": listing.messages,
        "filesFetched": fetched.0, "bytesFetched": fetched.1,
        "filesLinked": linked.0, "bytesLinked": linked.1, "backupsRemoved": removed,
    });
    show(args.client.json, &shown, |_| {
        let (target, messages) = (target.display(), listing.messages);
        let (fetched_bytes, linked_bytes) = (size(fetched.1), size(linked.1));
        let (fetched, linked) = (fetched.0, linked.0);
        format!(
            "{target}: {}; fetched {} ({fetched_bytes}), linked {linked} ({linked_bytes}) from the previous backup, \
             removed {}\n",
            counted(messages, "message"),
            counted(fetched, "file"),
            counted(removed, "older backup")
        )
    })
}

#[cfg(test)]
mod tests;
