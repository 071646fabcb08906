//! A page of history is bounded by what is sent, not only by its texts: JSON may take six bytes for one of a text.

use hyper::Method;
use serde_json::{Value, json};

use crate::harness::{Http, Server};

const MESSAGES: u64 = 30;
/// Each takes 360,000 bytes, so three pages are needed.
const PAGE_BYTES_MAX: usize = 4 * 1024 * 1024 + 1_000;

async fn page(http: &mut Http, path: &str) -> (Vec<u64>, Value) {
    let text = http.get(path).await.text();
    assert!(text.len() < PAGE_BYTES_MAX, "{path}: {} bytes", text.len());
    let mut page: Value = serde_json::from_str(&text).unwrap();
    let seqs = page["messages"].as_array().unwrap().iter().map(|message| message["seq"].as_u64().unwrap());
    (seqs.collect(), page["next"].take())
}

#[tokio::test]
async fn pages_are_bounded_as_written() {
    let server = Server::start();
    let mut http = server.http().await;
    let body = json!({"userId": "ada", "message": "\u{1}".repeat(60_000)}).to_string();
    for _ in 0..MESSAGES {
        let sent = http.request(Method::POST, "/v1/rooms/r/messages", &[], body.clone()).await;
        assert_eq!(sent.status, 201);
    }
    let all: Vec<u64> = (1..=MESSAGES).collect();
    // Onwards, and back.
    let (mut seqs, mut next) = page(&mut http, "/v1/rooms/r/messages?after=0&limit=1000").await;
    let mut pages = 1;
    while let Some(after) = next.as_u64() {
        assert_eq!(Some(&after), seqs.last());
        let (more, then) = page(&mut http, &format!("/v1/rooms/r/messages?after={after}&limit=1000")).await;
        seqs.extend(more);
        (next, pages) = (then, pages + 1);
    }
    assert_eq!((&seqs, pages), (&all, 3));
    let (mut seqs, mut next) = page(&mut http, "/v1/rooms/r/messages?limit=1000").await;
    while let Some(before) = next.as_u64() {
        assert_eq!(Some(&before), seqs.first());
        let (more, then) = page(&mut http, &format!("/v1/rooms/r/messages?before={before}&limit=1000")).await;
        seqs.splice(0..0, more);
        next = then;
    }
    assert_eq!(seqs, all);
    let (mut seqs, mut next) = page(&mut http, "/v1/users/ada/messages?limit=1000").await;
    while let Some(before) = next.as_str() {
        let (more, then) =
            page(&mut http, &format!("/v1/users/ada/messages?before={before}&limit=1000")).await;
        seqs.splice(0..0, more);
        next = then;
    }
    assert_eq!(seqs, all);
}

/// A list of rooms, each with its last message, also where it is read in several parts.
#[tokio::test]
async fn lists_of_rooms_are_bounded_as_written() {
    let server = Server::start();
    let mut http = server.http().await;
    let names: Vec<String> = (100..330).map(|number| format!("r{number}")).collect();
    for (number, name) in names.iter().enumerate() {
        let text = "\u{1}".repeat(if number % 8 == 0 { 60_000 } else { 1 });
        let body = json!({"userId": "ada", "message": text}).to_string();
        let sent = http.request(Method::POST, &format!("/v1/rooms/{name}/messages"), &[], body).await;
        assert_eq!(sent.status, 201);
        let joined = http.request(Method::PUT, &format!("/v1/rooms/{name}/members/ada"), &[], "").await;
        assert!(joined.status < 300, "{}", joined.text());
    }
    let mut listed = Vec::new();
    let mut after = String::new();
    let mut pages = 0;
    loop {
        let text = http.get(&format!("/v1/users/ada/rooms?limit=200{after}")).await.text();
        assert!(text.len() < PAGE_BYTES_MAX, "{} bytes", text.len());
        let page: Value = serde_json::from_str(&text).unwrap();
        for room in page["rooms"].as_array().unwrap() {
            assert_eq!(room["lastMessage"]["seq"], 1);
            listed.push(room["roomId"].as_str().unwrap().to_owned());
        }
        pages += 1;
        let Some(next) = page["next"].as_str() else { break };
        assert_eq!(listed.last().unwrap(), next);
        after = format!("&after={next}");
    }
    assert_eq!(listed, names);
    assert!(pages > 2, "{pages} pages");
}
