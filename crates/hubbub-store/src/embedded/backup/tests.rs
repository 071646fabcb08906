//! Snapshots, restoring and verifying, on the real file system.

use std::path::Path;
use std::sync::Arc;

use hubbub_core::backup::{BACKUP_UNUSED_MAX, BackupInfo};
use hubbub_core::change::{Change, RoomChange, RoomSettings};
use hubbub_core::clock::{ManualClock, SeededRandom};
use hubbub_core::kv::{Condition, KeyInfo, KvChangesRead};
use hubbub_core::queue::{Audience, Due, QueueSend, QueueSettings};
use hubbub_core::store::{Cursor, HistoryQuery};
use hubbub_core::{KvOp, MessageType, Op, OpBatch, Outcome, QueueOp, QueueOutcome, Send, Timestamp};

use crate::embedded::disk::FileDisk;
use crate::embedded::manifest::Manifest;
use crate::embedded::{DataFault, Engine, EngineOptions, MergeOptions, RestoreError, restore, verify};
use tempfile::TempDir;

struct TestDirectory {
    dir: TempDir,
    clock: Arc<ManualClock>,
}

impl TestDirectory {
    fn new() -> Self {
        let clock = Arc::new(ManualClock::at(Timestamp::from_micros(1_800_000_000_000_000)));
        Self { dir: tempfile::tempdir().unwrap(), clock }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.dir.path().join(name)
    }

    fn open(&self, name: &str) -> Engine {
        let path = self.path(name);
        std::fs::create_dir_all(&path).unwrap();
        let merge = MergeOptions { segments_max: 3, fan_in: 2, ..MergeOptions::default() };
        let options =
            EngineOptions { slot_bytes: 16 * 1024, reserve_bytes: 0, merge, ..EngineOptions::default() };
        let clock = Arc::clone(&self.clock);
        Engine::open(options, Arc::new(FileDisk::new(path)), clock, &SeededRandom::new(5)).unwrap()
    }

    /// Copies a snapshot as a client would, in small pieces.
    fn fetch(&self, engine: &Engine, info: &BackupInfo, name: &str) {
        for file in &info.files {
            let path = self.path(name).join(&file.name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            let mut bytes = Vec::new();
            loop {
                let piece = engine.read_backup(&info.id, &file.name, bytes.len() as u64, 1_000);
                match piece.unwrap().unwrap() {
                    piece if piece.is_empty() => break,
                    piece => bytes.extend(piece),
                }
            }
            assert_eq!((bytes.len() as u64, crc32c::crc32c(&bytes)), (file.bytes, file.crc32c), "{file:?}");
            std::fs::write(path, bytes).unwrap();
        }
    }

    fn restore(&self, info: &BackupInfo, from: &str, to: &str) -> Result<String, RestoreError> {
        restore(
            &self.path(from),
            &self.path(to),
            &info.files,
            (&*self.clock, &SeededRandom::new(77)),
            &|_| (),
        )
    }
}

fn send(engine: &Engine, room: &str, numbers: std::ops::Range<u64>) {
    for number in numbers {
        let (id, text) = (format!("m{number}"), format!("text {number} {}", "x".repeat(100)));
        let mut batch = OpBatch::default();
        batch.push(&Op::Send(Send {
            room,
            user: "ada",
            id: &id,
            username: None,
            text: &text,
            kind: MessageType::Text,
            timestamp: Timestamp::from_micros(7),
        }));
        engine.apply(&batch).unwrap();
        while engine.seal_step().unwrap() {}
    }
}

fn put(engine: &Engine, keys: std::ops::Range<u64>, value: &str) {
    for first in keys.clone().step_by(40) {
        let mut batch = OpBatch::default();
        for number in first..keys.end.min(first + 40) {
            let (key, value) = (format!("k{number}"), format!("{value} {number}"));
            let (key, value) = (key.as_bytes(), value.as_bytes());
            batch.push(&Op::Kv(KvOp::Put { key, value, ttl_ms: None, condition: Condition::Always }));
        }
        engine.apply(&batch).unwrap();
        while engine.seal_step().unwrap() {}
    }
}

fn values(engine: &Engine) -> Vec<(String, String, u64)> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let keys = engine.keys(b"", None, usize::MAX).unwrap();
    let value = |info: &KeyInfo| {
        let entry = engine.value(&info.key).unwrap().unwrap();
        (text(&info.key), text(&entry.value), entry.revision)
    };
    keys.iter().map(value).collect()
}

