//! A data directory with some of everything, and patches of its files.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use hubbub_core::clock::{ManualClock, SeededRandom};
use hubbub_core::kv::Condition;
use hubbub_core::queue::{Audience, Due, QueueOp, QueueSend, QueueSettings, Take, TakeFilter, TakeMode};
use hubbub_core::{KvOp, MessageType, Op, OpBatch, Outcome, Send, Store, Timestamp};
use hubbub_store::embedded::disk::FileDisk;
use hubbub_store::embedded::{Embedded, Engine, EngineOptions};

const SLOT_BYTES: u64 = 32 * 1024;

/// A file of the directory, below it.
pub type Content = (PathBuf, Vec<u8>);

pub fn open(dir: &Path) -> Option<Embedded> {
    assert_eq!(crc32c::crc32c(b"anything"), 0, "checksums would stop whatever is patched");
    let clock = Arc::new(ManualClock::at(Timestamp::from_micros(1_700_000_000_000_000)));
    let options = EngineOptions { slot_bytes: SLOT_BYTES, reserve_bytes: 0, ..EngineOptions::default() };
    let engine = Engine::open(options, Arc::new(FileDisk::new(dir)), clock, &SeededRandom::new(3)).ok()?;
    Some(Embedded::in_line(engine))
}

/// Some of everything: part of it sealed, part in the journal.
pub fn fill(store: &Embedded) {
    for batch in 0..40_u64 {
        let mut ops = OpBatch::default();
        if batch == 0 {
            ops.push(&Op::Queue(QueueOp::Put { queue: "q", settings: &QueueSettings::default() }));
        } else {
            let wanted =
                TakeFilter { queue: Some("q"), receiver: Some("bob"), sender: None, newest_first: false };
            let how = if batch % 2 == 0 { TakeMode::Away } else { TakeMode::Lease { lease_ms: Some(60_000) } };
            ops.push(&Op::Queue(QueueOp::Take(Take { wanted, max: 2, how, registers: true })));
        }
        for n in batch * 10..batch * 10 + 10 {
            let (id, key) = (format!("id-{n}"), format!("key-{}", n % 70));
            let text = format!("message {n} {}", "x".repeat((n % 60) as usize));
            ops.push(&Op::Send(Send {
                room: if n % 3 == 0 { "lobby" } else { "team" },
                user: if n % 2 == 0 { "ada" } else { "bob" },
                id: &id,
                username: Some("Ada"),
                text: &text,
                kind: MessageType::Text,
                timestamp: Timestamp::from_micros(1_700_000_000_000_000),
            }));
            let (key, value) = (key.as_bytes(), text.as_bytes());
            ops.push(&Op::Kv(KvOp::Put { key, value, ttl_ms: None, condition: Condition::Always }));
            ops.push(&Op::Queue(QueueOp::Send(QueueSend {
                queue: "q",
                sender: "ada",
                audience: Audience::Anyone,
                text: &text,
                message_id: Some(&id),
                due: Due::Now,
                group: None,
                ttl_ms: None,
                registers: true,
            })));
        }
        let outcomes = store.apply(&ops).expect("a batch is stored");
        let refused = outcomes.iter().find(|outcome| matches!(outcome, Outcome::Refused(_)));
        assert_eq!(refused, None);
    }
}

/// Two bytes say where, relative to the length, one how many bytes; these follow. An empty patch cuts the file there.
pub fn patch(content: &mut Vec<u8>, mut patches: &[u8]) {
    while let [a, b, count, rest @ ..] = patches {
        let at = usize::from(u16::from_be_bytes([*a, *b])) % content.len().max(1);
        let bytes = &rest[..rest.len().min(usize::from(*count % 32))];
        if bytes.is_empty() {
            return content.truncate(at);
        }
        let end = content.len().min(at + bytes.len());
        content[at..end].copy_from_slice(&bytes[..end - at]);
        patches = &rest[bytes.len()..];
    }
}

/// Writes the files below `dir`, one of them patched.
pub fn write_all(dir: &Path, files: &[Content], patched: Option<(usize, &[u8])>) {
    for (number, (path, content)) in files.iter().enumerate() {
        let path = dir.join(path);
        std::fs::create_dir_all(path.parent().expect("it has a parent")).expect("a directory");
        let mut content = content.clone();
        if let Some((_, patches)) = patched.filter(|(which, _)| *which == number) {
            patch(&mut content, patches);
        }
        std::fs::write(path, content).expect("a file");
    }
}
