//! Every example of `docs/protocol.md`: `http` blocks are requests and their answers, in order, on one server;
//! `json client NAME` and `json server NAME` are frames, on a fresh server for each chapter.

use std::collections::HashMap;
use std::path::Path;

use serde_json::Value;

use super::openapi::{Step, parts, perform};
use super::{Line, converse};
use crate::harness::Server;
use crate::harness::likeness::differences;

/// A fenced block: its chapter, what stands behind the fence, its content.
struct Block<'a> {
    chapter: usize,
    info: &'a str,
    content: &'a str,
}

fn text() -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/protocol.md")).unwrap()
}

fn blocks(text: &str) -> Vec<Block<'_>> {
    let mut blocks = Vec::new();
    for (chapter, part) in text.split("\n## ").enumerate() {
        for fenced in part.split("\n```").skip(1).step_by(2) {
            let (info, content) = fenced.split_once('\n').unwrap_or((fenced, ""));
            blocks.push(Block { chapter, info, content });
        }
    }
    blocks
}

/// The first line, the header and the body of a request or an answer.
fn http(block: &str) -> (&str, Vec<(String, String)>, String) {
    let (head, body) = block.split_once("\n\n").unwrap_or((block, ""));
    let (first, headers) = head.split_once('\n').unwrap_or((head, ""));
    let headers = headers.lines().map(|line| {
        let (name, value) = line.split_once(": ").unwrap();
        (name.to_owned(), value.to_owned())
    });
    (first, headers.collect(), body.to_owned())
}

fn step(request: &str, answer: &str) -> Step {
    let (first, headers, body) = http(request);
    let [method, path, "HTTP/1.1"] = first.split(' ').collect::<Vec<_>>()[..] else {
        panic!("no request line: {first}")
    };
    let (status_line, shown_headers, shown) = http(answer);
    let status = status_line.strip_prefix("HTTP/1.1 ").unwrap()[..3].parse().unwrap();
    let media = shown_headers.into_iter().find(|(name, _)| name == "Content-Type").map(|(_, media)| media);
    let is_text = media.as_deref().is_some_and(|media| !media.ends_with("json") || media.ends_with("ndjson"));
    // The blank line behind the last event belongs to it; the block ends before its line break.
    let shown = if media.as_deref() == Some("text/event-stream") { format!("{shown}\n") } else { shown };
    let answer = if is_text { Value::from(shown) } else { serde_json::from_str(&shown).unwrap() };
    let method = method.parse().unwrap();
    Step {
        name: String::new(),
        taken: Vec::new(),
        place: first.into(),
        method,
        path: path.into(),
        headers,
        body,
        status,
        media,
        content: Value::Null,
        answer,
    }
}

#[tokio::test]
async fn every_request_of_the_protocol_is_answered_as_shown() {
    let text = text();
    let server = Server::start();
    let all: Vec<&str> =
        blocks(&text).iter().filter(|block| block.info == "http").map(|block| block.content).collect();
    assert!(all.len() >= 16 && all.len().is_multiple_of(2), "{} blocks", all.len());
    for pair in all.chunks(2) {
        let step = step(pair[0], pair[1]);
        let (status, media, said) = perform(&server, &step).await;
        assert_eq!((status, &media), (step.status, &step.media), "{}: {said}", step.place);
        for (_, shown, said) in parts(&step, &said) {
            assert_eq!(differences(&shown, &said), [""; 0], "{}: {said}", step.place);
        }
    }
}

#[tokio::test]
async fn every_frame_of_the_protocol_is_said_as_shown() {
    let text = text();
    let paths: HashMap<&str, &str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("<!-- socket ")?.strip_suffix(" -->")?.split_once(' '))
        .collect();
    let mut chapters: Vec<(usize, Vec<Line>)> = Vec::new();
    for block in blocks(&text) {
        let mut words = block.info.split(' ');
        let (Some("json"), Some(side), Some(socket)) = (words.next(), words.next(), words.next()) else {
            continue;
        };
        if chapters.last().is_none_or(|(chapter, _)| *chapter != block.chapter) {
            chapters.push((block.chapter, Vec::new()));
        }
        for frame in block.content.lines() {
            let line = Line {
                socket: socket.into(),
                path: paths[socket].into(),
                is_from_client: side == "client",
                payload: serde_json::from_str(frame).unwrap(),
            };
            chapters.last_mut().unwrap().1.push(line);
        }
    }
    assert_eq!(chapters.len(), 2, "both dialects have a chapter with examples");
    for (_, lines) in chapters {
        assert!(lines.len() >= 4);
        converse(&Server::start(), &lines).await;
    }
}

/// Rows of a table of the document, without the marks of code.
fn has_row(text: &str, cells: &[&str]) -> bool {
    text.lines().any(|line| {
        let row: Vec<String> =
            line.trim_matches('|').split('|').map(|cell| cell.trim().replace('`', "")).collect();
        row.iter().map(String::as_str).take(cells.len()).eq(cells.iter().copied())
    })
}

#[tokio::test]
async fn the_protocol_lists_every_code() {
    let server = Server::start();
    let openapi = server.get("/openapi.json").await.json();
    let asyncapi = server.get("/asyncapi.json").await.json();
    let short =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/api.md")).unwrap();
    let codes =
        openapi["components"]["schemas"]["Problem"]["properties"]["code"]["x-codes"].as_array().unwrap();
    for code in codes {
        let (status, is_retryable) = (code["status"].to_string(), code["retryable"] == true);
        let cells = [code["code"].as_str().unwrap(), &status, if is_retryable { "yes" } else { "no" }];
        assert!(has_row(&text(), &cells), "docs/protocol.md has no row for {cells:?}");
        assert!(short.contains(&format!("`{}`", cells[0])), "docs/api.md does not name {}", cells[0]);
    }
    for close in asyncapi["channels"]["api"]["x-close-codes"].as_array().unwrap() {
        let code = close["code"].to_string();
        let cells = [code.as_str(), close["meaning"].as_str().unwrap()];
        assert!(has_row(&text(), &cells), "docs/protocol.md has no row for {cells:?}");
        assert!(has_row(&short, &cells), "docs/api.md has no row for {cells:?}");
    }
}