fn ids(engine: &Engine, room: &str) -> Vec<String> {
    let query =
        HistoryQuery { cursor: Cursor::After(0), from: None, to: None, limit: 10_000, bytes_max: usize::MAX };
    let page = engine.history(room, &query).unwrap();
    page.messages.iter().map(|message| message.sent.id.to_owned()).collect()
}

fn faults(dir: &Path) -> Vec<DataFault> {
    let mut faults = Vec::new();
    verify(dir, &mut |fault| faults.push(fault), &|_| ()).unwrap();
    faults
}

fn named(numbers: std::ops::Range<u64>) -> Vec<String> {
    numbers.map(|number| format!("m{number}")).collect()
}

/// Sends a message to a queue, and says its id.
fn enqueue(engine: &Engine) -> u64 {
    let mut batch = OpBatch::default();
    batch.push(&Op::Queue(QueueOp::Send(QueueSend {
        queue: "q",
        sender: "ada",
        audience: Audience::Anyone,
        text: "pay the bill",
        message_id: None,
        due: Due::Now,
        group: None,
        ttl_ms: None,
        registers: true,
    })));
    match engine.apply(&batch).unwrap()[0] {
        Outcome::Queue(QueueOutcome::Sent { id, .. }) => id,
        ref other => panic!("{other:?}"),
    }
}

/// Consumers remember ids of what they have done, also of what came after the backup.
#[test]
fn no_message_of_a_queue_gets_an_id_that_was_given_before_a_restore() {
    let directory = TestDirectory::new();
    let engine = directory.open("data");
    let mut batch = OpBatch::default();
    batch.push(&Op::Queue(QueueOp::Put { queue: "q", settings: &QueueSettings::default() }));
    engine.apply(&batch).unwrap();
    let first = enqueue(&engine);
    let info = engine.begin_backup("one").unwrap();
    directory.fetch(&engine, &info, "copy");
    let given: Vec<u64> = (0..10).map(|_| enqueue(&engine)).collect();
    assert_eq!(given[9], first + 10);
    let epoch = directory.restore(&info, "copy", "restored").unwrap();
    let restored = directory.open("restored");
    assert_eq!(&*restored.epoch(), epoch, "as the restore said");
    let next = enqueue(&restored);
    assert!(next > first + 1_000_000, "{next}");
    drop(restored);
    // Whether or not that was sealed.
    let again = directory.open("restored");
    assert_eq!((&*again.epoch(), enqueue(&again)), (&*epoch, next + 1));
}

