//! `hubbub backup`: an incremental backup of a running server. Files that the previous backup has are linked.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use crc32c::crc32c_append;
use http_body_util::BodyExt;
use hubbub_core::Clock;
use hubbub_core::backup::BackupFile;
use hubbub_core::invariant::saturate;
use hubbub_store::embedded::file_crc32c;
use hyper::Method;
use serde::Deserialize;
use serde_json::json;
use tokio::time::{Instant, sleep_until};

use super::catalog::{self, LIST, Listing};
use super::{lock_directory, size, sync_dir};
use crate::cli::BackupArgs;
use crate::client::connection::{Connection, TIMEOUT};
use crate::client::session::make_id;
use crate::client::show;
use crate::progress::Progress;
use crate::system::SystemClock;

/// The server may have to wait for a merge before it begins.
const BEGIN_MAX: Duration = Duration::from_secs(600);

/// The server lets go of a backup that nobody asks for in an hour, and reading a large file of the previous one may take as
/// long.
const ASK_EVERY: Duration = Duration::from_secs(300);

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
    fs::create_dir_all(&args.dir).with_context(|| format!("creating {}", args.dir.display()))?;
    let _lock = lock_directory(&args.dir, ".lock", "backup")?;
    catalog::remove_partial(&args.dir)?;

    let now = SystemClock::new().now();
    let path = format!("/v1/backups/{}", make_id());
    let begun = Begun::ask(&mut connection, &path).await?;
    let listing = Listing::new(now, begun.epoch, begun.messages, begun.files);
    let previous = catalog::complete(&args.dir)?.pop();
    let target = catalog::new_name(&args.dir, now, previous.as_deref());
    let progress = Progress::of_bytes("backing up", listing.files.iter().map(|file| file.bytes).sum());
    let mut job = Job {
        connection,
        progress,
        path,
        asked: Instant::now(),
        partial: catalog::partial_of(&target),
        previous,
        copied: Copied::default(),
        pace: Pace { begun: Instant::now(), bytes: 0, bytes_per_second: u64::from(args.rate) * 1_000_000 },
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
    partial: PathBuf,
    previous: Option<PathBuf>,
    copied: Copied,
    pace: Pace,
}

/// Limits the rate of writing.
struct Pace {
    begun: Instant,
    bytes: u64,
    /// 0 = unlimited.
    bytes_per_second: u64,
}

impl Pace {
    async fn wait(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
        if let Some(micros) = self.bytes.saturating_mul(1_000_000).checked_div(self.bytes_per_second) {
            tokio::time::sleep_until(self.begun + Duration::from_micros(micros)).await;
        }
    }
}

/// Bytes between two syncs. Small, so that syncs of the server's journal do not wait for a large one.
const SYNC_BYTES: u64 = 1_000_000;

