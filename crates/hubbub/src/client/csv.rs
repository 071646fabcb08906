//! Comma-separated values as RFC 4180 has them.

use std::io::{self, BufRead, Read};

/// Longest record read: a text of 16 MiB with every character escaped fits.
pub(super) const RECORD_BYTES_MAX: usize = 128 << 20;

pub(super) fn write(fields: &[impl AsRef<str>], out: &mut Vec<u8>) {
    for (place, field) in fields.iter().map(AsRef::as_ref).enumerate() {
        if place > 0 {
            out.push(b',');
        }
        if field.contains(['"', ',', '\r', '\n']) || field.trim() != field {
            out.push(b'"');
            out.extend_from_slice(field.replace('"', "\"\"").as_bytes());
            out.push(b'"');
        } else {
            out.extend_from_slice(field.as_bytes());
        }
    }
    out.extend_from_slice(b"\r\n");
}

/// The fields of a record without its line end; `None` when quotes stand where they must not.
pub(super) fn parse(record: &str) -> Option<Vec<String>> {
    let mut is_quoted = false;
    // A comma behind an odd number of quotes belongs to its field.
    let fields = record.split(|c| {
        is_quoted ^= c == '"';
        c == ',' && !is_quoted
    });
    fields.map(unquoted).collect()
}

fn unquoted(field: &str) -> Option<String> {
    let Some(quoted) = field.strip_prefix('"') else {
        return (!field.contains('"')).then(|| field.to_owned());
    };
    let text = quoted.strip_suffix('"')?;
    // A quote inside is written twice.
    text.split("\"\"").all(|part| !part.contains('"')).then(|| text.replace("\"\"", "\""))
}

/// Reads records, each of one line or, with line breaks in quotes, of several.
pub(super) struct Records<R> {
    reader: R,
    lines: u64,
    is_quoted: bool,
}

impl<R: BufRead> Records<R> {
    /// With `is_quoted`, quotes may hold line breaks; without, each line is a record.
    pub(super) fn new(reader: R, is_quoted: bool) -> Self {
        Self { reader, lines: 0, is_quoted }
    }

    /// The next record that is not empty and the number of its first line; `None` at the end.
    pub(super) fn next(&mut self) -> io::Result<Option<(u64, String)>> {
        loop {
            let mut record = Record::default();
            let first = self.lines + 1;
            loop {
                let left = RECORD_BYTES_MAX.saturating_sub(record.bytes.len()) as u64;
                let count = (&mut self.reader).take(left).read_until(b'\n', &mut record.bytes)?;
                self.lines += 1;
                let is_cut = !record.bytes.ends_with(b"\n") && record.bytes.len() >= RECORD_BYTES_MAX;
                if count > 0 && is_cut {
                    let what = format!("line {first} is longer than {RECORD_BYTES_MAX} bytes");
                    return Err(io::Error::new(io::ErrorKind::InvalidData, what));
                }
                if count == 0 || !self.is_quoted || !record.is_open() {
                    break;
                }
            }
            if record.bytes.is_empty() {
                return Ok(None);
            }
            let record = String::from_utf8(record.bytes).map_err(|_| {
                io::Error::new(io::ErrorKind::InvalidData, format!("line {first} is not UTF-8"))
            })?;
            let record = record.strip_suffix('\n').unwrap_or(&record);
            let record = record.strip_suffix('\r').unwrap_or(record);
            // Some programs begin a file with a mark of its byte order.
            let record = record.strip_prefix('\u{FEFF}').unwrap_or(record);
            if !record.trim().is_empty() {
                return Ok(Some((first, record.to_owned())));
            }
        }
    }
}

/// A record of which more and more is read.
#[derive(Default)]
struct Record {
    bytes: Vec<u8>,
    /// So many bytes were looked at for quotes. A record may have millions of lines, so none is looked at twice.
    counted: usize,
    /// Whether they hold an odd number of quotes.
    is_odd: bool,
}

impl Record {
    /// Whether the record goes on behind what was read of it, within quotes.
    fn is_open(&mut self) -> bool {
        let new = self.bytes.get(self.counted..).unwrap_or_default();
        self.is_odd ^= new.iter().filter(|byte| **byte == b'"').count() % 2 == 1;
        self.counted = self.bytes.len();
        self.is_odd
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_new_of_a_record_is_looked_at() {
        let mut record = Record::default();
        record.bytes.extend_from_slice(b"a,\"ones\n");
        assert!(record.is_open());
        // Looked at again, these would close it.
        record.bytes.fill(b'"');
        record.bytes.extend_from_slice(b"two\n");
        assert!(record.is_open() && record.is_open());
        record.bytes.extend_from_slice(b"\"\"three\"\n");
        assert!(!record.is_open());
        assert_eq!(record.counted, record.bytes.len());
    }

    #[test]
    fn what_is_written_is_read() {
        let records: &[&[&str]] = &[
            &["a", "", "c"],
            &["say \"hi\"", "a,b", "two\r\nlines\n", " padded "],
            &["\"", "\"\"", ",", "\n"],
            &["🙂 ünï", "x"],
        ];
        let mut bytes = Vec::new();
        records.iter().for_each(|fields| write(fields, &mut bytes));
        let mut reader = Records::new(&bytes[..], true);
        for (fields, line) in records.iter().zip([1, 2, 5, 7]) {
            let (number, record) = reader.next().unwrap().unwrap();
            assert_eq!(
                (number, parse(&record).unwrap()),
                (line, fields.iter().map(|f| (*f).into()).collect())
            );
        }
        assert_eq!(reader.next().unwrap(), None);
    }

    #[test]
    fn misplaced_quotes_are_refused() {
        for record in ["\"a", "\"a\"b", "a\"b", "a,\"b\"c,d", "\"a\"\"", "x,\""] {
            assert_eq!(parse(record), None, "{record}");
        }
        assert_eq!(parse("\"\",").unwrap(), ["", ""]);
    }

    #[test]
    fn lines_are_counted_as_an_editor_counts_them() {
        let mut lines = Records::new(&b"\xEF\xBB\xBFone\n\n  \r\n\"two\nthree"[..], false);
        let mut found = Vec::new();
        while let Some(line) = lines.next().unwrap() {
            found.push(line);
        }
        assert_eq!(found, [(1, "one".into()), (4, "\"two".into()), (5, "three".into())]);
        assert!(Records::new(&b"\xFF\n"[..], false).next().unwrap_err().to_string().contains("line 1"));
    }
}
