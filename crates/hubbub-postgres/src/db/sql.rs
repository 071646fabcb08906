//! Statements, and the types of their parameters.

use std::error::Error;

use hubbub_core::Timestamp;
use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, accepts, to_sql_checked};
use uuid::Uuid;

/// A statement.
#[derive(Debug)]
pub(crate) struct Sql {
    /// What it does, for messages: "reading a room".
    pub(crate) what: &'static str,
    pub(crate) text: &'static str,
}

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

/// The value of a parameter.
pub(crate) trait SqlValue: ToSql + Sync {
    /// Its type in the database.
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
