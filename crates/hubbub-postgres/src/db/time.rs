//! Converts times to PostgreSQL's format: microseconds since 2000.

use std::error::Error;

use hubbub_core::Timestamp;
use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, accepts, to_sql_checked};

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
