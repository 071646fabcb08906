//! Reads rows in batches: only a few pages of each column are in memory.

use std::collections::VecDeque;
use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};

use anyhow::{Context, anyhow, bail, ensure};
use hubbub_core::Timestamp;
use parquet::basic::{ConvertedType, LogicalType, TimeUnit, Type};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{ByteArray, DataType};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::schema::types::ColumnDescriptor;
use serde_json::{Map, Value};

/// Rows read at once.
const BATCH_ROWS: usize = 256;

/// Reads the requested columns, of which a file may lack some.
pub(in crate::client) struct Reader {
    file: SerializedFileReader<File>,
    wanted: Vec<Column>,
    /// Number of row groups begun so far.
    groups: usize,
    /// Columns of the current row group, and the number of its unread rows.
    readers: Vec<ColumnReader>,
    left: usize,
    rows: VecDeque<Map<String, Value>>,
}

#[derive(Debug)]
struct Column {
    name: String,
    index: usize,
    kind: Kind,
    is_optional: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Number,
    Time(TimeUnit),
}

impl Reader {
    pub(in crate::client) fn open(file: File, wanted: &[&str]) -> anyhow::Result<Self> {
        let file =
            catch_panics(|| SerializedFileReader::new(file).context("it is no Parquet file, or damaged"))?;
        let schema = file.metadata().file_metadata().schema_descr();
        let mut columns = Vec::new();
        for (index, column) in schema.columns().iter().enumerate() {
            if let [name] = column.path().parts()
                && wanted.contains(&name.as_str())
            {
                let kind = kind(column).with_context(|| format!("the column '{name}'"))?;
                let is_optional = column.max_def_level() > 0;
                columns.push(Column { name: name.clone(), index, kind, is_optional });
            }
        }
        Ok(Self { file, wanted: columns, groups: 0, readers: Vec::new(), left: 0, rows: VecDeque::new() })
    }

    /// Names of the requested columns that the file has.
    pub(in crate::client) fn columns(&self) -> impl Iterator<Item = &str> {
        self.wanted.iter().map(|column| column.name.as_str())
    }

    /// The next row without its null values; `None` at the end.
    pub(in crate::client) fn next(&mut self) -> anyhow::Result<Option<Map<String, Value>>> {
        while self.rows.is_empty() {
            if self.left == 0 {
                if self.groups == self.file.num_row_groups() {
                    return Ok(None);
                }
                self.begin_group()?;
            } else {
                self.read_some()?;
            }
        }
        Ok(self.rows.pop_front())
    }

    fn begin_group(&mut self) -> anyhow::Result<()> {
        let group = self.groups;
        self.groups += 1;
        let (file, wanted) = (&self.file, &self.wanted);
        let begun = catch_panics(|| {
            let group = file.get_row_group(group)?;
            let left = usize::try_from(group.metadata().num_rows())?;
            let readers: Result<_, _> =
                wanted.iter().map(|column| group.get_column_reader(column.index)).collect();
            Ok((readers?, left))
        });
        (self.readers, self.left) = begun.with_context(|| format!("row group {group}"))?;
        Ok(())
    }

    fn read_some(&mut self) -> anyhow::Result<()> {
        let count = self.left.min(BATCH_ROWS);
        self.left -= count;
        let mut rows = vec![Map::new(); count];
        for (column, reader) in self.wanted.iter().zip(&mut self.readers) {
            let values = catch_panics(|| values(reader, column, count));
            let values = values.with_context(|| format!("the column '{}'", column.name))?;
            for (row, value) in rows.iter_mut().zip(values) {
                if !value.is_null() {
                    row.insert(column.name.clone(), value);
                }
            }
        }
        self.rows.extend(rows);
        Ok(())
    }
}

/// The type of a column.
fn kind(column: &ColumnDescriptor) -> anyhow::Result<Kind> {
    ensure!(column.max_rep_level() == 0, "holds lists");
    let of_converted = match column.converted_type() {
        ConvertedType::TIMESTAMP_MILLIS => Some(TimeUnit::MILLIS),
        ConvertedType::TIMESTAMP_MICROS => Some(TimeUnit::MICROS),
        _ => None,
    };
    let unit = match column.logical_type_ref() {
        Some(LogicalType::Timestamp(time)) => Some(time.unit),
        _ => of_converted,
    };
    match (column.physical_type(), unit) {
        (Type::BYTE_ARRAY, _) => Ok(Kind::Text),
        (Type::INT64, Some(unit)) => Ok(Kind::Time(unit)),
        (Type::INT64 | Type::INT32, None) => Ok(Kind::Number),
        (other, _) => bail!("holds {other}: texts, whole numbers and times are understood"),
    }
}

/// The next values of a column, with nulls.
fn values(reader: &mut ColumnReader, column: &Column, count: usize) -> anyhow::Result<Vec<Value>> {
    let (found, levels): (Vec<Value>, _) = match reader {
        ColumnReader::ByteArrayColumnReader(reader) => {
            let (values, levels) = records(reader, count)?;
            let texts = values.iter().map(|value| Ok(text(value)?.into()));
            (texts.collect::<anyhow::Result<_>>()?, levels)
        }
        ColumnReader::Int64ColumnReader(reader) => {
            let (values, levels) = records(reader, count)?;
            (values.into_iter().map(|value| number(value, column.kind)).collect(), levels)
        }
        ColumnReader::Int32ColumnReader(reader) => {
            let (values, levels) = records(reader, count)?;
            (values.into_iter().map(|value| number(value.into(), column.kind)).collect(), levels)
        }
        _ => bail!("is of another type here than in the schema"),
    };
    if !column.is_optional {
        return Ok(found);
    }
    let mut found = found.into_iter();
    // The column is at the top level, so its definition level is 1 where it has a value.
    Ok(levels
        .iter()
        .map(|level| if *level > 0 { found.next().unwrap_or_default() } else { Value::Null })
        .collect())
}

/// Exactly `count` records: the values that are not null, and the definition levels.
fn records<T: DataType>(
    reader: &mut ColumnReaderImpl<T>,
    count: usize,
) -> anyhow::Result<(Vec<T::T>, Vec<i16>)> {
    let (mut values, mut levels) = (Vec::with_capacity(count), Vec::new());
    let (read, ..) = reader.read_records(count, Some(&mut levels), None, &mut values)?;
    ensure!(read == count, "ends before the others");
    Ok((values, levels))
}

fn text(value: &ByteArray) -> anyhow::Result<&str> {
    std::str::from_utf8(value.data()).context("is not UTF-8")
}

fn number(value: i64, kind: Kind) -> Value {
    let micros = match kind {
        Kind::Time(TimeUnit::MILLIS) => value.saturating_mul(1_000),
        Kind::Time(TimeUnit::MICROS) => value,
        Kind::Time(TimeUnit::NANOS) => value.div_euclid(1_000),
        Kind::Text | Kind::Number => return value.into(),
    };
    Timestamp::from_micros(micros).to_string().into()
}

/// Turns panics into errors: the library panics on some damaged files.
fn catch_panics<T>(work: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| Err(anyhow!("it is damaged")))
}
