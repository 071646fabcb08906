//! Statements, their parameters, and columns of their rows.
//!
//! The database keeps the plan of a prepared statement only if a plan for just these parameters does not seem cheaper, and
//! for an array of few elements it does. Planning each time costs more than to run a short statement. An array behind a
//! `select` (`unnest((select $1))`) has a length that the planner does not know, so it keeps the plan. But what is kept from
//! when a table was small reads all of it: that takes statistics which follow the table ([`crate::kv`]), or settings which
//! leave no such plan.

use std::error::Error;

use hubbub_core::Timestamp;
use tokio_postgres::Row;
use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, accepts, to_sql_checked};
use uuid::Uuid;

use super::{DbError, Result};

/// A statement.
#[derive(Debug)]
pub(crate) struct Sql {
    /// What it does, for messages: "reading a room".
    pub(crate) what: &'static str,
    pub(crate) text: &'static str,
}

impl Sql {
    /// The only one of its rows.
    pub(super) fn only(&self, rows: Vec<Row>) -> Result<Row> {
        let missing = || DbError::UnexpectedRow { what: self.what, found: "no row".into() };
        rows.into_iter().next().ok_or_else(missing)
    }
}

/// Constants of [`Sql`]: `NAME(what) = text;`.
macro_rules! statements {
    ($($(#[$doc:meta])* $vis:vis $name:ident($what:expr) = $text:expr;)*) => { $(
        $(#[$doc])*
        $vis const $name: $crate::db::Sql = $crate::db::Sql { what: $what, text: $text };
    )* };
}
pub(crate) use statements;

/// A Rust type that stands for a type of the database. With it a statement needs no preparation behind a transaction
/// pooler.
pub(crate) trait SqlType {
    const TYPE: Type;
    /// The type of an array of it. There are no arrays of arrays.
    const ARRAY: Type = Type::UNKNOWN;

    /// Whether it is an array without elements.
    fn is_empty_array(&self) -> bool {
        false
    }
}

macro_rules! sql_types {
    ($($rust:ty => $one:ident, $array:ident;)*) => { $(impl SqlType for $rust {
        const TYPE: Type = Type::$one;
        const ARRAY: Type = Type::$array;
    })* };
}
sql_types! {
    bool => BOOL, BOOL_ARRAY;
    i8 => CHAR, CHAR_ARRAY;
    i16 => INT2, INT2_ARRAY;
    i32 => INT4, INT4_ARRAY;
    i64 => INT8, INT8_ARRAY;
    str => TEXT, TEXT_ARRAY;
    String => TEXT, TEXT_ARRAY;
    [u8] => BYTEA, BYTEA_ARRAY;
    Vec<u8> => BYTEA, BYTEA_ARRAY;
    Uuid => UUID, UUID_ARRAY;
    PgTime => TIMESTAMPTZ, TIMESTAMPTZ_ARRAY;
    RowPlace => TID, TID_ARRAY;
}

impl<T: SqlType> SqlType for Option<T> {
    const TYPE: Type = T::TYPE;
    const ARRAY: Type = T::ARRAY;
}

impl<T: SqlType + ?Sized> SqlType for &T {
    const TYPE: Type = T::TYPE;
    const ARRAY: Type = T::ARRAY;

    fn is_empty_array(&self) -> bool {
        (**self).is_empty_array()
    }
}

impl<T: SqlType> SqlType for [T] {
    const TYPE: Type = T::ARRAY;

    fn is_empty_array(&self) -> bool {
        self.is_empty()
    }
}

impl<T: SqlType> SqlType for Vec<T> {
    const TYPE: Type = T::ARRAY;

    fn is_empty_array(&self) -> bool {
        self.is_empty()
    }
}

pub(crate) trait SqlValue: ToSql + Sync {
    fn sql_type(&self) -> Type;
    /// Whether it is an array without elements.
    fn is_empty_array(&self) -> bool;
}

impl<T: SqlType + ToSql + Sync> SqlValue for T {
    fn sql_type(&self) -> Type {
        T::TYPE
    }

    fn is_empty_array(&self) -> bool {
        SqlType::is_empty_array(self)
    }
}

/// A parameter.
pub(crate) type Param<'a> = &'a (dyn SqlValue + Sync);

/// Microseconds from 1970 to 2000.
const EPOCH_MICROS: i64 = 946_684_800_000_000;

/// A time as a parameter or a column of type `timestamptz`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PgTime(pub(crate) Timestamp);

impl ToSql for PgTime {
    fn to_sql(&self, ty: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        self.0.as_micros().saturating_sub(EPOCH_MICROS).to_sql(ty, out)
    }

    accepts!(TIMESTAMPTZ);
    to_sql_checked!();
}

impl<'a> FromSql<'a> for PgTime {
    fn from_sql(ty: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        let micros = i64::from_sql(ty, raw)?;
        Ok(Self(Timestamp::from_micros(micros.saturating_add(EPOCH_MICROS))))
    }

    accepts!(TIMESTAMPTZ);
}

/// Where a version of a row is, `ctid`. It stays there as long as the transaction has the row locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RowPlace([u8; 6]);

impl ToSql for RowPlace {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        out.extend_from_slice(&self.0);
        Ok(IsNull::No)
    }

    accepts!(TID);
    to_sql_checked!();
}

impl<'a> FromSql<'a> for RowPlace {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Self(raw.try_into()?))
    }

    accepts!(TID);
}

/// An array parameter: one value of each item.
pub(crate) fn column<'a, I, T>(items: &'a [I], value: impl Fn(&'a I) -> T) -> Vec<T> {
    items.iter().map(value).collect()
}

/// A column that is never negative: a number of a message, a count, a revision. `what` is the operation, for messages.
pub(crate) fn unsigned(row: &Row, column: usize, what: &'static str) -> Result<u64> {
    non_negative(row.get(column), what)
}

/// A number that the store never writes below 0.
pub(crate) fn non_negative(number: i64, what: &'static str) -> Result<u64> {
    u64::try_from(number)
        .map_err(|_| DbError::UnexpectedRow { what, found: format!("the negative number {number}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_negative_number_is_damage() {
        assert_eq!(non_negative(7, "reading").unwrap(), 7);
        let fault = non_negative(-7, "reading").unwrap_err();
        assert!(fault.to_string().ends_with("the negative number -7"), "{fault}");
    }
}
