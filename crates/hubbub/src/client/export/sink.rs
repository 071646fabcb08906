//! Writes messages in one of the file formats.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

use anyhow::Context;
use serde_json::value::RawValue;

use super::row::{COLUMNS, Row};
use crate::cli::FileFormat;
use crate::client::csv;
#[cfg(feature = "parquet")]
use crate::client::parquet::Writer;

/// A writer of messages in one of the formats.
pub(super) enum Sink {
    Jsonl(Output),
    Csv(Output),
    #[cfg(feature = "parquet")]
    Parquet(Box<Writer<Output>>),
}

impl Sink {
    /// To a file, or to standard output.
    pub(super) fn create(format: FileFormat, path: Option<PathBuf>) -> anyhow::Result<Self> {
        Ok(match format {
            FileFormat::Jsonl => Self::Jsonl(Output::create(path)?),
            FileFormat::Csv => {
                let mut output = Output::create(path)?;
                output.write_record(&COLUMNS)?;
                Self::Csv(output)
            }
            #[cfg(feature = "parquet")]
            FileFormat::Parquet => Self::Parquet(Box::new(Writer::new(Output::create(path)?)?)),
            #[cfg(not(feature = "parquet"))]
            FileFormat::Parquet => anyhow::bail!(crate::client::NO_PARQUET),
        })
    }

    pub(super) fn write(&mut self, message: &RawValue) -> anyhow::Result<()> {
        let row = || serde_json::from_str::<Row<'_>>(message.get()).context("a message lacks a field");
        match self {
            Self::Jsonl(output) => {
                let line = [message.get(), "\n"];
                line.iter()
                    .try_for_each(|part| output.write_all(part.as_bytes()))
                    .context("writing the export")
            }
            Self::Csv(output) => {
                let row = row()?;
                output.write_record(&[
                    &*row.room_id,
                    &row.seq.to_string(),
                    &*row.message_id,
                    &*row.user_id,
                    row.username.as_deref().unwrap_or_default(),
                    &*row.message_type,
                    &*row.timestamp,
                    &*row.received_at,
                    &*row.message,
                ])
            }
            #[cfg(feature = "parquet")]
            Self::Parquet(writer) => writer.write(&row()?),
        }
    }

    /// Writes the rest, and gives the file its name.
    pub(super) fn finish(self) -> anyhow::Result<()> {
        match self {
            Self::Jsonl(output) | Self::Csv(output) => output.finish(),
            #[cfg(feature = "parquet")]
            Self::Parquet(writer) => writer.finish()?.finish(),
        }
    }
}

/// Standard output, or a file that gets its name only when it is complete.
pub(super) struct Output {
    writer: BufWriter<Box<dyn Write + Send>>,
    file: Option<(File, PathBuf, PathBuf)>,
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.writer.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

impl Output {
    fn create(path: Option<PathBuf>) -> anyhow::Result<Self> {
        let Some(path) = path else {
            return Ok(Self { writer: BufWriter::new(Box::new(io::stdout())), file: None });
        };
        let mut partial = path.clone().into_os_string();
        partial.push(".partial");
        let partial = PathBuf::from(partial);
        let file = File::create(&partial).with_context(|| format!("creating {}", partial.display()))?;
        let writer: Box<dyn Write + Send> = Box::new(file.try_clone().context("opening the file twice")?);
        Ok(Self { writer: BufWriter::new(writer), file: Some((file, partial, path)) })
    }

    /// Writes a record of CSV.
    fn write_record(&mut self, fields: &[&str]) -> anyhow::Result<()> {
        let mut record = Vec::new();
        csv::write(fields, &mut record);
        self.writer.write_all(&record).context("writing the export")
    }

    fn finish(mut self) -> anyhow::Result<()> {
        self.writer.flush().context("writing the export")?;
        if let Some((file, partial, path)) = self.file {
            file.sync_all().with_context(|| format!("syncing {}", partial.display()))?;
            fs::rename(&partial, &path).with_context(|| format!("naming {}", path.display()))?;
        }
        Ok(())
    }
}
