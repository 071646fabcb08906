//! Whatever byte goes bad, `verify` and `restore` say in which file and where, with exit code 3.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::harness::{Server, Setup, hubbub, hubbub_aside};

const SEGMENT: &str = "segments/00000001.seg";

/// A stopped server's directory with a few segments and an unsealed slot, and a backup of it.
async fn stopped() -> (Setup, String) {
    let mut server = Server::start();
    let mut http = server.http().await;
    for part in 0..6 {
        let lines: String = (0..2_000)
            .map(|n| json!({"roomId": format!("r{}", n % 5), "userId": "ada", "message": format!("{part} {n} and some more words")}))
            .map(|message| message.to_string() + "\n")
            .collect();
        assert_eq!(http.post("/v1/messages", lines).await.lines().len(), 2_000);
    }
    drop(http);
    let dir = server.setup().beside("backups").display().to_string();
    let printed = server.run(&["backup", &dir, "--json"], "").await.success();
    for text in ["this one is in the journal", "this one too"] {
        server.send("r0", text).await;
    }
    server.stop().await;
    let backup: Value = serde_json::from_str(&printed).unwrap();
    (server.setup(), backup["backup"].as_str().unwrap().to_owned())
}

/// A byte of each part of a segment, and where the part begins.
fn parts(bytes: &[u8]) -> Vec<(&'static str, usize, usize)> {
    let number =
        |at: usize| usize::try_from(u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())).unwrap();
    let table = number(bytes.len() - 32);
    let mut parts = vec![
        ("header", 3, 0),
        ("block", 40, 16),
        ("table of sections", table + 5, table),
        ("footer", bytes.len() - 10, bytes.len() - 32),
    ];
    for (place, name) in
        ["ids", "postings", "users", "fences", "rooms", "blocks", "user fences"].into_iter().enumerate()
    {
        let at = number(table + place * 32 + 8);
        parts.push((name, at + 1, at));
    }
    parts
}

/// The numbers behind "at byte" of the lines that name `file`.
fn places(printed: &str, file: &str) -> Vec<usize> {
    let told = format!("{file} is damaged at byte ");
    let tails = printed.lines().filter_map(|line| Some(line.split_once(&told)?.1));
    tails.map(|tail| tail.split(':').next().unwrap().parse().unwrap()).collect()
}

/// Every file with its content and the time it was changed.
fn contents(dir: &Path) -> BTreeMap<String, (Vec<u8>, std::time::SystemTime)> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all.extend(contents(&path));
        } else {
            let changed = path.metadata().unwrap().modified().unwrap();
            all.insert(path.display().to_string(), (fs::read(&path).unwrap(), changed));
        }
    }
    all
}

#[tokio::test]
async fn corrupt_block_is_named() {
    let (setup, backup) = stopped().await;
    let data = setup.data().display().to_string();
    let before = (contents(setup.data()), contents(Path::new(&backup)));
    let printed = hubbub(&["verify", &data], "").success();
    assert!(
        printed.contains("nothing is damaged; 12002 messages (") && printed.contains("5 rooms"),
        "{printed}"
    );
    let printed = hubbub(&["verify", &backup, "--json"], "").success();
    let found: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!((&found["messages"], &found["faults"]), (&json!(12_000), &json!(0)));
    assert!(found["segments"].as_u64() > Some(1), "{found}");
    assert_eq!(before, (contents(setup.data()), contents(Path::new(&backup))), "verifying changed something");

    let target = setup.beside("restored").display().to_string();
    for dir in [&data, &backup] {
        let path = Path::new(dir).join(SEGMENT);
        let good = fs::read(&path).unwrap();
        for (part, at, begin) in parts(&good) {
            let mut bad = good.clone();
            bad[at] ^= 1;
            fs::write(&path, bad).unwrap();
            let ran = hubbub(&["verify", dir], "");
            assert_eq!(ran.code, Some(3), "{part}: {ran:?}");
            let named = places(&ran.stdout, SEGMENT);
            assert!(matches!(named[..], [place] if (begin..=at).contains(&place)), "{part} at {at}: {ran:?}");
            if *dir == backup {
                let line = hubbub(&["restore", dir, "--to", &target], "").refusal(3);
                assert_eq!(places(&line, SEGMENT), named, "{part}: {line}");
                assert!(!Path::new(&target).exists(), "half a data directory was left");
            }
        }
        fs::write(&path, good).unwrap();
    }
    // What is wrong in a backup but no part of a segment.
    for (file, at) in [("MANIFEST", 30), ("FORMAT", 2)] {
        let path = Path::new(&backup).join(file);
        let good = fs::read(&path).unwrap();
        let mut bad = good.clone();
        bad[at] ^= 1;
        fs::write(&path, bad).unwrap();
        let line = hubbub(&["restore", &backup, "--check"], "").refusal(3);
        assert!(line.contains(file), "{line}");
        fs::write(&path, good).unwrap();
    }
    fs::remove_file(Path::new(&backup).join(SEGMENT)).unwrap();
    let ran = hubbub(&["verify", &backup], "");
    assert!(ran.code == Some(3) && ran.stdout.contains(SEGMENT), "{ran:?}");
}

