//! Reads rows in batches: only a few pages of each column are in memory.

use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use anyhow::{Context, anyhow, bail, ensure};
use hubbub_core::Timestamp;
use parquet::basic::{LogicalType, TimeUnit, Type};
use parquet::file::metadata::ParquetMetaData;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use parquet::record::reader::RowIter;
use parquet::schema::types::{ColumnDescriptor, Type as SchemaType};
use serde_json::{Map, Value};

use super::bounds;

const BATCH_ROWS: usize = 256;

/// Reads the requested columns, of which a file may lack some.
pub(in crate::client) struct Reader {
    rows: RowIter<'static>,
    columns: Vec<Column>,
}

struct Column {
    name: String,
    /// Whether it holds times in nanoseconds, which the library shows as numbers.
    is_nanos: bool,
}

impl Reader {
    pub(in crate::client) fn open(file: File, wanted: &[&str]) -> anyhow::Result<Self> {
        bounds::check_footer(&file)?;
        let pages = file.try_clone()?;
        let file =
            catch_panics(|| SerializedFileReader::new(file).context("it is no Parquet file, or damaged"))?;
        let schema = file.metadata().file_metadata().schema_descr_ptr();
        let (mut columns, mut fields) = (Vec::new(), Vec::new());
        for (place, column) in schema.columns().iter().enumerate() {
            if let [name] = column.path().parts()
                && wanted.contains(&name.as_str())
            {
                let is_nanos = check(column).with_context(|| format!("the column '{name}'"))?;
                check_sizes(&pages, file.metadata(), place)
                    .with_context(|| format!("the column '{name}'"))?;
                columns.push(Column { name: name.clone(), is_nanos });
                fields.push(Arc::new(column.self_type().clone()));
            }
        }
        let projection = SchemaType::group_type_builder(schema.name()).with_fields(fields).build()?;
        let rows = RowIter::from_file_into(Box::new(file)).project(Some(projection))?;
        Ok(Self { rows: rows.with_batch_size(BATCH_ROWS), columns })
    }

    pub(in crate::client) fn columns(&self) -> impl Iterator<Item = &str> {
        self.columns.iter().map(|column| column.name.as_str())
    }

    /// The next row without its null values; `None` at the end.
    pub(in crate::client) fn next(&mut self) -> anyhow::Result<Option<Map<String, Value>>> {
        let Some(row) = catch_panics(|| Ok(self.rows.next().transpose()?))? else { return Ok(None) };
        let mut message = Map::new();
        for ((name, field), column) in row.into_columns().into_iter().zip(&self.columns) {
            let value = value(field, column.is_nanos).with_context(|| format!("the column '{name}'"))?;
            message.extend(value.map(|value| (name, value)));
        }
        Ok(Some(message))
    }
}

/// Checks the sizes of all pages of a column.
fn check_sizes(file: &File, metadata: &ParquetMetaData, column: usize) -> anyhow::Result<()> {
    for group in metadata.row_groups() {
        let chunk = group.columns().get(column).context("is not in every row group")?;
        let (start, length) = catch_panics(|| Ok(chunk.byte_range()))?;
        bounds::check_pages(file, start, length)?;
    }
    Ok(())
}

/// Checks the type of a column. Returns whether it holds times in nanoseconds.
fn check(column: &ColumnDescriptor) -> anyhow::Result<bool> {
    ensure!(column.max_rep_level() == 0, "holds lists");
    match column.physical_type() {
        Type::BYTE_ARRAY | Type::INT32 => Ok(false),
        Type::INT64 => Ok(matches!(
            column.logical_type_ref(),
            Some(LogicalType::Timestamp(time)) if time.unit == TimeUnit::NANOS
        )),
        other => bail!("holds {other}: texts, whole numbers and times are understood"),
    }
}

/// A value as JSON; `None` = null.
fn value(field: Field, is_nanos: bool) -> anyhow::Result<Option<Value>> {
    let time = |micros| Value::from(Timestamp::from_micros(micros).to_string());
    Ok(Some(match field {
        Field::Null => return Ok(None),
        Field::Str(text) => text.into(),
        Field::Bytes(bytes) => std::str::from_utf8(bytes.data()).context("is not UTF-8")?.into(),
        Field::Long(nanos) if is_nanos => time(nanos.div_euclid(1_000)),
        Field::TimestampMillis(millis) => time(millis.saturating_mul(1_000)),
        Field::TimestampMicros(micros) => time(micros),
        Field::Byte(number) => number.into(),
        Field::Short(number) => number.into(),
        Field::Int(number) => number.into(),
        Field::Long(number) => number.into(),
        Field::UByte(number) => number.into(),
        Field::UShort(number) => number.into(),
        Field::UInt(number) => number.into(),
        Field::ULong(number) => number.into(),
        other => bail!("holds {other}: texts, whole numbers and times are understood"),
    }))
}

/// Turns panics into errors: the library panics on some damaged files.
fn catch_panics<T>(work: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| Err(anyhow!("it is damaged")))
}
