//! Requests to every endpoint: paths, cursors and other parameters, headers and bodies. An input is a request without its
//! length: `METHOD TARGET`, lines of headers, an empty line, the body. Each is answered, and none with an error of the
//! server's own.

#![no_main]

#[allow(dead_code, reason = "the line protocol is for another target")]
#[path = "support/server.rs"]
mod server;

use libfuzzer_sys::fuzz_target;
use memchr::memmem::find;
use server::{End, connect, exchange, with_server};

/// The request as sent; `None` when an HTTP library would not even read it.
fn request(input: &[u8]) -> Option<Vec<u8>> {
    let (head, body) = match find(input, b"\n\n") {
        Some(end) => (&input[..end], &input[end + 2..]),
        None => (input, &b""[..]),
    };
    let mut lines = head.split(|byte| *byte == b'\n');
    let mut first = lines.next()?.splitn(2, |byte| *byte == b' ');
    let (method, target) = (first.next()?, first.next()?);
    let is_target = |byte: &u8| byte.is_ascii_graphic();
    if !method.iter().all(u8::is_ascii_uppercase)
        || !target.starts_with(b"/")
        || !target.iter().all(is_target)
    {
        return None;
    }
    let mut sent = [method, b" ", target, b" HTTP/1.1\r\nhost: h\r\n"].concat();
    for line in lines {
        let name = line.split(|byte| *byte == b':').next()?;
        let is_name =
            !name.is_empty() && name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'-');
        // The harness says how long the body is.
        let is_ours = ["content-length", "transfer-encoding", "connection", "upgrade", "expect"]
            .iter()
            .any(|ours| name.eq_ignore_ascii_case(ours.as_bytes()));
        if is_name && !is_ours && name.len() < line.len() && !line.contains(&b'\r') {
            sent.extend_from_slice(line);
            sent.extend_from_slice(b"\r\n");
        }
    }
    sent.extend_from_slice(format!("connection: close\r\ncontent-length: {}\r\n\r\n", body.len()).as_bytes());
    sent.extend_from_slice(body);
    Some(sent)
}

fn is_json(bytes: &[u8]) -> bool {
    serde_json::from_slice::<serde_json::Value>(bytes).is_ok()
}

fuzz_target!(|input: &[u8]| {
    let Some(request) = request(input) else { return };
    // A request that waits would be waited for, and a backup is of the whole store.
    if find(&request, b"waitMs").is_some() || find(&request, b"/backup").is_some() {
        return;
    }
    with_server(|server| {
        let shown = String::from_utf8_lossy(&request);
        let is_stream = |answer: &[u8]| find(answer, b"text/event-stream").is_some();
        let (answer, end) = exchange(&mut connect(server.http), &request, is_stream);
        let Some(head_end) = find(&answer, b"\r\n\r\n") else {
            assert_eq!(end, End::Silent, "no answer to {shown}");
            return;
        };
        let (head, body) = answer.split_at(head_end + 4);
        let status = head.get(9..12).unwrap_or_default();
        assert_ne!(status, b"500", "{shown} {}", String::from_utf8_lossy(&answer));
        if end == End::Closed && find(head, b"content-type: application/problem+json").is_some() {
            assert!(is_json(body), "{shown} {}", String::from_utf8_lossy(&answer));
        }
    });
});
