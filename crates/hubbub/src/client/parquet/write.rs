//! Collects rows by column, and writes a row group when there are enough.

use std::io::Write;
use std::sync::Arc;
use std::vec::IntoIter;

use anyhow::Context;
use hubbub_core::Timestamp;
use parquet::basic::{Compression, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
use parquet::errors::Result;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::ColumnPath;
use serde_json::{Map, Value};

use crate::client::export::row::cells;

/// The columns in the order of [`cells_of`]. Times have microseconds, as messages do.
const SCHEMA: &str = "message message {
    required binary roomId (STRING);
    required int64 seq;
    required binary messageId (STRING);
    required binary userId (STRING);
    optional binary username (STRING);
    required binary messageType (STRING);
    required int64 timestamp (TIMESTAMP(MICROS, true));
    required int64 receivedAt (TIMESTAMP(MICROS, true));
    required binary message (STRING);
}";

/// Columns without a dictionary, because their values rarely repeat.
const UNIQUE: [&str; 4] = ["seq", "messageId", "receivedAt", "message"];

/// Size of a row group, in rows and in bytes of memory.
const GROUP_ROWS: usize = 100_000;
const GROUP_BYTES: usize = 32 << 20;
/// Approximate overhead of a value in memory.
const VALUE_BYTES: usize = 64;

pub(in crate::client) struct Writer<W: Write + Send> {
    file: SerializedFileWriter<W>,
    rows: Vec<IntoIter<Option<Cell>>>,
    bytes: usize,
}

enum Cell {
    Text(ByteArray),
    Number(i64),
}

/// The values of a row in the order of the columns; `None` = null.
fn cells_of(row: &Map<String, Value>) -> anyhow::Result<Vec<Option<Cell>>> {
    let cell = |name: &str, value: &Value| {
        let text = value.as_str().unwrap_or_default();
        let cell = match name {
            "seq" => value.as_i64().map(Cell::Number),
            "timestamp" | "receivedAt" => Timestamp::parse(text).map(|time| Cell::Number(time.as_micros())),
            _ => value.is_string().then(|| Cell::Text(ByteArray::from(text))),
        };
        cell.with_context(|| format!("{value} is no {name}"))
    };
    cells(row)
        .map(|value| value.and_then(|(name, value)| value.map(|value| cell(name, value)).transpose()))
        .collect()
}

impl<W: Write + Send> Writer<W> {
    pub(in crate::client) fn new(output: W) -> anyhow::Result<Self> {
        let mut properties =
            WriterProperties::builder().set_compression(Compression::ZSTD(ZstdLevel::default()));
        for column in UNIQUE {
            properties = properties.set_column_dictionary_enabled(ColumnPath::from(column), false);
        }
        let schema = parse_message_type(SCHEMA).context("the columns of messages")?;
        let file = SerializedFileWriter::new(output, Arc::new(schema), Arc::new(properties.build()));
        let file = file.context("beginning the file")?;
        Ok(Self { file, rows: Vec::new(), bytes: 0 })
    }

    pub(in crate::client) fn write(&mut self, row: &Map<String, Value>) -> anyhow::Result<()> {
        let cells = cells_of(row)?;
        self.bytes += cells.iter().flatten().map(Cell::bytes).sum::<usize>();
        self.rows.push(cells.into_iter());
        if self.rows.len() >= GROUP_ROWS || self.bytes >= GROUP_BYTES { self.write_group() } else { Ok(()) }
    }

    fn write_group(&mut self) -> anyhow::Result<()> {
        self.bytes = 0;
        let mut rows = std::mem::take(&mut self.rows);
        let mut write = || -> Result<()> {
            let mut group = self.file.next_row_group()?;
            while let Some(mut column) = group.next_column()? {
                write_column(&mut column, rows.iter_mut().map(|row| row.next().flatten()))?;
                column.close()?;
            }
            group.close().map(drop)
        };
        write().context("writing the export")
    }

    /// Writes the last row group and the footer, and returns the output.
    pub(in crate::client) fn finish(mut self) -> anyhow::Result<W> {
        if !self.rows.is_empty() {
            self.write_group()?;
        }
        self.file.into_inner().context("writing the end of the export")
    }
}

impl Cell {
    fn bytes(&self) -> usize {
        match self {
            Self::Text(text) => text.len() + VALUE_BYTES,
            Self::Number(_) => VALUE_BYTES,
        }
    }
}

fn write_column(
    column: &mut SerializedColumnWriter<'_>,
    cells: impl Iterator<Item = Option<Cell>>,
) -> Result<usize> {
    let (mut texts, mut numbers, mut levels) = (Vec::new(), Vec::new(), Vec::new());
    for cell in cells {
        levels.push(i16::from(cell.is_some()));
        match cell {
            Some(Cell::Text(text)) => texts.push(text),
            Some(Cell::Number(number)) => numbers.push(number),
            None => {}
        }
    }
    if !numbers.is_empty() {
        return column.typed::<Int64Type>().write_batch(&numbers, None, None);
    }
    let column = column.typed::<ByteArrayType>();
    let is_optional = column.get_descriptor().max_def_level() > 0;
    column.write_batch(&texts, is_optional.then_some(levels.as_slice()), None)
}
