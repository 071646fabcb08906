//! Reads the messages of a file, each as a JSON object.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use anyhow::{Context, bail};
use serde_json::{Map, Value};

use crate::cli::{FileFormat, ImportArgs};
use crate::client::csv::{self, Records};
use crate::client::export::row::COLUMNS;
#[cfg(feature = "parquet")]
use crate::client::parquet::Reader;
use crate::progress::Progress;

/// Columns that the server assigns itself.
const ASSIGNED_BY_SERVER: [&str; 2] = ["seq", "receivedAt"];
const MANDATORY: [&str; 3] = ["roomId", "userId", "message"];

/// The number of a line or row, and its message; `None` if it is invalid.
type NumberedMessage = (u64, Option<String>);

/// A file, or standard input.
pub(super) struct Source {
    /// Name of a message's position: line or row.
    pub(super) unit: &'static str,
    next: Box<dyn FnMut() -> anyhow::Result<Option<NumberedMessage>>>,
}

impl Source {
    /// Opens the file, and counts on `progress` what is read of it.
    pub(super) fn open(args: &ImportArgs, progress: &Progress) -> anyhow::Result<Self> {
        Ok(match format(args) {
            FileFormat::Jsonl => {
                let mut records = Records::new(reader(&args.file, progress)?, false);
                Self::new("line", move || Ok(records.next()?.map(|(line, record)| (line, Some(record)))))
            }
            FileFormat::Csv => {
                let mut records = Records::new(reader(&args.file, progress)?, true);
                let (_, header) = records.next()?.context("it is empty")?;
                let columns = csv::parse(&header).context("the names of the columns are not readable")?;
                check(columns.iter().map(String::as_str)).context("the first line must name the columns")?;
                let parse = move |(line, record): (u64, String)| (line, from_csv(&columns, &record));
                Self::new("line", move || Ok(records.next()?.map(&parse)))
            }
            #[cfg(feature = "parquet")]
            FileFormat::Parquet => {
                if args.file == Path::new("-") {
                    bail!("a Parquet file is read from its end: name the file instead of '-'");
                }
                let wanted: Vec<&str> = COLUMNS.into_iter().filter(|name| is_wanted(name)).collect();
                let mut reader = Reader::open(File::open(&args.file)?, &wanted)?;
                check(reader.columns())?;
                let (mut row, progress) = (0, progress.clone());
                Self::new("row", move || {
                    let message = reader.next().with_context(|| format!("behind row {row}"))?;
                    row += 1;
                    progress.add(1);
                    Ok(message.map(|message| (row, Some(Value::Object(message).to_string()))))
                })
            }
            #[cfg(not(feature = "parquet"))]
            FileFormat::Parquet => bail!(crate::client::NO_PARQUET),
        })
    }

    fn new(
        unit: &'static str,
        next: impl FnMut() -> anyhow::Result<Option<NumberedMessage>> + 'static,
    ) -> Self {
        Self { unit, next: Box::new(next) }
    }

    /// The next line or row; `None` at the end.
    pub(super) fn next(&mut self) -> anyhow::Result<Option<NumberedMessage>> {
        (self.next)()
    }
}

fn format(args: &ImportArgs) -> FileFormat {
    let is_called = |name: &str| args.file.extension().is_some_and(|end| end.eq_ignore_ascii_case(name));
    match args.format {
        Some(format) => format,
        None if is_called("csv") => FileFormat::Csv,
        None if is_called("parquet") => FileFormat::Parquet,
        None => FileFormat::Jsonl,
    }
}

/// Of the bytes of a file of text, or of the rows of another.
pub(super) fn progress(args: &ImportArgs) -> Progress {
    let length = std::fs::metadata(&args.file).ok().filter(|_| format(args) != FileFormat::Parquet);
    match length {
        Some(file) if file.is_file() => Progress::of_bytes("importing", file.len()),
        _ => Progress::of_messages("importing"),
    }
}

/// A file, or standard input, of which only the lines could be counted.
fn reader(path: &Path, progress: &Progress) -> anyhow::Result<Box<dyn BufRead>> {
    if path == Path::new("-") {
        return Ok(Box::new(BufReader::new(std::io::stdin())));
    }
    Ok(Box::new(BufReader::new(progress.reading(File::open(path)?))))
}

fn check<'a>(columns: impl Iterator<Item = &'a str>) -> anyhow::Result<()> {
    let columns: Vec<&str> = columns.collect();
    match MANDATORY.iter().find(|column| !columns.contains(column)) {
        Some(column) => bail!("there is no column '{column}'"),
        None => Ok(()),
    }
}

fn is_wanted(column: &str) -> bool {
    COLUMNS.contains(&column) && !ASSIGNED_BY_SERVER.contains(&column)
}

/// The JSON object of a record; empty fields are left out.
fn from_csv(columns: &[String], record: &str) -> Option<String> {
    let fields = csv::parse(record)?;
    (fields.len() == columns.len()).then_some(())?;
    let mut message = Map::new();
    for (name, value) in columns.iter().zip(fields) {
        if is_wanted(name) && !value.is_empty() {
            message.insert(name.clone(), value.into());
        }
    }
    Some(Value::Object(message).to_string())
}