impl Job {
    async fn make(&mut self, listing: &Listing) -> anyhow::Result<()> {
        let mut dirs = BTreeSet::new();
        for file in &listing.files {
            let target = self.target(file)?;
            if let Some(dir) = target.parent().filter(|dir| !dirs.contains(*dir)) {
                fs::create_dir_all(dir).with_context(|| format!("creating {}", dir.display()))?;
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
        if let Some(old) = self.previous.as_ref().map(|previous| previous.join(&file.name))
            && self.link(old, target.clone(), file, listing).await?
        {
            self.copied.linked.0 += 1;
            self.copied.linked.1 += file.bytes;
            self.progress.add(file.bytes);
            return Ok(());
        }
        self.fetch(file, &target).await.with_context(|| format!("fetching {}", file.name))?;
        self.copied.fetched.0 += 1;
        self.copied.fetched.1 += file.bytes;
        Ok(())
    }

    /// Does what [`link`] does, and asks for the backup again now and then, so that the server keeps it meanwhile.
    async fn link(
        &mut self,
        old: PathBuf,
        target: PathBuf,
        file: &BackupFile,
        listing: &Listing,
    ) -> anyhow::Result<bool> {
        let file = file.clone();
        let mut linking = tokio::task::spawn_blocking(move || link(&old, &target, &file));
        loop {
            tokio::select! {
                biased;
                () = sleep_until(self.asked + ASK_EVERY) => {}
                linked = &mut linking => return linked.context("linking ended early")?,
            }
            // One question without an answer does no harm: there are several in the time that the server waits.
            if let Ok(begun) = Begun::ask(&mut self.connection, &self.path).await
                && begun.files != listing.files
            {
                bail!("the server has let go of the backup; begin it again");
            }
            self.asked = Instant::now();
        }
    }

    async fn fetch(&mut self, file: &BackupFile, target: &Path) -> anyhow::Result<()> {
        let path = format!("{}/files/{}", self.path, file.name.replace('/', "%2F"));
        let response = self.connection.begin(Method::GET, &path).await.context("begin the backup again")?;
        let mut body = response.into_body();
        let mut writer = File::create(target).with_context(|| format!("creating {}", target.display()))?;
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
            self.progress.add(piece.len() as u64);
            self.pace.wait(piece.len()).await;
        }
        if (bytes, crc) != (file.bytes, file.crc32c) {
            bail!("length or checksum differ from the server's; run 'hubbub verify' on its data");
        }
        writer.sync_all().with_context(|| format!("syncing {}", target.display()))
    }
}

/// Links a file of the previous backup, if it is unchanged and undamaged. Returns whether it did.
fn link(old: &Path, target: &Path, file: &BackupFile) -> anyhow::Result<bool> {
    // The whole file is read: links must not spread damage of an older backup.
    if !fs::metadata(old).is_ok_and(|found| found.len() == file.bytes)
        || !file_crc32c(old).is_ok_and(|found| found == (file.bytes, file.crc32c))
    {
        return Ok(false);
    }
    if fs::hard_link(old, target).is_ok() {
        return Ok(true);
    }
    // Some file systems do not support hard links.
    fs::copy(old, target).with_context(|| format!("copying {}", old.display()))?;
    File::open(target)
        .and_then(|file| file.sync_all())
        .with_context(|| format!("syncing {}", target.display()))?;
    Ok(true)
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
            "{target}: {messages} messages; fetched {fetched} files ({fetched_bytes}), \
             linked {linked} ({linked_bytes}) from the previous backup, removed {removed} older backups\n"
        )
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;
    use crate::client::address::Server;

    /// Answers every request as a server that has a backup of these files. Also says how many requests there were.
    async fn server(files: &[BackupFile]) -> (Connection, Arc<AtomicUsize>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server: Server = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        let body = json!({"epoch": "e", "messages": 1, "files": files}).to_string();
        let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&asked);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut request = Vec::new();
                while stream.read_buf(&mut request).await.unwrap_or(0) > 0 {
                    if request.ends_with(b"\r\n\r\n") {
                        counted.fetch_add(1, Ordering::Relaxed);
                        request.clear();
                        stream.write_all(answer.as_bytes()).await.unwrap();
                    }
                }
            }
        });
        (server.connection(), asked)
    }

    #[tokio::test]
    async fn a_backup_is_asked_for_while_old_files_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let bytes = vec![7; 4 << 20];
        let file = BackupFile { name: "a".into(), bytes: 4 << 20, crc32c: crc32c::crc32c(&bytes) };
        fs::write(dir.path().join("a"), bytes).unwrap();
        let listing = Listing::new(SystemClock::new().now(), "e".into(), 1, vec![file.clone()]);
        // Another list is that of another backup, which the server began for want of this one.
        for (is_kept, waited) in [(true, Duration::ZERO), (true, 2 * ASK_EVERY), (false, 2 * ASK_EVERY)] {
            let (connection, asked) = server(if is_kept { &listing.files } else { &[] }).await;
            let mut job = Job {
                connection,
                progress: Progress::of_bytes("backing up", 0),
                path: "/v1/backups/b".into(),
                asked: Instant::now().checked_sub(waited).unwrap(),
                partial: PathBuf::new(),
                previous: None,
                copied: Copied::default(),
                pace: Pace { begun: Instant::now(), bytes: 0, bytes_per_second: 0 },
            };
            let target = dir.path().join(format!("{is_kept} {waited:?}"));
            let linked = job.link(dir.path().join("a"), target, &file, &listing).await;
            assert_eq!(linked.is_ok_and(|linked| linked), is_kept);
            assert_eq!(asked.load(Ordering::Relaxed), usize::from(!waited.is_zero()));
        }
    }
}
