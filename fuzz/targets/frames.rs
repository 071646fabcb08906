//! What sockets send: JSON frames of both kinds of WebSocket, and commands of the line protocol as the server carries them
//! out. The first line of an input says which; of a WebSocket each further line is a frame. The socket lives, or the server
//! says why it closes it.

#![no_main]

#[path = "support/server.rs"]
mod server;

use std::io::Write;
use std::net::{Shutdown, SocketAddr};

use hubbub_ws::handshake::{client_key, request};
use hubbub_ws::write::write_masked;
use hubbub_ws::{Event, Opcode, Reader, Role};
use libfuzzer_sys::fuzz_target;
use memchr::memmem::find;
use server::{End, connect, exchange, with_server};

/// Ends an input, so that the answer to the last frame is known to have come.
const LAST: &[u8] = b"the last frame";

fn websocket(address: SocketAddr, path: &str, frames: &[u8]) {
    let key = client_key([7; 16]);
    let mut stream = connect(address);
    let handshake = request("h", path, &key);
    let is_head = |answer: &[u8]| find(answer, b"\r\n\r\n").is_some();
    let (answer, end) = exchange(&mut stream, handshake.as_bytes(), is_head);
    if end == End::Silent {
        // The machine is busy.
        return;
    }
    assert!(end == End::Found && answer.starts_with(b"HTTP/1.1 101"), "{}", String::from_utf8_lossy(&answer));
    // What others sent may come at once.
    let early = find(&answer, b"\r\n\r\n").map_or(&[][..], |end| &answer[end + 4..]).to_vec();
    let mut sent = Vec::new();
    for frame in frames.split(|byte| *byte == b'\n') {
        let text = String::from_utf8_lossy(frame);
        write_masked(&mut sent, Opcode::Text, text.as_bytes(), [1, 2, 3, 4]);
    }
    write_masked(&mut sent, Opcode::Ping, LAST, [0; 4]);
    let mut is_closed = false;
    let (answer, end) = exchange(&mut stream, &sent, |received| {
        let mut received = [&early, received].concat();
        let mut reader = Reader::new(Role::Client, 1 << 20);
        let mut events = reader.feed(&mut received);
        loop {
            match events.next().expect("the server's frames are valid") {
                Some(Event::Pong(LAST)) => return true,
                Some(Event::Close { .. }) => {
                    is_closed = true;
                    return true;
                }
                Some(Event::Text(text)) => {
                    assert!(serde_json::from_str::<serde_json::Value>(text).is_ok(), "{text}");
                    assert!(!text.contains("\"internal\""), "{text}");
                }
                Some(_) => {}
                None => return false,
            }
        }
    });
    assert!(
        matches!(end, End::Found | End::Silent) || is_closed,
        "closed without a word: {}",
        String::from_utf8_lossy(&answer)
    );
}

fn lines(address: SocketAddr, commands: &[u8]) {
    let mut stream = connect(address);
    // The server may have closed it.
    let _ = stream.write_all(commands).and_then(|()| stream.shutdown(Shutdown::Write));
    let (answers, _) = exchange(&mut stream, b"", |_| false);
    assert!(str::from_utf8(&answers).is_ok());
}

fuzz_target!(|input: &[u8]| {
    let Some(end) = input.iter().position(|byte| *byte == b'\n') else { return };
    let (kind, rest) = (&input[..end], &input[end + 1..]);
    with_server(|server| match kind {
        b"api" => websocket(server.http, "/v1/ws?user=ada", rest),
        b"administrator" => websocket(server.http, "/v1/ws", rest),
        b"chat" => websocket(server.http, "/chat/r?echo=1&live=1", rest),
        b"line" => lines(server.line, rest),
        _ => {}
    });
});