#[test]
fn a_snapshot_is_one_moment_whatever_happens_after_it() {
    let directory = TestDirectory::new();
    let engine = directory.open("data");
    send(&engine, "a", 0..300);
    send(&engine, "b", 0..7);
    let info = engine.begin_backup("one").unwrap();
    assert_eq!((info.messages, info.epoch.clone()), (307, engine.epoch()));
    // More messages, and merges that remove the segments of the snapshot.
    send(&engine, "a", 300..900);
    send(&engine, "c", 0..5);
    while engine.merge_step().unwrap() {}
    let gone = info.files.iter().filter(|file| !directory.path("data").join(&file.name).exists()).count();
    assert!(gone > 0, "nothing was merged away");

    directory.fetch(&engine, &info, "backup");
    assert_eq!(faults(&directory.path("backup")), []);
    let epoch = directory.restore(&info, "backup", "restored").unwrap();
    assert_ne!(epoch, *engine.epoch());
    let found = verify(&directory.path("restored"), &mut |fault| panic!("{fault}"), &|_| ()).unwrap();
    assert_eq!((found.messages, found.rooms, found.epoch), (307, 2, epoch.clone()));
    let restored = directory.open("restored");
    assert_eq!(*restored.epoch(), epoch);
    assert_eq!((ids(&restored, "a"), ids(&restored, "b")), (named(0..300), named(0..7)));
    assert!(restored.room("c").is_none());
    assert_eq!(restored.room("a").unwrap().head, 300);
    // It knows its ids, and goes on behind its heads.
    send(&restored, "a", 299..302);
    assert_eq!(ids(&restored, "a"), named(0..302));
    assert_eq!(restored.room("a").unwrap().head, 302);
}

#[test]
fn keys_are_as_they_were_and_no_revision_comes_twice() {
    let directory = TestDirectory::new();
    let engine = directory.open("data");
    put(&engine, 0..2_000, "first");
    put(&engine, 0..200, "second");
    let (before, revision) = (values(&engine), engine.shared.keys.revision());
    let info = engine.begin_backup("one").unwrap();
    assert!(info.files.iter().filter(|file| file.name.ends_with(".run")).count() > 2, "{:?}", info.files);
    put(&engine, 0..4_000, "third");
    while engine.merge_step().unwrap() {}
    let gone = |end: &str| {
        let of_kind = info.files.iter().filter(|file| file.name.ends_with(end));
        of_kind.filter(|file| !directory.path("data").join(&file.name).exists()).count()
    };
    assert!(gone(".run") > 0 && gone(".log") > 0, "nothing was merged away");
    let last = engine.shared.keys.revision();

    directory.fetch(&engine, &info, "backup");
    assert_eq!(faults(&directory.path("backup")), []);
    directory.restore(&info, "backup", "restored").unwrap();
    let found = verify(&directory.path("restored"), &mut |fault| panic!("{fault}"), &|_| ()).unwrap();
    assert_eq!(found.keys, 2_000);
    let restored = directory.open("restored");
    assert_eq!(values(&restored), before);
    // What came after the backup is not there, so who watched it begins anew, whatever it saw last.
    for after in [revision, last] {
        let history = restored.shared.keys.changes(b"", after, 10);
        assert!(matches!(history, KvChangesRead::Compacted { .. }), "{history:?}");
    }
    put(&restored, 0..3, "fourth");
    let given = restored.shared.keys.revision();
    assert!(given > last);
    // Restored once more, it begins at the same change.
    directory.clock.advance_micros(1_000_000);
    directory.restore(&info, "backup", "again").unwrap();
    let again = directory.open("again");
    put(&again, 0..1, "fifth");
    assert!(again.shared.keys.revision() > given);
    // A run that the manifest does not name any more is missed.
    let backup = FileDisk::new(directory.path("backup"));
    let mut manifest = Manifest::load(&backup).unwrap().unwrap();
    manifest.keys.runs.remove(9);
    manifest.store(&backup).unwrap();
    let found = faults(&directory.path("backup"));
    assert!(matches!(&found[..], [fault] if fault.what.contains("its runs hold")), "{found:?}");
    let mut cut = info.clone();
    cut.files.retain(|file| !file.name.ends_with(".log"));
    assert!(matches!(directory.restore(&cut, "backup", "cut"), Err(RestoreError::Damaged { .. })));
}

#[test]
fn an_empty_store_and_a_clean_slot_are_backed_up_too() {
    let directory = TestDirectory::new();
    let engine = directory.open("data");
    let empty = engine.begin_backup("empty").unwrap();
    assert_eq!((empty.messages, empty.files.len()), (0, 2));
    directory.fetch(&engine, &empty, "empty");
    directory.restore(&empty, "empty", "restored").unwrap();
    assert!(directory.open("restored").rooms(None, 10).is_empty());

    send(&engine, "a", 0..3);
    let (first, second) = (engine.begin_backup("1").unwrap(), engine.begin_backup("2").unwrap());
    assert_eq!(first.files, second.files, "nothing was written in between");
    assert_eq!(first.messages, 3);
}

