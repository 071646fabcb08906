//! Reads columns of rows. A value out of range is damage.

use tokio_postgres::Row;

use super::DbError;

/// A column that is never negative: a number of a message, a count, a revision. `what` is the operation, for messages.
pub(crate) fn unsigned(row: &Row, column: usize, what: &'static str) -> Result<u64, DbError> {
    non_negative(row.get(column), what)
}

/// A number that the store never writes below 0.
pub(crate) fn non_negative(number: i64, what: &'static str) -> Result<u64, DbError> {
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