/// As `restore` takes it. What lost its first files is damaged all the same.
#[tokio::test]
async fn the_newest_of_a_directory_of_backups_is_verified() {
    let server = Server::start();
    let dir = server.setup().beside("backups").display().to_string();
    let mut newest = String::new();
    for text in ["first", "second"] {
        server.send("r", text).await;
        let made = server.run(&["backup", &dir, "--json"], "").await.success();
        let made: Value = serde_json::from_str(&made).unwrap();
        newest = made["backup"].as_str().unwrap().to_owned();
    }
    let said = hubbub(&["verify", &dir], "").success();
    assert!(said.starts_with(&format!("{newest}: nothing is damaged; 2 messages")), "{said}");
    let found: Value = serde_json::from_str(&hubbub(&["verify", &dir, "--json"], "").success()).unwrap();
    assert_eq!(found["dir"], newest);
    for file in ["FORMAT", "MANIFEST"] {
        fs::remove_file(Path::new(&newest).join(file)).unwrap();
        for dir in [&dir, &newest] {
            let ran = hubbub(&["verify", dir], "");
            assert_eq!((ran.code, places(&ran.stdout, file)), (Some(3), vec![0]), "{ran:?}");
            assert!(ran.stderr.contains(&newest), "{ran:?}");
        }
    }
}

#[tokio::test]
async fn what_a_data_directory_lost_is_damage() {
    let (setup, _) = stopped().await;
    let data = setup.data().display().to_string();
    for file in ["LOCK", "FORMAT", "MANIFEST"] {
        fs::remove_file(setup.data().join(file)).unwrap();
        let ran = hubbub(&["verify", &data], "");
        let is_damaged = file != "LOCK";
        assert_eq!(ran.code, Some(if is_damaged { 3 } else { 0 }), "{ran:?}");
        assert_eq!(places(&ran.stdout, file).len(), usize::from(is_damaged), "{ran:?}");
    }
}

#[tokio::test]
async fn a_bad_byte_of_the_journal_is_named() {
    let (setup, _) = stopped().await;
    let slots = fs::read_dir(setup.data().join("journal")).unwrap().map(|entry| entry.unwrap().path());
    let slots = slots.filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with("slot-"));
    let newest = slots.max_by_key(|path| path.metadata().unwrap().modified().unwrap()).unwrap();
    let mut bytes = fs::read(&newest).unwrap();
    // In the first of two blocks: the second one proves that this is no torn end.
    bytes[50] ^= 1;
    fs::write(&newest, bytes).unwrap();
    let ran = hubbub(&["verify", &setup.data().display().to_string()], "");
    assert_eq!(ran.code, Some(3), "{ran:?}");
    let slot = format!("journal/{}", newest.file_name().unwrap().to_str().unwrap());
    assert_eq!(places(&ran.stdout, &slot), [0], "{ran:?}");
}

#[tokio::test]
async fn a_journal_that_is_gone_is_named() {
    let (setup, _) = stopped().await;
    fs::remove_dir_all(setup.data().join("journal")).unwrap();
    let ran = hubbub(&["verify", &setup.data().display().to_string()], "");
    assert_eq!((ran.code, places(&ran.stdout, "journal/end")), (Some(3), vec![0]), "{ran:?}");
}

#[tokio::test]
async fn a_directory_in_use_or_none_at_all_is_refused() {
    let server = Server::start();
    let data = server.data().display().to_string();
    let line = hubbub_aside(vec!["verify".into(), data], String::new()).await.refusal(3);
    assert!(line.contains("in use by process"), "{line}");
    server.send("r", "unharmed").await;
    let nowhere = server.setup().beside("nowhere").display().to_string();
    for arguments in [&["verify", &nowhere][..], &["restore", &nowhere, "--to", "/tmp/x"]] {
        let ran = hubbub(arguments, "");
        assert!(ran.code != Some(0) && ran.stderr.contains("nowhere"), "{ran:?}");
    }
    let empty = server.setup().beside("empty");
    fs::create_dir(&empty).unwrap();
    fs::write(empty.join("letter.txt"), "dear ada").unwrap();
    let line = hubbub(&["verify", &empty.display().to_string()], "").refusal(1);
    assert!(line.contains("neither a data directory of Hubbub nor a backup"), "{line}");
    let ran = hubbub(&["restore", &nowhere], "");
    assert!(ran.code == Some(2) && ran.stderr.contains("--to"), "{ran:?}");
}