#[test]
fn a_snapshot_is_made_while_seals_are_behind() {
    let directory = TestDirectory::new();
    let engine = directory.open("data");
    send(&engine, "a", 0..1);
    let mut sent = 0;
    let batch = |number: u64| {
        let mut batch = OpBatch::default();
        batch.push(&Op::Send(Send {
            room: "b",
            user: "ada",
            id: &number.to_string(),
            username: None,
            text: &"x".repeat(6_000),
            kind: MessageType::Text,
            timestamp: Timestamp::from_micros(7),
        }));
        batch
    };
    // Nobody seals until writes are refused.
    while engine.apply(&batch(sent)).is_ok() {
        sent += 1;
        engine.prepare_step().unwrap();
    }
    assert!(sent > 4);
    assert_eq!(engine.begin_backup("one").unwrap().messages, sent + 1);
}

#[test]
fn members_marks_and_what_is_gone_are_as_they_were() {
    let directory = TestDirectory::new();
    let engine = directory.open("data");
    let change = |what| {
        let mut batch = OpBatch::default();
        batch.push(&Op::Change(Change { by: None, what }));
        engine.apply(&batch).unwrap();
    };
    send(&engine, "a", 0..200);
    send(&engine, "gone", 0..50);
    let settings = RoomSettings { title: Some("Ä"), members_only: Some(true), ..RoomSettings::default() };
    change(RoomChange::PutRoom { room: "a", settings });
    change(RoomChange::AddMember { room: "a", user: "bob" });
    change(RoomChange::DeleteRoom { room: "gone" });
    let info = engine.begin_backup("one").unwrap();
    assert_eq!(info.messages, 200);
    // Behind the barrier everything goes, but not from the snapshot.
    change(RoomChange::RemoveMember { room: "a", user: "bob" });
    while !ids(&engine, "a").is_empty() {
        change(RoomChange::EraseUser { user: "ada" });
    }
    while engine.merge_step().unwrap() {}

    directory.fetch(&engine, &info, "backup");
    assert_eq!(faults(&directory.path("backup")), []);
    directory.restore(&info, "backup", "restored").unwrap();
    let restored = directory.open("restored");
    assert_eq!(ids(&restored, "a"), named(0..200));
    let room = restored.room("a").unwrap();
    assert_eq!((room.messages, room.title.as_deref(), room.members_only), (200, Some("Ä"), true));
    assert!(restored.room("gone").is_none());
    send(&restored, "gone", 0..1);
    assert_eq!(restored.room("gone").unwrap().head, 51, "no number comes twice");
    drop(restored);
    let found = verify(&directory.path("restored"), &mut |fault| panic!("{fault}"), &|_| ()).unwrap();
    assert_eq!((found.messages, found.rooms), (201, 2));
    // What was erased, and dropped from its segments, is not missed in the original either.
    drop(engine);
    assert_eq!(faults(&directory.path("data")), []);
}

#[test]
fn a_missing_segment_is_missed_whatever_the_manifest_says() {
    let directory = TestDirectory::new();
    let engine = directory.open("data");
    send(&engine, "a", 0..400);
    let info = engine.begin_backup("one").unwrap();
    directory.fetch(&engine, &info, "backup");
    let backup = FileDisk::new(directory.path("backup"));
    let mut manifest = Manifest::load(&backup).unwrap().unwrap();
    assert!(manifest.segments.len() > 2);
    manifest.segments.remove(1);
    manifest.store(&backup).unwrap();
    let found = faults(&directory.path("backup"));
    assert!(matches!(&found[..], [fault] if fault.what.contains("of room a are missing")), "{found:?}");
}

