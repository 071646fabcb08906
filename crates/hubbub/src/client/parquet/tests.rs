use std::fs::File;
use std::io::Write;
use std::sync::Arc;

use parquet::data_type::{ByteArray, ByteArrayType, Int32Type, Int64Type};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use serde_json::{Map, Value, json};

use super::{Reader, Writer};
use crate::client::export::row::COLUMNS;

/// A file without a name, read from its beginning.
fn file(bytes: &[u8]) -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    file
}

fn read(bytes: &[u8]) -> anyhow::Result<Vec<Map<String, Value>>> {
    let mut reader = Reader::open(file(bytes), &COLUMNS)?;
    let mut rows = Vec::new();
    while let Some(row) = reader.next()? {
        rows.push(row);
    }
    Ok(rows)
}

fn message(n: u64, text: &str) -> Value {
    let mut message = json!({
        "roomId": format!("r{}", n % 3), "seq": n, "messageId": format!("id-{n}"), "userId": "ada",
        "messageType": "TEXT", "timestamp": "0001-01-01T00:00:00.000Z",
        "receivedAt": "2026-01-31T12:00:00.123456Z", "message": text
    });
    if n.is_multiple_of(2) {
        message["username"] = json!("🙂");
    }
    message
}

fn written(messages: &[Value]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new()).unwrap();
    for message in messages {
        let text = message.to_string();
        writer.write(&serde_json::from_str(&text).unwrap()).unwrap();
    }
    writer.finish().unwrap()
}

#[test]
fn what_is_written_is_read() {
    // More rows than are read at once; texts so long that they need several row groups.
    let long = "ü".repeat(5 << 20);
    let messages: Vec<Value> =
        (0..1_000).map(|n| message(n, if n % 99 == 7 { &long } else { "two\nlines, \"quoted\"" })).collect();
    let bytes = written(&messages);
    let groups = SerializedFileReader::new(bytes::Bytes::from(bytes.clone())).unwrap().num_row_groups();
    assert!(groups > 2, "{groups} row groups");
    let rows: Vec<Value> = read(&bytes).unwrap().into_iter().map(Value::Object).collect();
    assert!(rows == messages);
    assert_eq!(read(&written(&[])).unwrap().len(), 0);
}

#[test]
fn columns_have_their_types() {
    let bytes = written(&[message(1, "hi")]);
    let file = SerializedFileReader::new(bytes::Bytes::from(bytes)).unwrap();
    let rows: Vec<_> = file.get_row_iter(None).unwrap().collect::<Result<_, _>>().unwrap();
    let row = rows[0].to_string();
    assert_eq!(
        row,
        "{roomId: \"r1\", seq: 1, messageId: \"id-1\", userId: \"ada\", username: null, messageType: \"TEXT\", \
         timestamp: 0001-01-01 00:00:00.000000 +00:00, receivedAt: 2026-01-31 12:00:00.123456 +00:00, message: \"hi\"}"
    );
}

#[test]
fn files_of_other_programs_are_read() {
    let schema = "message other {
        optional int64 timestamp (TIMESTAMP(NANOS, true)); required int64 receivedAt (TIMESTAMP(MILLIS, false));
        optional int32 userId; optional binary message; required binary mood (STRING);
    }";
    let mut bytes = Vec::new();
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let mut file = SerializedFileWriter::new(&mut bytes, schema, Arc::default()).unwrap();
    let mut group = file.next_row_group().unwrap();
    let mut place = 0;
    while let Some(mut column) = group.next_column().unwrap() {
        let texts = [ByteArray::from("x"), ByteArray::from("y")];
        match place {
            0 => column.typed::<Int64Type>().write_batch(&[1_500, -1], Some(&[1, 1]), None),
            1 => column.typed::<Int64Type>().write_batch(&[1_769_860_800_001, 0], None, None),
            2 => column.typed::<Int32Type>().write_batch(&[42], Some(&[0, 1]), None),
            3 => column.typed::<ByteArrayType>().write_batch(&texts[..1], Some(&[1, 0]), None),
            _ => column.typed::<ByteArrayType>().write_batch(&texts, None, None),
        }
        .unwrap();
        column.close().unwrap();
        place += 1;
    }
    group.close().unwrap();
    file.close().unwrap();
    let rows: Vec<Value> = read(&bytes).unwrap().into_iter().map(Value::Object).collect();
    assert_eq!(
        rows,
        [
            json!({"timestamp": "1970-01-01T00:00:00.000001Z", "receivedAt": "2026-01-31T12:00:00.001Z",
                   "message": "x"}),
            json!({"timestamp": "1969-12-31T23:59:59.999999Z", "receivedAt": "1970-01-01T00:00:00.000Z",
                   "userId": 42}),
        ]
    );
}

