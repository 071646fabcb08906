//! Writes messages in one of the file formats.

use std::fs::{self, File, Metadata, OpenOptions, TryLockError};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use serde_json::Value;
use serde_json::value::RawValue;

use super::row::{COLUMNS, cells};
use crate::cli::FileFormat;
use crate::client::csv;
#[cfg(feature = "parquet")]
use crate::client::parquet::Writer;
use crate::output::Stdout;

type Output = BufWriter<Box<dyn Write + Send>>;

/// A writer of messages, to standard output or to a file that gets its name only when it is complete.
pub(super) struct Sink {
    format: Format,
    file: Option<Target>,
}

/// A file that is to have a name. What there is of it is removed if it does not get that, so that it fills no disk.
struct Target {
    file: File,
    /// Its name until it is complete.
    partial: PathBuf,
    path: PathBuf,
    is_named: bool,
}

impl Target {
    /// Another handle of the file.
    fn handle(&self) -> anyhow::Result<File> {
        self.file.try_clone().context("opening the file twice")
    }

    /// Gives it its name, once it is synced, so that a power cut does not take it back.
    fn name(mut self) -> anyhow::Result<()> {
        let Self { file, partial, path, .. } = &self;
        let naming = || format!("naming {}", path.display());
        // Where the file system has no locks.
        if !is_at(file, partial).with_context(naming)? {
            bail!("another export to {} took the place of this one", path.display());
        }
        fs::rename(partial, path).with_context(naming)?;
        let synced = sync_above(path).with_context(naming);
        self.is_named = true;
        synced
    }
}

/// Makes the name of a file durable, where the file system can do that and the directory may be opened.
fn sync_above(path: &Path) -> io::Result<()> {
    let above = path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let synced = File::open(above).and_then(|above| above.sync_all());
    let cannot = [io::ErrorKind::PermissionDenied, io::ErrorKind::InvalidInput, io::ErrorKind::Unsupported];
    synced.or_else(|error| if cannot.contains(&error.kind()) { Ok(()) } else { Err(error) })
}

impl Drop for Target {
    /// The file is locked until after this.
    fn drop(&mut self) {
        if !self.is_named && is_at(&self.file, &self.partial).is_ok_and(|is_at| is_at) {
            // If this fails, the next export to the place removes it.
            let _ = fs::remove_file(&self.partial);
        }
    }
}

/// Opens what `path` names, or the file it is to become. What is there and is no file, such as a pipe, is written to; the name of
/// a link is that of what it leads to; and a file that is replaced may be read by whom it could be read by before.
fn open(path: &Path) -> anyhow::Result<(Box<dyn Write + Send>, Option<Target>)> {
    let before = fs::metadata(path).ok();
    if before.as_ref().is_some_and(|before| !before.is_file()) {
        let opened = OpenOptions::new().write(true).open(path);
        return Ok((Box::new(opened.with_context(|| format!("opening {}", path.display()))?), None));
    }
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let mut partial = path.clone().into_os_string();
    partial.push(".partial");
    let partial = PathBuf::from(partial);
    let file = open_partial(&partial, &path)?;
    let target = Target { file, partial, path, is_named: false };
    if let Some(before) = before {
        let kept = target.file.set_permissions(before.permissions());
        kept.with_context(|| format!("setting the permissions of {}", target.partial.display()))?;
    }
    let output = Box::new(target.handle()?);
    Ok((output, Some(target)))
}

/// Only the owner reads what others wrote in their rooms.
const MODE: u32 = 0o600;