#[test]
fn snapshots_end() {
    let directory = TestDirectory::new();
    let engine = directory.open("data");
    send(&engine, "a", 0..3);
    let first = engine.begin_backup("first").unwrap();
    send(&engine, "a", 3..4);
    let again = engine.begin_backup("first").unwrap();
    assert_eq!((again.is_new, again.messages, &again.files), (false, 3, &first.files), "asked twice");
    let read = |info: &BackupInfo, file: &str| engine.read_backup(&info.id, file, 0, 10).unwrap();
    assert!(read(&first, "MANIFEST").is_some());
    for file in ["LOCK", "../data/MANIFEST", "segments", "/etc/passwd", ""] {
        assert_eq!(read(&first, file), None, "{file}");
    }
    assert_eq!(engine.read_backup(&first.id, "FORMAT", 1_000, 10).unwrap(), Some(Vec::new()));
    assert!(engine.end_backup(&first.id) && !engine.end_backup(&first.id));
    assert_eq!(read(&first, "MANIFEST"), None);
    // The one that was not read for longest gives way.
    let mut all = Vec::new();
    for number in 0..4 {
        all.push(engine.begin_backup(&number.to_string()).unwrap());
        directory.clock.advance_micros(1_000_000);
    }
    assert!(read(&all[0], "FORMAT").is_some());
    all.push(engine.begin_backup("4").unwrap());
    let kept: Vec<bool> = all.iter().map(|info| read(info, "FORMAT").is_some()).collect();
    assert_eq!(kept, [true, false, true, true, true]);
    directory.clock.advance_micros(i64::try_from(BACKUP_UNUSED_MAX.as_micros()).unwrap());
    engine.merge_step().unwrap();
    assert_eq!(read(&all[4], "FORMAT"), None, "nobody read it for long");
}

/// Whoever has most of its files reads for long what is there, and nothing here.
#[test]
fn a_snapshot_that_is_asked_for_is_kept() {
    let directory = TestDirectory::new();
    let engine = directory.open("data");
    send(&engine, "a", 0..3);
    engine.begin_backup("one").unwrap();
    for _ in 0..3 {
        directory.clock.advance_micros(i64::try_from(BACKUP_UNUSED_MAX.as_micros()).unwrap() * 2 / 3);
        engine.merge_step().unwrap();
        assert!(!engine.begin_backup("one").unwrap().is_new);
    }
}

#[test]
fn nothing_is_left_of_a_restore_that_fails() {
    let directory = TestDirectory::new();
    let engine = directory.open("data");
    send(&engine, "a", 0..300);
    let info = engine.begin_backup("one").unwrap();
    directory.fetch(&engine, &info, "backup");
    for file in &info.files {
        let path = directory.path("backup").join(&file.name);
        let good = std::fs::read(&path).unwrap();
        let mut bad = good.clone();
        bad[good.len() / 2] ^= 1;
        for bad in [&bad[..], &good[..good.len() - 1]] {
            std::fs::write(&path, bad).unwrap();
            let error = directory.restore(&info, "backup", "restored").unwrap_err();
            assert!(error.to_string().contains(&file.name), "{error}");
            assert!(!directory.path("restored").exists());
        }
        std::fs::write(&path, good).unwrap();
    }
    let mut cut = info.clone();
    cut.files.remove(0);
    assert!(matches!(directory.restore(&cut, "backup", "restored"), Err(RestoreError::Damaged { .. })));
    let mut outside = info.clone();
    outside.files[0].name = "../secret".into();
    assert!(matches!(directory.restore(&outside, "backup", "restored"), Err(RestoreError::Damaged { .. })));
    // A new volume has these, and keeps them.
    let (found, hidden) =
        (directory.path("restored").join("lost+found"), directory.path("restored").join(".marker"));
    std::fs::create_dir_all(&found).unwrap();
    std::fs::write(&hidden, "").unwrap();
    assert!(matches!(directory.restore(&cut, "backup", "restored"), Err(RestoreError::Damaged { .. })));
    assert_eq!(std::fs::read_dir(directory.path("restored")).unwrap().count(), 2);
    assert!(found.exists() && hidden.exists());
    directory.restore(&info, "backup", "restored").unwrap();
    assert!(matches!(directory.restore(&info, "backup", "restored"), Err(RestoreError::NotEmpty { .. })));
}