#[test]
fn what_is_cut_is_refused() {
    let bytes = written(&(0..20).map(|n| message(n, "some text")).collect::<Vec<_>>());
    for end in 0..bytes.len() {
        assert!(read(&bytes[..end]).is_err(), "cut at {end} of {}", bytes.len());
    }
    assert!(read(&bytes).is_ok());
}

#[test]
fn what_is_damaged_ends_without_a_panic() {
    let bytes = written(&(0..20).map(|n| message(n, "some text")).collect::<Vec<_>>());
    let refused = (0..bytes.len()).filter(|place| {
        let mut damaged = bytes.clone();
        damaged[*place] ^= 0x55;
        read(&damaged).is_err()
    });
    // Parquet has no checksums that everybody writes, so some damage is not seen.
    assert!(refused.count() > bytes.len() / 2);
}

/// Appends a number as Thrift's compact protocol writes it.
fn zigzag(value: i64, out: &mut Vec<u8>) {
    let mut rest = (value << 1 ^ value >> 63).cast_unsigned();
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// A file with one column, `message`, whose first page has a header that claims these sizes and this encoding.
fn claiming(kind: u8, uncompressed: i64, values: i64, encoding: i64) -> Vec<u8> {
    let schema = Arc::new(parse_message_type("message m { required binary message (STRING); }").unwrap());
    let mut bytes = Vec::new();
    let mut file = SerializedFileWriter::new(&mut bytes, schema, Arc::default()).unwrap();
    let mut group = file.next_row_group().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    let text = ByteArray::from("x".repeat(2_000).as_str());
    column.typed::<ByteArrayType>().write_batch(&[text], None, None).unwrap();
    column.close().unwrap();
    group.close().unwrap();
    file.close().unwrap();
    // In the place of the first page, of which there are enough bytes.
    let mut header = vec![0x15];
    zigzag(if kind == 7 { 2 } else { 0 }, &mut header);
    header.push(0x15);
    zigzag(uncompressed, &mut header);
    header.push(0x15);
    zigzag(100, &mut header);
    header.push((kind - 3) << 4 | 0x0C);
    for value in [values, encoding] {
        header.push(0x15);
        zigzag(value, &mut header);
    }
    if kind == 5 {
        header.extend_from_slice(&[0x15, 6, 0x15, 6]);
    }
    header.extend_from_slice(&[0, 0]);
    bytes[4..4 + header.len()].copy_from_slice(&header);
    bytes
}

#[test]
fn sizes_that_are_only_claimed_are_refused() {
    let gigabytes = (2 << 30) - 1;
    for (file, part) in [
        (claiming(5, gigabytes, 1, 0), "a page has 2147483647 bytes"),
        (claiming(5, -1, 1, 0), "a page has -1 bytes"),
        (claiming(7, 100 << 20, 1, 0), "a page has 104857600 bytes"),
        (claiming(7, 100, gigabytes, 0), "a dictionary claims 2147483647 entries in 100 bytes"),
        (claiming(5, 100, 1, 6), "DELTA_LENGTH_BYTE_ARRAY"),
        (claiming(5, 100, 1, 7), "DELTA_BYTE_ARRAY"),
    ] {
        let error = format!("{:#}", read(&file).unwrap_err());
        assert!(error.contains(part) && error.contains("message"), "'{part}' is not in: {error}");
    }
    let mut footer = written(&[message(1, "hi")]);
    let at = footer.len() - 8;
    footer[at..at + 4].copy_from_slice(&u32::MAX.to_le_bytes());
    assert!(format!("{:#}", read(&footer).unwrap_err()).contains("its footer has 4294967295 bytes"));
}
