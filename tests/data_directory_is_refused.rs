//! A data directory that cannot be used: exit code 3, and one line that says what is wrong and what to do.

use std::fs;

use crate::harness::{Server, Setup, hubbub};

/// What `serve` says on this directory.
fn refusal(setup: &Setup) -> String {
    let arguments = setup.arguments("127.0.0.1:0");
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    hubbub(&arguments, "").refusal(3)
}

fn must_contain(line: &str, parts: &[&str]) {
    for part in parts {
        assert!(line.contains(part), "'{part}' is not in: {line}");
    }
}

#[tokio::test]
async fn a_locked_directory_is_refused() {
    let server = Server::start();
    let line = refusal(&server.setup());
    must_contain(
        &line,
        &[&server.data().display().to_string(), "in use by process", "stop that one first", "--data"],
    );
    server.send("r", "the first one is unharmed").await;
}

/// What belongs to somebody else is not mixed with data, and left as it is.
#[test]
fn files_of_others_are_left_alone() {
    let setup = Setup::new();
    fs::create_dir(setup.data()).unwrap();
    fs::write(setup.data().join("letter.txt"), "dear ada").unwrap();
    must_contain(&refusal(&setup), &["not Hubbub's", "letter.txt", "--data"]);
    let left: Vec<_> = fs::read_dir(setup.data()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["letter.txt"]);
    // A mounted volume is not quite empty.
    fs::remove_file(setup.data().join("letter.txt")).unwrap();
    fs::create_dir(setup.data().join("lost+found")).unwrap();
    fs::write(setup.data().join(".keep"), "").unwrap();
    setup.start();
}

#[tokio::test]
async fn a_lock_does_not_outlive_its_holder() {
    let mut server = Server::start();
    server.kill();
    // The file is still there, the lock is not.
    assert!(server.data().join("LOCK").exists());
    server.restart();
}

/// A directory in which a server ran.
async fn used() -> Setup {
    let mut server = Server::start();
    server.send("r", "hello").await;
    server.kill();
    server.setup()
}

#[tokio::test]
async fn a_newer_format_is_refused() {
    let setup = used().await;
    fs::write(setup.data().join("FORMAT"), "hubbub data format 2\n").unwrap();
    must_contain(&refusal(&setup), &["format 2", "reads up to 1", "start the version that wrote it"]);
}

#[tokio::test]
async fn a_damaged_directory_is_refused() {
    for (file, content) in
        [("FORMAT", &b"something else\n"[..]), ("MANIFEST", b"HubMani\nnonsense that is long enough")]
    {
        let setup = used().await;
        fs::write(setup.data().join(file), content).unwrap();
        must_contain(&refusal(&setup), &[file, "damaged", "restore the data directory from a backup"]);
    }
    for file in ["FORMAT", "MANIFEST"] {
        let setup = used().await;
        fs::remove_file(setup.data().join(file)).unwrap();
        must_contain(&refusal(&setup), &[file, "backup"]);
    }
}

#[tokio::test]
async fn an_unreadable_directory_is_refused() {
    // Permissions do not bind root, under which tests may run; a directory in place of a file binds everybody.
    let setup = used().await;
    fs::remove_file(setup.data().join("FORMAT")).unwrap();
    fs::create_dir(setup.data().join("FORMAT")).unwrap();
    must_contain(&refusal(&setup), &["FORMAT", "may be read and written"]);

    let setup = Setup::new();
    fs::write(setup.data(), "a file").unwrap();
    let arguments = setup.arguments("127.0.0.1:0");
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let named = format!("{} is a file: name a directory", setup.data().display());
    must_contain(&hubbub(&arguments, "").refusal(2), &[&named]);
}
