//! A reply of `/chat/{room}` never crosses a multiple of 16,384 bytes of the connection's stream, because a widespread
//! client would hand it out in two parts.

use hubbub_ws::{Opcode, write};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::harness::{Server, chat_message, in_time};

const BLOCK: usize = 16 * 1024;
const REPLIES: usize = 4_000;

/// Sends messages and bad frames and pings over one socket, and gives all bytes that came, and where the first frame begins.
async fn stream(server: &Server, path: &str) -> (Vec<u8>, usize) {
    let mut socket = TcpStream::connect(server.address()).await.unwrap();
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut bytes = Vec::new();
    while !bytes.windows(4).any(|end| end == b"\r\n\r\n") {
        assert!(in_time("the handshake", socket.read_buf(&mut bytes)).await.unwrap() > 0);
    }
    let begin = bytes.windows(4).position(|end| end == b"\r\n\r\n").unwrap() + 4;
    let mut sent = 0;
    while sent < REPLIES {
        let mut out = Vec::new();
        for number in sent..sent + 50 {
            let frame = match number % 97 {
                13 => "{}".to_owned(),
                29 => "no JSON".to_owned(),
                _ => chat_message(&format!("{path}-{number}"), &"x".repeat(1 + number % 300)).to_string(),
            };
            write::write_masked(&mut out, Opcode::Text, frame.as_bytes(), [1, 2, 3, 4]);
            if number % 31 == 0 {
                write::write_masked(&mut out, Opcode::Ping, &vec![7; number % 126], [1, 2, 3, 4]);
            }
        }
        sent += 50;
        socket.write_all(&out).await.unwrap();
        while texts(&bytes, begin).len() < sent {
            assert!(in_time("replies", socket.read_buf(&mut bytes)).await.unwrap() > 0);
        }
    }
    (bytes, begin)
}

/// The whole text frames: where each begins and ends, and its payload.
fn texts(bytes: &[u8], begin: usize) -> Vec<(usize, usize, &[u8])> {
    let (mut at, mut texts) = (begin, Vec::new());
    while let Some([first, short]) = bytes.get(at..at + 2) {
        let (header, payload) = match (short, bytes.get(at + 2..at + 4)) {
            (126, Some(length)) => (4, usize::from(u16::from_be_bytes(length.try_into().unwrap()))),
            (126, None) => break,
            (short, _) => (2, usize::from(*short)),
        };
        let Some(text) = bytes.get(at + header..at + header + payload) else { break };
        if *first == 0x81 {
            texts.push((at, at + header + payload, text));
        }
        at += header + payload;
    }
    texts
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn chat_replies_are_aligned() {
    let server = Server::start();
    for (path, is_aligned) in [("/chat/r", true), ("/chat/e?echo=1", true), ("/chat/p?pad=0", false)] {
        let (bytes, begin) = stream(&server, path).await;
        assert!(bytes.len() > 400_000, "{}", bytes.len());
        let texts = texts(&bytes, begin);
        assert_eq!(texts.len(), REPLIES);
        for (_, _, text) in &texts {
            serde_json::from_slice::<Value>(text).unwrap();
        }
        let crossing = texts.iter().filter(|(start, end, _)| start / BLOCK != (end - 1) / BLOCK).count();
        let padded = texts.iter().filter(|(_, _, text)| text.ends_with(b" ")).count();
        let blocks = bytes.len() / BLOCK;
        if is_aligned {
            assert_eq!(crossing, 0, "{path}");
            assert!((1..=blocks).contains(&padded), "{path}: {padded} of {blocks}");
        } else {
            assert!(crossing > 0, "{path}: the test is about replies that cross");
            assert_eq!(padded, 0, "{path}");
        }
    }
}
