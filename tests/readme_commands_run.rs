//! The commands of the README do what it says: each marked block is run, in order, in one shell.

use std::path::Path;
use std::process::Command;

use crate::harness::Server;

/// The address the README uses.
const ADDRESS: &str = "http://127.0.0.1:8080";

/// The contents of all `sh` blocks that follow `<!-- run -->`.
fn marked_blocks(text: &str) -> Vec<&str> {
    let after_marks = text.split("<!-- run -->\n").skip(1);
    let blocks = after_marks.map(|after| {
        let block = after.strip_prefix("```sh\n").expect("a mark stands right before its ```sh block");
        block.split_once("```").expect("a block that ends").0
    });
    blocks.collect()
}

/// Commands that a newcomer needs, from the first one of the README to the receipt of the first message.
const NEWCOMER_MAX: usize = 3;

/// What a newcomer does: start the server, as the README's first command does, and send what its first marked block sends.
#[tokio::test]
async fn the_first_message_takes_three_commands() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let readme = std::fs::read_to_string(root.join("README.md")).unwrap();
    let first = readme.split("```sh\n").nth(1).and_then(|block| block.lines().next()).unwrap();
    assert!(first.starts_with("make run "), "the README begins with what starts a server: {first}");
    let makefile = std::fs::read_to_string(root.join("Makefile")).unwrap();
    let recipe = makefile.split("\nrun: ").nth(1).and_then(|run| run.lines().nth(1)).unwrap();
    let (_, arguments) = recipe.split_once(" -- ").expect("cargo run -- ARGUMENTS");
    assert_eq!(arguments, "serve", "a server with nothing but defaults is what the rest of the test starts");
    let begun = std::time::Instant::now();
    let server = Server::start();
    let mut commands = marked_blocks(&readme).first().unwrap().lines();
    for count in 2..=NEWCOMER_MAX {
        let command = commands.next().expect("a receipt").replace(ADDRESS, &server.url());
        let run = move || Command::new("bash").args(["-c", &command]).output().unwrap();
        let output = tokio::task::spawn_blocking(run).await.unwrap();
        if String::from_utf8_lossy(&output.stdout).contains("\"seq\":1,") {
            println!("a receipt after {count} commands and {:?}", begun.elapsed());
            return;
        }
    }
    panic!("no receipt after {NEWCOMER_MAX} commands");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readme_commands_run() {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let blocks = std::fs::read_to_string(readme).unwrap();
    let blocks = marked_blocks(&blocks);
    assert!(!blocks.is_empty(), "the README shows how to begin");
    let server = Server::start();
    let url = server.url();
    // Each command must succeed, and curl only does when the server does.
    let script = format!(
        "set -euo pipefail\ncurl() {{ command curl -sS --fail-with-body \"$@\"; echo; }}\n{}",
        blocks.concat().replace(ADDRESS, &url)
    );
    let binary = Path::new(env!("CARGO_BIN_EXE_hubbub"));
    let path = std::env::var("PATH").unwrap();
    let path = format!("{}:{path}", binary.parent().unwrap().display());
    let run = move || {
        Command::new("bash")
            .args(["-c", &script])
            .env("PATH", path)
            .env("HUBBUB_SERVER", url)
            .output()
            .unwrap()
    };
    let output = tokio::task::spawn_blocking(run).await.unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("\"seq\":1"), "the first message is the first: {text}");
}
