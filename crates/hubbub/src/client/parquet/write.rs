//! Collects rows by column, and writes a row group when there are enough.

use std::io::Write;
use std::sync::Arc;

use anyhow::Context;
use hubbub_core::Timestamp;
use parquet::basic::{Compression, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
use parquet::errors::Result;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::ColumnPath;

use crate::client::export::row::Row;

/// The columns of [`Columns`], in its order. Times have microseconds, as messages do.
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

/// Writes rows into a file.
pub(in crate::client) struct Writer<W: Write + Send> {
    file: SerializedFileWriter<W>,
    columns: Columns,
    rows: usize,
    bytes: usize,
}

/// Collected rows, by column.
#[derive(Default)]
struct Columns {
    room: Vec<ByteArray>,
    seq: Vec<i64>,
    id: Vec<ByteArray>,
    user: Vec<ByteArray>,
    username: Vec<ByteArray>,
    /// 1 for each row with a name, 0 for each without.
    has_username: Vec<i16>,
    kind: Vec<ByteArray>,
    timestamp: Vec<i64>,
    received_at: Vec<i64>,
    message: Vec<ByteArray>,
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
        Ok(Self { file, columns: Columns::default(), rows: 0, bytes: 0 })
    }

    pub(in crate::client) fn write(&mut self, row: &Row<'_>) -> anyhow::Result<()> {
        let columns = &mut self.columns;
        columns.seq.push(i64::try_from(row.seq).with_context(|| format!("seq {}", row.seq))?);
        columns.timestamp.push(micros(&row.timestamp)?);
        columns.received_at.push(micros(&row.received_at)?);
        columns.has_username.push(i16::from(row.username.is_some()));
        let texts = [
            (&mut columns.room, Some(&row.room_id)),
            (&mut columns.id, Some(&row.message_id)),
            (&mut columns.user, Some(&row.user_id)),
            (&mut columns.username, row.username.as_ref()),
            (&mut columns.kind, Some(&row.message_type)),
            (&mut columns.message, Some(&row.message)),
        ];
        for (column, text) in texts {
            if let Some(text) = text {
                column.push(ByteArray::from(&**text));
                self.bytes += text.len() + VALUE_BYTES;
            }
        }
        self.rows += 1;
        if self.rows >= GROUP_ROWS || self.bytes >= GROUP_BYTES { self.write_group() } else { Ok(()) }
    }

    fn write_group(&mut self) -> anyhow::Result<()> {
        let Columns { room, seq, id, user, username, has_username, kind, timestamp, received_at, message } =
            std::mem::take(&mut self.columns);
        (self.rows, self.bytes) = (0, 0);
        let texts = |values: Vec<ByteArray>| {
            move |column: &mut SerializedColumnWriter<'_>| {
                column.typed::<ByteArrayType>().write_batch(&values, None, None)
            }
        };
        let numbers = |values: Vec<i64>| {
            move |column: &mut SerializedColumnWriter<'_>| {
                column.typed::<Int64Type>().write_batch(&values, None, None)
            }
        };
        let write = || -> Result<()> {
            let mut group = self.file.next_row_group()?;
            let mut next = |write: &dyn Fn(&mut SerializedColumnWriter<'_>) -> Result<usize>| {
                let Some(mut column) = group.next_column()? else { return Ok(()) };
                write(&mut column)?;
                column.close()
            };
            next(&texts(room))?;
            next(&numbers(seq))?;
            next(&texts(id))?;
            next(&texts(user))?;
            next(&|column| {
                column.typed::<ByteArrayType>().write_batch(&username, Some(&has_username), None)
            })?;
            next(&texts(kind))?;
            next(&numbers(timestamp))?;
            next(&numbers(received_at))?;
            next(&texts(message))?;
            group.close().map(drop)
        };
        write().context("writing the export")
    }

    /// Writes the last row group and the footer, and returns the output.
    pub(in crate::client) fn finish(mut self) -> anyhow::Result<W> {
        if self.rows > 0 {
            self.write_group()?;
        }
        self.file.into_inner().context("writing the end of the export")
    }
}

fn micros(time: &str) -> anyhow::Result<i64> {
    Ok(Timestamp::parse(time).with_context(|| format!("'{time}' is not a time"))?.as_micros())
}
