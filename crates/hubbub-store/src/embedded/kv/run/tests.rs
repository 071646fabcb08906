//! Runs: written, read back, merged, damaged.

use std::sync::Arc;

use proptest::prelude::*;

use super::{KeyRun, KeySource, RunWriter, merge};
use crate::embedded::disk::Disk;
use crate::embedded::file::Patience;
use crate::embedded::file::cache::BlockCache;
use crate::embedded::file::{FileError, SortedFileWriter};
use crate::embedded::kv::{KV_DIR, Version, run_path};
use crate::embedded::segment::IdHasher;
use crate::embedded::sim::SimDisk;

type Keys = std::collections::BTreeMap<Vec<u8>, (Version, Vec<u8>)>;

fn hasher() -> IdHasher {
    IdHasher::new([1, 2])
}

fn disk() -> SimDisk {
    let disk = SimDisk::new();
    disk.make_dir(KV_DIR).unwrap();
    disk
}

fn open(disk: &SimDisk, number: u64) -> Result<KeyRun, FileError> {
    KeyRun::open(disk, number, BlockCache::new(1 << 20))
}

fn writer(disk: &SimDisk, number: u64, keys: u64) -> RunWriter {
    RunWriter::create(Arc::new(disk.clone()), number, keys, hasher()).unwrap()
}

fn write(disk: &SimDisk, number: u64, keys: &Keys) -> KeyRun {
    let mut writer = writer(disk, number, keys.len() as u64);
    for (key, (version, value)) in keys {
        writer.push(key, *version, value).unwrap();
    }
    writer.finish().unwrap();
    open(disk, number).unwrap()
}

fn version(revision: u64, expires: Option<i64>, value: Option<&[u8]>) -> Version {
    let value_bytes = u32::try_from(value.unwrap_or_default().len()).unwrap();
    Version { revision, expires: expires.filter(|_| value.is_some()), deleted: value.is_none(), value_bytes }
}

fn read(run: &KeyRun) -> Result<Keys, FileError> {
    let (mut keys, mut scan) = (Keys::new(), run.scan(&[])?);
    while let Some(entry) = scan.current() {
        let value = run.value(entry.value, Patience::Wait)?;
        keys.insert(entry.key.to_vec(), (entry.version, value.to_vec()));
        scan.advance()?;
    }
    Ok(keys)
}

fn faults(run: &KeyRun) -> Vec<FileError> {
    let mut faults = Vec::new();
    run.check(&hasher(), &mut |fault| faults.push(fault));
    faults
}

