//! A WebSocket byte by byte, for what no library would send.

use std::net::SocketAddr;

use bytes::BufMut;
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

use super::in_time;

/// A frame's first byte, and its payload.
pub(crate) type RawFrame = (u8, Vec<u8>);

pub(crate) struct RawWs {
    from: BufReader<OwnedReadHalf>,
    to: OwnedWriteHalf,
}

/// The handshake of RFC 6455, section 1.3.
pub(crate) fn handshake(path: &str) -> String {
    format!(
        "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\n\
        Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
}

impl RawWs {
    pub(crate) async fn open(address: SocketAddr, path: &str) -> Self {
        let mut stream = TcpStream::connect(address).await.unwrap();
        // Each write is likely a segment of its own.
        stream.set_nodelay(true).unwrap();
        stream.write_all(handshake(path).as_bytes()).await.unwrap();
        let mut header = Vec::new();
        in_time("the handshake", async {
            while !header.ends_with(b"\r\n\r\n") {
                assert_ne!(stream.read_buf(&mut (&mut header).limit(1)).await.unwrap(), 0, "{header:?}");
            }
        })
        .await;
        let header = String::from_utf8(header).unwrap().to_ascii_lowercase();
        assert!(header.starts_with("http/1.1 101 "), "{header}");
        assert!(header.contains("sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo="), "{header}");
        let (from, to) = stream.into_split();
        Self { from: BufReader::new(from), to }
    }

    /// Sends `writes`, and meanwhile reads until `frames` have come or the server ends.
    pub(crate) async fn exchange(&mut self, writes: &[Vec<u8>], frames: usize) -> Vec<RawFrame> {
        let Self { from, to } = self;
        let writing = async {
            for bytes in writes {
                // A server that has ended takes no more: what it said last is still to be read.
                if to.write_all(bytes).await.is_err() {
                    break;
                }
                tokio::task::yield_now().await;
            }
        };
        let reading = async {
            let mut received = Vec::new();
            while received.len() < frames
                && let Some(frame) = read_frame(from).await
            {
                received.push(frame);
            }
            received
        };
        tokio::join!(writing, reading).1
    }
}

/// `None` at the end of the stream; the server's frames are whole and not masked.
async fn read_frame(from: &mut BufReader<OwnedReadHalf>) -> Option<RawFrame> {
    let first = from.read_u8().await.ok()?;
    let bytes = match from.read_u8().await.ok()? {
        126 => u64::from(from.read_u16().await.ok()?),
        127 => from.read_u64().await.ok()?,
        short => u64::from(short),
    };
    let mut payload = vec![0; usize::try_from(bytes).unwrap()];
    from.read_exact(&mut payload).await.ok()?;
    Some((first, payload))
}

/// A frame of a client with any first byte.
pub(crate) fn masked(first: u8, payload: &[u8]) -> Vec<u8> {
    const KEY: [u8; 4] = [0x37, 0xFA, 0x21, 0x3D];
    let mut frame = vec![first];
    match payload.len() {
        short @ 0..=125 => frame.put_u8(0x80 | u8::try_from(short).unwrap()),
        medium @ 126..=0xFFFF => {
            frame.put_u8(0x80 | 126);
            frame.put_u16(u16::try_from(medium).unwrap());
        }
        long => {
            frame.put_u8(0x80 | 127);
            frame.put_u64(long as u64);
        }
    }
    frame.extend_from_slice(&KEY);
    frame.extend(payload.iter().zip(KEY.iter().cycle()).map(|(byte, key)| byte ^ key));
    frame
}
