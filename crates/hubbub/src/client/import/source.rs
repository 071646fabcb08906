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

/// Columns that the server assigns itself.
const ASSIGNED_BY_SERVER: [&str; 2] = ["seq", "receivedAt"];
const MANDATORY: [&str; 3] = ["roomId", "userId", "message"];

pub(super) enum Source {
    Jsonl(Records<Box<dyn BufRead>>),
    Csv(Records<Box<dyn BufRead>>, Vec<String>),
    /// A reader, and the number of rows read.
    #[cfg(feature = "parquet")]
    Parquet(Box<Reader>, u64),
}

impl Source {
    pub(super) fn open(args: &ImportArgs) -> anyhow::Result<Self> {
        let is_called = |name: &str| args.file.extension().is_some_and(|end| end.eq_ignore_ascii_case(name));
        let format = match args.format {
            Some(format) => format,
            None if is_called("csv") => FileFormat::Csv,
            None if is_called("parquet") => FileFormat::Parquet,
            None => FileFormat::Jsonl,
        };
        match format {
            FileFormat::Jsonl => Ok(Self::Jsonl(Records::new(reader(&args.file)?, false))),
            FileFormat::Csv => {
                let mut records = Records::new(reader(&args.file)?, true);
                let (_, header) = records.next()?.context("it is empty")?;
                let columns = csv::parse(&header).context("the names of the columns are not readable")?;
                check(columns.iter().map(String::as_str)).context("the first line must name the columns")?;
                Ok(Self::Csv(records, columns))
            }
            #[cfg(feature = "parquet")]
            FileFormat::Parquet => {
                if args.file == Path::new("-") {
                    bail!("a Parquet file is read from its end: name the file instead of '-'");
                }
                let wanted: Vec<&str> = COLUMNS.into_iter().filter(|name| is_wanted(name)).collect();
                let reader = Reader::open(File::open(&args.file)?, &wanted)?;
                check(reader.columns())?;
                Ok(Self::Parquet(Box::new(reader), 0))
            }
            #[cfg(not(feature = "parquet"))]
            FileFormat::Parquet => bail!(crate::client::NO_PARQUET),
        }
    }

    /// Name of a message's position: line or row.
    pub(super) fn unit(&self) -> &'static str {
        match self {
            Self::Jsonl(_) | Self::Csv(..) => "line",
            #[cfg(feature = "parquet")]
            Self::Parquet(..) => "row",
        }
    }

    /// The next line or row: its number and message, which is `None` if it is invalid. `None` at the end.
    pub(super) fn next(&mut self) -> anyhow::Result<Option<(u64, Option<String>)>> {
        match self {
            Self::Jsonl(records) => Ok(records.next()?.map(|(line, record)| (line, Some(record)))),
            Self::Csv(records, columns) => {
                Ok(records.next()?.map(|(line, record)| (line, from_csv(columns, &record))))
            }
            #[cfg(feature = "parquet")]
            Self::Parquet(reader, row) => {
                let Some(message) = reader.next().with_context(|| format!("behind row {row}"))? else {
                    return Ok(None);
                };
                *row += 1;
                Ok(Some((*row, Some(Value::Object(message).to_string()))))
            }
        }
    }
}

fn reader(path: &Path) -> anyhow::Result<Box<dyn BufRead>> {
    if path == Path::new("-") {
        return Ok(Box::new(BufReader::new(std::io::stdin())));
    }
    Ok(Box::new(BufReader::new(File::open(path)?)))
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
