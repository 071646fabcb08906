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