/// The new file `partial` that is to become `path`, locked until the last handle of it is dropped: another export would
/// write into what is named once this one is complete. What an export left there that was killed is removed, as it may be
/// anybody's and readable by everybody.
fn open_partial(partial: &Path, path: &Path) -> anyhow::Result<File> {
    let locking = || format!("locking {}", partial.display());
    let creating = || format!("creating {}", partial.display());
    loop {
        let new = OpenOptions::new().write(true).create_new(true).mode(MODE).open(partial);
        let (file, is_new) = match new {
            Ok(file) => (file, true),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                match OpenOptions::new().write(true).open(partial) {
                    Ok(file) => (file, false),
                    // But for a link that leads nowhere, it was removed in between.
                    Err(error) if error.kind() == io::ErrorKind::NotFound && !partial.is_symlink() => {
                        continue;
                    }
                    Err(error) => return Err(error).with_context(creating),
                }
            }
            Err(error) => return Err(error).with_context(creating),
        };
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => bail!("another export to {} is running", path.display()),
            // Not every file system has locks.
            Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => {}
            Err(TryLockError::Error(error)) => return Err(error).with_context(locking),
        }
        // An export that ended in between has given the file its name, or removed it.
        if !is_at(&file, partial).with_context(locking)? {
            continue;
        }
        if is_new {
            return Ok(file);
        }
        fs::remove_file(partial).with_context(|| format!("removing {}", partial.display()))?;
    }
}

