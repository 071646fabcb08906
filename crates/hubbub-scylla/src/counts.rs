//! The cell that has the counts of a sender, in a room or in an hour: variable-length numbers, one after the other. One cell
//! costs the database a fifth of what five do.
//!
//! Rows that were written before version 4 of the schema have a column for each number instead, and no such cell. Where both
//! are there, the cell is newer.

use hubbub_core::invariant::saturate;

use crate::db::DbError;
use crate::state::Counts;

type Number = Option<i64>;
/// The cell, and the columns of an older row: texts, joins, leaves, first and last time.
pub(crate) type CountsRow = (Option<Vec<u8>>, Number, Number, Number, Number, Number);
/// A sender's name and the same; in an hour with the column of an older row that has the last message.
pub(crate) type SenderRow = (String, Option<Vec<u8>>, Number, Number, Number, Number, Number);
pub(crate) type HourSenderRow = (String, Option<Vec<u8>>, Number, Number, Number, Number, Number, Number);

/// The cell of a sender in a room.
pub(crate) fn cell(counts: &Counts) -> Vec<u8> {
    let mut cell = Vec::with_capacity(CELL_BYTES);
    put(&mut cell, counts);
    cell
}

/// The cell of a sender in an hour, with the last message that is counted.
pub(crate) fn hour_cell(counts: &Counts, seq: i64) -> Vec<u8> {
    let mut cell = Vec::with_capacity(CELL_BYTES);
    put(&mut cell, counts);
    push(&mut cell, seq);
    cell
}

/// What most cells have: three small numbers, a time, a span of time, and a number of a message.
const CELL_BYTES: usize = 24;

fn put(cell: &mut Vec<u8>, counts: &Counts) {
    let Counts { texts, joins, leaves, first_at, last_at } = *counts;
    [texts, joins, leaves, first_at, last_at.wrapping_sub(first_at)]
        .into_iter()
        .for_each(|number| push(cell, number));
}

/// Seven bits a byte, the lowest ones first; the highest bit says that more follow. Numbers here are hardly ever negative.
fn push(cell: &mut Vec<u8>, number: i64) {
    let mut rest = number.cast_unsigned();
    while rest > 0x7f {
        cell.push(saturate::<_, u8>(rest & 0x7f) | 0x80);
        rest >>= 7;
    }
    cell.push(saturate(rest));
}

fn pull(cell: &mut impl Iterator<Item = u8>) -> Option<i64> {
    let mut number = 0_u64;
    for shift in (0..64).step_by(7) {
        let byte = cell.next()?;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number.cast_signed());
        }
    }
    None
}

fn pull_counts(cell: &mut impl Iterator<Item = u8>) -> Option<Counts> {
    let [texts, joins, leaves, first_at, span] =
        [pull(cell)?, pull(cell)?, pull(cell)?, pull(cell)?, pull(cell)?];
    Some(Counts { texts, joins, leaves, first_at, last_at: first_at.wrapping_add(span) })
}

fn older((_, texts, joins, leaves, first_at, last_at): &CountsRow) -> Option<Counts> {
    Some(Counts {
        texts: (*texts)?,
        joins: (*joins)?,
        leaves: (*leaves)?,
        first_at: (*first_at)?,
        last_at: (*last_at)?,
    })
}

fn damaged(what: &'static str) -> DbError {
    DbError::new(what, "counts that are none")
}

/// The counts of a row. `None` = it has none: it is of another kind.
pub(crate) fn read(what: &'static str, row: &CountsRow) -> Result<Option<Counts>, DbError> {
    match &row.0 {
        Some(cell) => pull_counts(&mut cell.iter().copied()).map(Some).ok_or_else(|| damaged(what)),
        None => Ok(older(row)),
    }
}

/// The counts of a sender's row.
pub(crate) fn read_some(what: &'static str, row: &CountsRow) -> Result<Counts, DbError> {
    read(what, row)?.ok_or_else(|| damaged(what))
}

/// The counts of a sender in an hour, and the last message that is counted, which an older row has in a column.
pub(crate) fn read_hour(
    what: &'static str,
    row: &CountsRow,
    seq: Option<i64>,
) -> Result<(Counts, i64), DbError> {
    let found = match &row.0 {
        Some(cell) => {
            let mut cell = cell.iter().copied();
            pull_counts(&mut cell).zip(pull(&mut cell))
        }
        None => older(row).zip(seq),
    };
    found.ok_or_else(|| damaged(what))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const NOTHING: CountsRow = (None, None, None, None, None, None);

    #[test]
    fn counts_are_read_as_they_were_written() {
        for (texts, first_at, last_at, seq) in [
            (0, 0, 0, 1),
            (1, 1_700_000_000_000_000, 1_700_000_000_000_000, 77),
            (127, 1_700_000_000_000_000, 1_700_003_599_999_999, 128),
            (128, -5, 7, i64::MAX),
            (i64::MAX, i64::MIN, i64::MAX, 0),
        ] {
            let counts = Counts { texts, joins: 2, leaves: 300, first_at, last_at };
            let row = (Some(cell(&counts)), Some(9), Some(9), Some(9), Some(9), Some(9));
            assert_eq!(read("test", &row).unwrap(), Some(counts), "the cell counts, not the older columns");
            let row = (Some(hour_cell(&counts, seq)), None, None, None, None, None);
            assert_eq!(read_hour("test", &row, None).unwrap(), (counts, seq));
        }
        let usual = Counts { texts: 1, joins: 0, leaves: 0, first_at: 1_700_000_000_000_000, last_at: 0 };
        assert!(cell(&Counts { last_at: usual.first_at, ..usual }).len() <= 12);
    }

    #[test]
    fn older_rows_are_read() {
        let row = (None, Some(1), Some(2), Some(3), Some(4), Some(5));
        let counts = Counts { texts: 1, joins: 2, leaves: 3, first_at: 4, last_at: 5 };
        assert_eq!(read_some("test", &row).unwrap(), counts);
        assert_eq!(read_hour("test", &row, Some(6)).unwrap(), (counts, 6));
        assert_eq!(read("test", &NOTHING).unwrap(), None);
    }

    #[test]
    fn damaged_counts_are_refused() {
        let cell = cell(&Counts::none(5));
        for damaged in [&cell[..4], &[0xff; 80], &[]] {
            assert!(
                read("test", &(Some(damaged.to_vec()), None, None, None, None, None)).is_err(),
                "{damaged:?}"
            );
        }
        assert!(read_hour("test", &(Some(cell), None, None, None, None, None), Some(1)).is_err());
        assert!(read_some("test", &NOTHING).is_err());
        assert!(read_hour("test", &(None, Some(1), Some(2), Some(3), Some(4), Some(5)), None).is_err());
    }
}
