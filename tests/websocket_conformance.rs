//! RFC 6455 against a client library that is not ours, and byte by byte where no library would do it wrong.

use bytes::BufMut;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{CloseCode, Data, OpCode};

use crate::harness::{Server, chat_message, in_time, texts};

/// A fragment of a text.
fn fragment(text: &[u8], opcode: Data, is_final: bool) -> Message {
    Message::Frame(Frame::message(text.to_vec(), OpCode::Data(opcode), is_final))
}

#[tokio::test]
async fn fragments_make_one_message_with_pings_between() {
    let server = Server::start();
    let mut socket = server.ws("/chat/r").await;
    let text = chat_message("id", "größer 🦀").to_string().into_bytes();
    // In pieces of every size, which cut characters in two.
    for size in [1, 2, 3, 7, 50, text.len() - 1] {
        let pieces: Vec<&[u8]> = text.chunks(size).collect();
        for (number, piece) in pieces.iter().enumerate() {
            let opcode = if number == 0 { Data::Text } else { Data::Continue };
            socket.send_message(fragment(piece, opcode, number + 1 == pieces.len())).await;
            if number == (pieces.len() - 1) / 2 {
                socket.send_message(Message::Ping(format!("ping {size}").into())).await;
                assert_eq!(socket.next_message().await, Message::Pong(format!("ping {size}").into()));
            }
        }
        let answer = socket.receive().await;
        assert_eq!((&answer["status"], &answer["seq"]), (&json!("success"), &json!(1)), "{size}: {answer}");
    }
    // Empty fragments are fragments too.
    socket.send_message(fragment(b"", Data::Text, false)).await;
    socket.send_message(fragment(&text, Data::Continue, false)).await;
    socket.send_message(fragment(b"", Data::Continue, true)).await;
    assert_eq!(socket.receive().await["seq"], 1);
    assert_eq!(texts(&server.history("r").await), ["größer 🦀"]);
}

#[tokio::test]
async fn pings_are_answered_in_kind() {
    let server = Server::start();
    for path in ["/v1/ws", "/chat/r"] {
        let mut socket = server.ws(path).await;
        for payload in [vec![], vec![0, 255, 7], vec![b'x'; 125]] {
            socket.send_message(Message::Ping(payload.clone().into())).await;
            assert_eq!(socket.next_message().await, Message::Pong(payload.into()));
        }
        // A pong nobody asked for is nothing.
        socket.send_message(Message::Pong(b"unasked"[..].into())).await;
        socket.close().await;
    }
}

#[tokio::test]
async fn a_close_is_answered_with_its_code() {
    let server = Server::start();
    for (code, answer) in
        [(Some(1000), 1000), (Some(1001), 1001), (Some(3000), 3000), (Some(4999), 4999), (None, 1000)]
    {
        let mut socket = server.ws("/v1/ws").await;
        let frame = code.map(|code: u16| CloseFrame { code: CloseCode::from(code), reason: "bye".into() });
        // What came before the close is answered before it.
        let message = json!({"type": "send", "roomId": "r", "userId": "a", "message": "x"});
        assert!(socket.try_send_all(&[message]).await);
        socket.send_message(Message::Close(frame)).await;
        socket.receive_type("ack").await;
        assert_eq!(socket.closed().await.0, answer, "{code:?}");
    }
}

const HANDSHAKE: &str = "GET /v1/ws HTTP/1.1\r\nHost: x\r\nConnection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\n\
    Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

/// A frame with any first byte, masked by a key of zeros, which changes nothing.
fn masked(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![first, 0x80 | u8::try_from(payload.len()).unwrap(), 0, 0, 0, 0];
    frame.extend_from_slice(payload);
    frame
}

/// Shakes hands and sends `bytes`; everything behind the handshake's answer until the server ends.
async fn raw(server: &Server, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(server.address()).await.unwrap();
    stream.write_all(HANDSHAKE.as_bytes()).await.unwrap();
    let mut header = Vec::new();
    in_time("the handshake", async {
        while !header.ends_with(b"\r\n\r\n") {
            assert_ne!(stream.read_buf(&mut (&mut header).limit(1)).await.unwrap(), 0, "{header:?}");
        }
    })
    .await;
    let header = String::from_utf8(header).unwrap().to_ascii_lowercase();
    assert!(header.starts_with("http/1.1 101 "), "{header}");
    // The example of RFC 6455, section 1.3.
    assert!(header.contains("sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo="), "{header}");
    stream.write_all(bytes).await.unwrap();
    let mut answer = Vec::new();
    in_time("the end", stream.read_to_end(&mut answer)).await.unwrap();
    answer
}

