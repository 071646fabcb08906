//! RFC 6455 byte by byte, where the cases of [`crate::autobahn`] have nothing: masks, lengths, the handshake.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::harness::{RawWs, Server, handshake, in_time, masked};

#[tokio::test]
async fn unmasked_frames_and_bad_lengths_are_closed_with_1002() {
    let server = Server::start();
    let text = b"{\"type\":\"ping\"}";
    let unmasked = [&[0x81, 15][..], text].concat();
    let long = |kind: u8, length: &[u8]| [&[0x81, 0x80 | kind][..], length, &[0; 4], text].concat();
    for (what, bytes) in [
        ("an unmasked frame", unmasked),
        ("a length in two bytes too many", long(126, &15_u16.to_be_bytes())),
        ("a length in eight bytes too many", long(127, &15_u64.to_be_bytes())),
        ("a length of 64 bits", long(127, &u64::MAX.to_be_bytes())),
    ] {
        let mut socket = RawWs::open(server.address(), "/v1/ws").await;
        // A good frame before it is answered all the same.
        let received = in_time(what, socket.exchange(&[masked(0x81, text), bytes], usize::MAX)).await;
        let [pong, (0x88, close)] = &received[..] else { panic!("{what}: {received:?}") };
        assert_eq!(pong.1, b"{\"type\":\"pong\"}", "{what}");
        assert!(close.starts_with(&1002_u16.to_be_bytes()) && close.len() > 2, "{what}: {close:?}");
    }
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
        let request = handshake("/v1/ws").replace(change.0, change.1).replace("keep-alive, ", "");
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
