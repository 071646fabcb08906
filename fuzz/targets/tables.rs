//! Files to import: CSV, JSON lines and Parquet.

#![no_main]

use std::io::Write;

use libfuzzer_sys::fuzz_target;

#[allow(dead_code, unreachable_pub, reason = "the command line's own files, of which this uses a part")]
#[path = "."]
mod client {
    #[path = "../../crates/hubbub/src/client/csv.rs"]
    mod csv;

    /// Reads all records; what is read is what is written.
    pub fn read_csv(input: &[u8], is_quoted: bool) {
        let mut records = csv::Records::new(input, is_quoted);
        while let Ok(Some((_, record))) = records.next() {
            let Some(fields) = csv::parse(&record) else { continue };
            let mut written = Vec::new();
            csv::write(&fields, &mut written);
            let text = String::from_utf8(written).expect("fields are texts");
            let again = text.strip_suffix("\r\n").and_then(csv::parse);
            assert_eq!(again.as_ref(), Some(&fields));
        }
    }

    #[path = "."]
    pub mod parquet {
        #[path = "../../crates/hubbub/src/client/parquet/bounds.rs"]
        mod bounds;
        #[path = "../../crates/hubbub/src/client/parquet/read.rs"]
        mod read;

        /// Reads all rows.
        pub fn read(file: std::fs::File) -> anyhow::Result<usize> {
            let wanted = ["roomId", "messageId", "userId", "username", "messageType", "timestamp", "message"];
            let mut reader = read::Reader::open(file, &wanted)?;
            let mut rows = 0;
            // Few bytes can be very many nulls.
            while rows < 1_000 && reader.next()?.is_some() {
                rows += 1;
            }
            Ok(rows)
        }
    }
}

// The library panics on some damaged files, which the reader catches. A panic that nobody catches still aborts.
fuzz_target!(init: std::panic::set_hook(Box::new(|_| {})), |input: &[u8]| {
    if input.ends_with(b"PAR1") {
        let mut file = tempfile::tempfile_in("/dev/shm").expect("a file in memory");
        file.write_all(input).expect("writing it");
        let _ = client::parquet::read(file);
        return;
    }
    for is_quoted in [false, true] {
        client::read_csv(input, is_quoted);
    }
});
