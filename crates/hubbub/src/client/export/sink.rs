//! Writes messages in one of the file formats.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::PathBuf;

use anyhow::Context;
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
    /// The file, its name until it is complete, and its name.
    file: Option<(File, PathBuf, PathBuf)>,
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
        let mut output: Box<dyn Write + Send> = Box::new(Stdout);
        let mut target = None;
        if let Some(path) = path {
            let mut partial = path.clone().into_os_string();
            partial.push(".partial");
            let partial = PathBuf::from(partial);
            let file = File::create(&partial).with_context(|| format!("creating {}", partial.display()))?;
            output = Box::new(file.try_clone().context("opening the file twice")?);
            target = Some((file, partial, path));
        }
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

    /// Writes the rest, and gives the file its name.
    pub(super) fn finish(self) -> anyhow::Result<()> {
        let mut output = match self.format {
            Format::Jsonl(output) | Format::Csv(output) => output,
            #[cfg(feature = "parquet")]
            Format::Parquet(writer) => writer.finish()?,
        };
        output.flush().context("writing the export")?;
        if let Some((file, partial, path)) = self.file {
            file.sync_all().with_context(|| format!("syncing {}", partial.display()))?;
            fs::rename(&partial, &path).with_context(|| format!("naming {}", path.display()))?;
        }
        Ok(())
    }
}

fn write_record(output: &mut Output, fields: &[impl AsRef<str>]) -> anyhow::Result<()> {
    let mut record = Vec::new();
    csv::write(fields, &mut record);
    output.write_all(&record).context("writing the export")
}
