//! `metrics.csv`, written while the run goes on: a row for each message.
//!
//! What ended is collected in lots → a bounded channel → one thread, which makes text of them and writes it. Nobody who
//! measures waits for the disk: a lot that finds the channel full is left out and counted. So memory is bounded, however long
//! the run and however slow the disk.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

use anyhow::Context;
use hubbub_core::Timestamp;
use hubbub_core::invariant::saturate;

use crate::results::record::Sample;

const NAME: &str = "metrics.csv";
const HEADER: &[u8] = b"timestamp,messageType,latencyMs,statusCode,roomId\n";
/// Rows of a lot.
const LOT: usize = 4_096;
/// Lots that may wait for the disk: 16 MiB, and a few seconds of the fastest run.
const LOTS_MAX: usize = 128;

#[derive(Debug)]
struct Row {
    at: Timestamp,
    sample: Sample,
}

/// What stands for the numbers of kinds and rooms.
#[derive(Debug)]
pub(crate) struct RowNames {
    pub(crate) kinds: Vec<&'static str>,
    pub(crate) room_prefix: String,
}

/// The end of a run at which rows are added.
#[derive(Debug)]
pub(crate) struct RowWriter {
    lot: Vec<Row>,
    lots: SyncSender<Vec<Row>>,
    thread: JoinHandle<io::Result<u64>>,
    /// Rows that there may be still.
    free: u64,
    beyond_max: u64,
    /// Rows that nobody took from the channel in time.
    missed: u64,
}

/// What became of the file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct RowsWritten {
    /// Of its rows.
    pub(crate) bytes: u64,
    /// What a reader of it should know.
    pub(crate) notes: Vec<String>,
}

impl RowWriter {
    /// Makes the file in `dir`, which is made if it is not there; it gets `rows_max` rows at most.
    pub(crate) fn create(dir: &Path, rows_max: u64, names: RowNames) -> anyhow::Result<Self> {
        std::fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
        let path = dir.join(NAME);
        let file = File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
        Self::onto(file, LOTS_MAX, rows_max, names)
    }

    fn onto(
        out: impl Write + Send + 'static,
        lots_max: usize,
        rows_max: u64,
        names: RowNames,
    ) -> anyhow::Result<Self> {
        let (lots, to_write) = sync_channel(lots_max);
        let writing = move || write(out, &to_write, &names);
        let thread = std::thread::Builder::new().name("rows".into()).spawn(writing);
        let thread = thread.with_context(|| format!("cannot start the thread that writes {NAME}"))?;
        let (lot, free) = (Vec::with_capacity(LOT), rows_max);
        Ok(Self { lot, lots, thread, free, beyond_max: 0, missed: 0 })
    }

    /// Adds a row for each sample; `wall_us` puts its time on the wall clock.
    pub(crate) fn add(&mut self, samples: &[Sample], wall_us: impl Fn(u64) -> i64) {
        let taken = samples.len().min(saturate(self.free));
        self.free -= taken as u64;
        self.beyond_max += (samples.len() - taken) as u64;
        for sample in samples.iter().take(taken) {
            let at = Timestamp::from_micros(wall_us(sample.done_us));
            self.lot.push(Row { at, sample: *sample });
            if self.lot.len() >= LOT {
                self.hand_over();
            }
        }
    }

    fn hand_over(&mut self) {
        let lot = std::mem::replace(&mut self.lot, Vec::with_capacity(LOT));
        if let Err(TrySendError::Full(lot) | TrySendError::Disconnected(lot)) = self.lots.try_send(lot) {
            self.missed += lot.len() as u64;
        }
    }

    /// Waits until everything is written that was handed over.
    pub(crate) fn finish(self) -> RowsWritten {
        let Self { lot, lots, thread, beyond_max, missed, .. } = self;
        // Where nobody takes it any more, the thread says why.
        let _ = lots.send(lot);
        drop(lots);
        let (bytes, fault) = match thread.join() {
            Ok(Ok(bytes)) if missed > 0 => {
                (bytes, Some(format!("{NAME} leaves out {missed} rows: the disk was slower than they came")))
            }
            Ok(Ok(bytes)) => (bytes, None),
            Ok(Err(error)) => (0, Some(format!("{NAME} is not whole, writing it failed: {error}"))),
            Err(_) => (0, Some(format!("{NAME} is not whole, its thread panicked"))),
        };
        let bounded = (beyond_max > 0).then(|| format!("{NAME} leaves out {beyond_max} rows (--rows-max)"));
        RowsWritten { bytes, notes: fault.into_iter().chain(bounded).collect() }
    }
}