#[tokio::test]
async fn breaches_of_the_protocol_are_closed_with_1002() {
    let server = Server::start();
    let text = b"{\"type\":\"ping\"}";
    let mut unmasked = masked(0x81, text);
    unmasked.drain(2..6);
    unmasked[1] &= 0x7F;
    let mut overlong = vec![0x81, 0x80 | 126, 0, 15, 0, 0, 0, 0];
    overlong.extend_from_slice(text);
    for (what, bytes) in [
        ("an unmasked frame", unmasked),
        ("a reserved bit", masked(0xC1, text)),
        ("a reserved opcode", masked(0x83, text)),
        ("a reserved control opcode", masked(0x8B, b"")),
        ("a fragmented ping", masked(0x09, b"")),
        ("a ping that is too long", [&[0x89, 0x80 | 126, 0, 126, 0, 0, 0, 0][..], &[0; 126]].concat()),
        ("a continuation of nothing", masked(0x80, text)),
        ("a message inside a message", [masked(0x01, b"{"), masked(0x81, text)].concat()),
        ("an overlong length", overlong),
        ("half a close code", masked(0x88, &[3])),
        ("a close code nobody may send", masked(0x88, &[3, 237])),
    ] {
        // A good frame before it is answered all the same.
        let answer = raw(&server, &[masked(0x81, text), bytes].concat()).await;
        let pong = b"\x81\x0f{\"type\":\"pong\"}";
        assert!(answer.starts_with(pong), "{what}: {answer:?}");
        let close = &answer[pong.len()..];
        assert!(close.len() > 4 && close[0] == 0x88 && close[2..4] == [0x03, 0xEA], "{what}: {close:?}");
        assert_eq!(usize::from(close[1]), close.len() - 2, "{what}: nothing comes behind the close frame");
    }
}

#[tokio::test]
async fn bad_utf8_is_1007_also_across_fragments_and_in_a_close_reason() {
    let server = Server::start();
    for bytes in [
        masked(0x81, &[0xFF]),
        masked(0x81, &[b'"', 0xED, 0xA0, 0x80, b'"']),
        [masked(0x01, &[0xC3]), masked(0x80, &[0x28])].concat(),
        masked(0x81, &[0xC3]),
        masked(0x88, &[3, 232, 0xFF]),
    ] {
        let answer = raw(&server, &bytes).await;
        assert!(answer.len() > 4 && answer[0] == 0x88 && answer[2..4] == [0x03, 0xEF], "{answer:?}");
    }
}

#[tokio::test]
async fn frames_may_come_byte_by_byte() {
    let server = Server::start();
    let mut stream = TcpStream::connect(server.address()).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let frame = json!({"type": "send", "roomId": "r", "userId": "a", "message": "x".repeat(40)}).to_string();
    // Every byte a segment of its own, each likely a read of its own.
    stream.write_all(HANDSHAKE.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    in_time("the handshake", stream.read_buf(&mut answer)).await.unwrap();
    for byte in [masked(0x81, frame.as_bytes()), masked(0x88, &[3, 232])].concat() {
        stream.write_all(&[byte]).await.unwrap();
        tokio::task::yield_now().await;
    }
    in_time("the end", stream.read_to_end(&mut answer)).await.unwrap();
    assert!(answer.ends_with(&[0x88, 2, 3, 232]), "{}", String::from_utf8_lossy(&answer));
    assert_eq!(server.history("r").await.len(), 1);
}

#[tokio::test]
async fn a_bad_handshake_is_refused() {
    let server = Server::start();
    for (what, change) in [
        ("no upgrade", ("Upgrade: WebSocket\r\n", "")),
        ("no connection", ("Connection: keep-alive, Upgrade\r\n", "")),
        ("another version", ("Version: 13", "Version: 12")),
        ("no key", ("Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n", "")),
        ("a bad key", ("dGhlIHNhbXBsZSBub25jZQ==", "short")),
    ] {
        let mut stream = TcpStream::connect(server.address()).await.unwrap();
        let request = HANDSHAKE.replace(change.0, change.1).replace("keep-alive, ", "");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        in_time(what, async {
            while !answer.ends_with(b"}") {
                assert_ne!(stream.read_buf(&mut answer).await.unwrap(), 0, "{what}");
            }
        })
        .await;
        let answer = String::from_utf8(answer).unwrap();
        assert!(
            answer.starts_with("HTTP/1.1 400 ") && answer.contains("\"code\":\"malformed\""),
            "{what}: {answer}"
        );
    }
}