fn keys() -> impl Strategy<Value = Keys> {
    let key = proptest::collection::vec(97_u8..101, 1..5);
    let value = prop_oneof![
        5 => proptest::collection::vec(any::<u8>(), 0..60),
        1 => proptest::collection::vec(0_u8..2, 1_000..1_100),
        1 => proptest::collection::vec(any::<u8>(), 5_000..5_010),
    ];
    let entry = (1_u64..1_000, proptest::option::of(any::<i64>()), proptest::option::weighted(0.8, value));
    proptest::collection::btree_map(key, entry, 1..200).prop_map(|keys| {
        let entry = |(key, (revision, expires, value)): (_, (_, _, Option<Vec<u8>>))| {
            (key, (version(revision, expires, value.as_deref()), value.unwrap_or_default()))
        };
        keys.into_iter().map(entry).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn what_is_written_is_found(keys in keys(), others in proptest::collection::vec(proptest::collection::vec(97_u8..101, 1..5), 50)) {
        let run = write(&disk(), 1, &keys);
        prop_assert_eq!(read(&run).unwrap(), keys.clone());
        prop_assert!(faults(&run).is_empty(), "{:?}", faults(&run));
        prop_assert_eq!(run.keys(), keys.len() as u64);
        for key in keys.keys().chain(&others) {
            let found = run.find(key, hasher().hash_key(key), Patience::CachedOnly, |entry| {
                Ok((entry.version, run.value(entry.value, Patience::CachedOnly)?.to_vec()))
            });
            let found = found.unwrap();
            prop_assert_eq!(found.as_ref(), keys.get(key));
            let scan = run.scan(key).unwrap();
            let next = keys.range(key.clone()..).next().map(|(key, _)| key.as_slice());
            prop_assert_eq!(scan.current().map(|entry| entry.key), next);
        }
        let mut expiring = 0;
        run.each_expiring(|key| {
            expiring += 1;
            assert_eq!(keys[key.key].0.expires, Some(key.expires));
            assert_eq!(keys[key.key].0.revision, key.revision);
        }).unwrap();
        prop_assert_eq!(expiring, keys.values().filter(|(version, _)| version.expires.is_some()).count());
    }

    #[test]
    fn merged_runs_hold_the_newest_of_each_key(parts in proptest::collection::vec(keys(), 2..5), drop_deleted: bool) {
        let disk = disk();
        let runs: Vec<KeyRun> = (1..).zip(&parts).map(|(number, keys)| write(&disk, number, keys)).collect();
        let mut writer = writer(&disk, 9, runs.iter().map(KeyRun::keys).sum());
        merge(&runs, drop_deleted, &mut writer, || true).unwrap();
        writer.finish().unwrap();
        let merged = open(&disk, 9).unwrap();
        let mut expected = Keys::new();
        parts.into_iter().for_each(|keys| expected.extend(keys));
        expected.retain(|_, (version, _)| !drop_deleted || !version.deleted);
        prop_assert_eq!(read(&merged).unwrap(), expected);
        prop_assert!(faults(&merged).is_empty());
    }
}

#[test]
fn keys_out_of_order_are_refused() {
    let disk = disk();
    let mut writer = writer(&disk, 1, 9);
    let any = version(1, None, Some(b""));
    writer.push(b"b", any, b"").unwrap();
    assert!(writer.push(b"b", any, b"").is_err());
    assert!(writer.push(b"a", any, b"").is_err());
}

#[test]
fn every_damaged_byte_is_seen() {
    let disk = disk();
    let mut keys = Keys::new();
    for number in 0..40_u8 {
        let value = vec![number; if number == 7 { 1_500 } else { 9 }];
        let expires = (number % 3 == 0).then_some(i64::from(number));
        keys.insert(vec![number; 150], (version(number.into(), expires, Some(&value)), value));
    }
    let bytes = write(&disk, 1, &keys).bytes();
    for offset in 0..bytes {
        disk.flip(&run_path(1), offset);
        let seen = match open(&disk, 1) {
            Err(FileError::Damaged { .. } | FileError::Version { .. }) => true,
            Err(error) => panic!("byte {offset}: {error}"),
            Ok(run) => {
                // Whatever is read is right or an error.
                if let Ok(found) = read(&run) {
                    assert_eq!(found, keys, "byte {offset}");
                }
                !faults(&run).is_empty()
            }
        };
        assert!(seen, "byte {offset} of {bytes}");
        disk.flip(&run_path(1), offset);
    }
    assert!(faults(&open(&disk, 1).unwrap()).is_empty());
}

#[test]
fn a_run_of_another_number_or_cut_short_is_refused() {
    let disk = disk();
    let value = b"v".as_slice();
    let run =
        write(&disk, 1, &Keys::from([(b"k".to_vec(), (version(1, None, Some(value)), value.to_vec()))]));
    let mut all = vec![0; usize::try_from(run.bytes()).unwrap()];
    run.file().file.read_exact_at(&mut all, 0).unwrap();
    assert_eq!(crc32c::crc32c(&all), run.file().crc32c);
    for length in [all.len(), all.len() - 1, 100, 20, 0] {
        let file = disk.create(&run_path(2)).unwrap();
        file.write_all_at(&all[..length], 0).unwrap();
        assert!(matches!(open(&disk, 2), Err(FileError::Damaged { .. })), "{length} bytes");
    }
}