/// Writes lots until there will be no more. Returns how many bytes that were, without the header.
fn write(mut out: impl Write, lots: &Receiver<Vec<Row>>, names: &RowNames) -> io::Result<u64> {
    out.write_all(HEADER)?;
    let (mut text, mut bytes) = (Vec::new(), 0);
    for lot in lots {
        text.clear();
        for row in &lot {
            write_row(row, names, &mut text)?;
        }
        out.write_all(&text)?;
        bytes += text.len() as u64;
    }
    out.flush()?;
    Ok(bytes)
}

fn write_row(Row { at, sample }: &Row, names: &RowNames, out: &mut Vec<u8>) -> io::Result<()> {
    let (ms, us) = (sample.latency_us / 1_000, sample.latency_us % 1_000);
    let kind = names.kinds.get(usize::from(sample.kind)).copied().unwrap_or_default();
    let (status, prefix) = (sample.ending.status_code(), &names.room_prefix);
    at.write(out);
    writeln!(out, ",{kind},{ms}.{us:03},{status},{prefix}{}", sample.room)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel};

    use super::*;
    use crate::results::record::Ending;

    fn names() -> RowNames {
        RowNames { kinds: vec!["TEXT", "JOIN"], room_prefix: "r-".to_owned() }
    }

    fn sample(done_us: u64, ending: Ending) -> Sample {
        Sample { done_us, index: 0, latency_us: 12_034, waited_us: None, room: 7, kind: 1, ending }
    }

    fn wall_us(us: u64) -> i64 {
        1_000_000 + us as i64
    }

    #[test]
    fn every_message_is_a_row_up_to_the_bound() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("made/metrics.csv");
        let written = |rows_max| {
            let mut rows = RowWriter::create(path.parent().unwrap(), rows_max, names()).unwrap();
            rows.add(&[sample(0, Ending::Accepted), sample(5, Ending::Rejected)], wall_us);
            rows.add(&[sample(500_000, Ending::Unconfirmed)], wall_us);
            let ended = rows.finish();
            let text = std::fs::read_to_string(&path).unwrap();
            assert_eq!(ended.bytes as usize, text.len() - HEADER.len());
            (text, ended.notes)
        };
        let all = "timestamp,messageType,latencyMs,statusCode,roomId\n\
                   1970-01-01T00:00:01.000Z,JOIN,12.034,200,r-7\n\
                   1970-01-01T00:00:01.000005Z,JOIN,12.034,400,r-7\n\
                   1970-01-01T00:00:01.500Z,JOIN,12.034,0,r-7\n";
        assert_eq!(written(u64::MAX), (all.to_owned(), vec![]));
        let bounded: String = all.lines().take(2).map(|line| format!("{line}\n")).collect();
        let noted = "metrics.csv leaves out 2 rows (--rows-max)";
        assert_eq!(written(1), (bounded, vec![noted.to_owned()]));
        assert_eq!(written(0).0, std::str::from_utf8(HEADER).unwrap());
    }

    /// Writes nothing before it is let, and tells what it wrote.
    struct Gate {
        opened: Receiver<()>,
        written: Sender<Vec<u8>>,
    }

    impl Write for Gate {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            // Open for good when nobody holds it shut any more.
            let _ = self.opened.recv();
            self.written.send(bytes.to_vec()).unwrap();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_slow_disk_holds_up_nobody_and_what_is_left_out_is_told() {
        let ((shut, opened), (written, text)) = (channel(), channel());
        let mut rows = RowWriter::onto(Gate { opened, written }, 2, u64::MAX, names()).unwrap();
        // The thread waits to write the header, so two lots wait for it and the third finds no place.
        rows.add(&vec![sample(1, Ending::Accepted); 3 * LOT + 1], wall_us);
        drop(shut);
        let ended = rows.finish();
        let wanted = format!("metrics.csv leaves out {LOT} rows: the disk was slower than they came");
        assert_eq!(ended.notes, [wanted]);
        let text: Vec<u8> = text.into_iter().flatten().collect();
        assert_eq!(text.split(|byte| *byte == b'\n').count(), 1 + 2 * LOT + 1 + 1);
    }

    #[test]
    fn a_full_disk_is_told() {
        let dir = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/dev/full", dir.path().join(NAME)).unwrap();
        let mut rows = RowWriter::create(dir.path(), u64::MAX, names()).unwrap();
        rows.add(&vec![sample(1, Ending::Accepted); 2 * LOT], wall_us);
        let notes = rows.finish().notes;
        let said = "metrics.csv is not whole, writing it failed: No space left on device";
        assert!(notes.len() == 1 && notes[0].starts_with(said), "{notes:?}");
    }
}