/// Whether this is the file of that name.
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let id = |metadata: &Metadata| (metadata.dev(), metadata.ino());
    match fs::metadata(path) {
        Ok(there) => Ok(id(&there) == id(&file.metadata()?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

enum Format {
    Jsonl(Output),
    Csv(Output),
    #[cfg(feature = "parquet")]
    Parquet(Box<Writer<Output>>),
}

impl Sink {
    pub(super) fn create(format: FileFormat, path: Option<PathBuf>) -> anyhow::Result<Self> {
        #[cfg(not(feature = "parquet"))]
        anyhow::ensure!(format != FileFormat::Parquet, crate::client::NO_PARQUET);
        let (output, target) = match path {
            None => (Box::new(Stdout) as Box<dyn Write + Send>, None),
            Some(path) => open(&path)?,
        };
        let mut output = BufWriter::new(output);
        let format = match format {
            FileFormat::Jsonl => Format::Jsonl(output),
            FileFormat::Csv => {
                write_record(&mut output, &COLUMNS)?;
                Format::Csv(output)
            }
            #[cfg(feature = "parquet")]
            FileFormat::Parquet => Format::Parquet(Box::new(Writer::new(output)?)),
            #[cfg(not(feature = "parquet"))]
            FileFormat::Parquet => anyhow::bail!(crate::client::NO_PARQUET),
        };
        Ok(Self { format, file: target })
    }

    /// Whether it writes a file, which takes it at once.
    pub(super) fn is_file(&self) -> bool {
        self.file.is_some()
    }

    pub(super) fn write(&mut self, message: &RawValue) -> anyhow::Result<()> {
        let row = || serde_json::from_str(message.get()).context("a message is not an object");
        match &mut self.format {
            Format::Jsonl(output) => writeln!(output, "{}", message.get()).context("writing the export"),
            Format::Csv(output) => {
                let row = row()?;
                let texts = cells(&row).map(|cell| {
                    cell.map(|(_, value)| match value {
                        Some(Value::String(text)) => text.clone(),
                        value => value.map(Value::to_string).unwrap_or_default(),
                    })
                });
                write_record(output, &texts.collect::<anyhow::Result<Vec<_>>>()?)
            }
            #[cfg(feature = "parquet")]
            Format::Parquet(writer) => writer.write(&row()?),
        }
    }

    /// Writes the rest, and gives the file its name. To sync a large file takes long: until it has its name, it is removed if
    /// this is dropped.
    pub(super) async fn finish(self) -> anyhow::Result<()> {
        let Self { format, file } = self;
        let synced = file.as_ref().map(Target::handle).transpose()?;
        let writing = tokio::task::spawn_blocking(move || {
            format.finish()?;
            synced.map_or(Ok(()), |file| file.sync_all()).context("syncing the export")
        });
        writing.await.context("writing the export ended early")??;
        file.map_or(Ok(()), Target::name)
    }
}

impl Format {
    /// Writes the rest.
    fn finish(self) -> anyhow::Result<()> {
        let mut output = match self {
            Self::Jsonl(output) | Self::Csv(output) => output,
            #[cfg(feature = "parquet")]
            Self::Parquet(writer) => writer.finish()?,
        };
        output.flush().context("writing the export")
    }
}

fn write_record(output: &mut Output, fields: &[impl AsRef<str>]) -> anyhow::Result<()> {
    let mut record = Vec::new();
    csv::write(fields, &mut record);
    output.write_all(&record).context("writing the export")
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn export_to(path: &Path) -> anyhow::Result<Sink> {
        Sink::create(FileFormat::Jsonl, Some(path.to_owned()))
    }

    fn write(sink: &mut Sink, message: &str) {
        sink.write(&RawValue::from_string(message.to_owned()).unwrap()).unwrap();
    }

    #[tokio::test]
    async fn one_export_at_a_time_goes_to_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("all.jsonl");
        let mut first = export_to(&path).unwrap();
        write(&mut first, "1");
        let refused = export_to(&path).err().unwrap().to_string();
        assert!(refused.starts_with("another export to ") && refused.contains("all.jsonl"), "{refused}");
        let mut beside = export_to(&dir.path().join("other.jsonl")).unwrap();
        write(&mut first, "2");
        first.finish().await.unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "1\n2\n");
        // One that was given up is in nobody's way, and nothing of it is left.
        let mut given_up = export_to(&path).unwrap();
        write(&mut given_up, "\"a long line that nobody gets\"");
        drop(given_up);
        assert!(!dir.path().join("all.jsonl.partial").exists());
        let mut second = export_to(&path).unwrap();
        write(&mut second, "3");
        assert_eq!(fs::read_to_string(&path).unwrap(), "1\n2\n");
        second.finish().await.unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "3\n");
        write(&mut beside, "4");
        beside.finish().await.unwrap();
    }

    #[test]
    fn an_export_is_given_up_while_its_end_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let (path, partial) = (dir.path().join("x"), dir.path().join("x.partial"));
        let mut threads = tokio::runtime::Builder::new_current_thread();
        let runtime = threads.max_blocking_threads(1).build().unwrap();
        // The one thread that could write has something else to do.
        let (until, waits) = std::sync::mpsc::channel::<()>();
        runtime.spawn_blocking(move || waits.recv());
        let mut sink = export_to(&path).unwrap();
        write(&mut sink, "1");
        runtime.block_on(async {
            tokio::select! {
                biased;
                finished = sink.finish() => panic!("{finished:?}"),
                () = std::future::ready(()) => {}
            }
        });
        assert!(!partial.exists() && !path.exists());
        drop(until);
    }

    /// A full disk does not stay full, and nobody else reads what is exported.
    #[tokio::test]
    async fn what_is_left_of_another_export_is_not_reused() {
        let dir = tempfile::tempdir().unwrap();
        let (path, partial) = (dir.path().join("x"), dir.path().join("x.partial"));
        fs::write(&partial, "left over").unwrap();
        fs::set_permissions(&partial, Permissions::from_mode(0o644)).unwrap();
        let (left, mode) = (File::open(&partial).unwrap(), |path| fs::metadata(path).unwrap().mode() & 0o777);
        let mut sink = export_to(&path).unwrap();
        assert!(
            mode(&partial) == 0o600 && !is_at(&left, &partial).unwrap(),
            "whoever opened it reads no more"
        );
        write(&mut sink, "1");
        sink.finish().await.unwrap();
        assert_eq!((mode(&path), fs::read_to_string(&path).unwrap().as_str()), (0o600, "1\n"));
        // Who may read what is replaced, may read what replaces it.
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        export_to(&path).unwrap().finish().await.unwrap();
        assert_eq!(mode(&path), 0o640);
    }

    /// Whoever opened the file before it was named must not write to it.
    #[test]
    fn a_file_that_was_named_is_no_partial_one() {
        let dir = tempfile::tempdir().unwrap();
        let (partial, path) = (dir.path().join("x.partial"), dir.path().join("x"));
        let file = open_partial(&partial, &path).unwrap();
        assert!(is_at(&file, &partial).unwrap());
        fs::rename(&partial, &path).unwrap();
        assert!(!is_at(&file, &partial).unwrap(), "there is none");
        let next = open_partial(&partial, &path).unwrap();
        assert!(!is_at(&file, &partial).unwrap() && is_at(&next, &partial).unwrap());
    }
}