/// Other people of the machine have no business with the messages.
#[test]
fn only_the_owner_looks_into_a_directory_that_is_made() {
    use std::os::unix::fs::PermissionsExt;
    let directory = TestDirectory::new();
    let engine = directory.open("data");
    let info = engine.begin_backup("one").unwrap();
    directory.fetch(&engine, &info, "backup");
    let mode = |name: &str| std::fs::metadata(directory.path(name)).unwrap().permissions().mode() & 0o777;
    directory.restore(&info, "backup", "new/restored").unwrap();
    std::fs::create_dir(directory.path("there")).unwrap();
    assert_eq!(
        (mode("new"), mode("new/restored")),
        (mode("there"), 0o700),
        "what leads to it is like others"
    );
    // What is there is left as it is.
    std::fs::set_permissions(directory.path("there"), std::fs::Permissions::from_mode(0o755)).unwrap();
    directory.restore(&info, "backup", "there").unwrap();
    assert_eq!(mode("there"), 0o755);
}

#[test]
fn every_part_of_a_data_directory_is_verified() {
    let directory = TestDirectory::new();
    {
        let engine = directory.open("data");
        send(&engine, "a", 0..300);
        put(&engine, 0..300, "value");
        send(&engine, "b", 0..20);
    }
    let data = directory.path("data");
    assert_eq!(faults(&data), []);
    let found = verify(&data, &mut |fault| panic!("{fault}"), &|_| ()).unwrap();
    assert_eq!((found.messages, found.rooms, found.keys), (320, 2, 300));
    assert!(found.segments > 1 && found.unsealed > 0, "{found:?}");
    let newest = std::fs::read_dir(data.join("journal")).unwrap().map(|entry| entry.unwrap());
    let newest = newest.filter(|entry| entry.file_name().to_string_lossy().starts_with("slot-"));
    let newest = newest.max_by_key(|entry| entry.metadata().unwrap().modified().unwrap()).unwrap();
    let slot = format!("journal/{}", newest.file_name().to_string_lossy());
    let of_keys = |end: &str| {
        let names = std::fs::read_dir(data.join("kv")).unwrap().map(|entry| entry.unwrap().file_name());
        let name = names.map(|name| name.into_string().unwrap()).find(|name| name.ends_with(end));
        format!("kv/{}", name.unwrap())
    };
    let (run, log) = (of_keys(".run"), of_keys(".log"));
    // Byte 60 of the slot is in its first block.
    for (file, at) in [
        ("FORMAT", 3),
        ("MANIFEST", 40),
        ("segments/00000001.seg", 3),
        ("segments/00000001.seg", 500),
        (&run, 60),
        (&log, 60),
        (&slot, 60),
    ] {
        let path = data.join(file);
        let good = std::fs::read(&path).unwrap();
        let mut bad = good.clone();
        bad[at] ^= 1;
        std::fs::write(&path, &bad).unwrap();
        let found = faults(&data);
        assert!(
            found.iter().any(|fault| fault.file == file && fault.offset <= at as u64),
            "{file}: {found:?}"
        );
        std::fs::remove_file(&path).unwrap();
        if !file.starts_with("journal") {
            let found = faults(&data);
            assert!(found.iter().any(|fault| fault.file == file), "{file}: {found:?}");
        }
        std::fs::write(&path, good).unwrap();
    }
    assert_eq!(faults(&data), []);
}
