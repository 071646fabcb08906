//! A client of the line protocol.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::in_time;

pub(crate) struct Line {
    stream: TcpStream,
    /// What came and was not heard yet.
    kept: Vec<u8>,
}

impl Line {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        let stream = in_time("connecting", TcpStream::connect(address)).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, kept: Vec::new() }
    }

    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        in_time("writing", self.stream.write_all(bytes.as_ref())).await.unwrap();
    }

    /// Sends what fits into the socket's buffer; the number of bytes sent.
    pub(crate) fn send_some(&mut self, bytes: &[u8]) -> usize {
        let mut sent = 0;
        while let Ok(count @ 1..) = self.stream.try_write(&bytes[sent..]) {
            sent += count;
        }
        sent
    }

    /// Ends the outgoing stream.
    pub(crate) async fn end(&mut self) {
        self.stream.shutdown().await.unwrap();
    }

    /// The next line, without its end; `None` when the server has closed.
    pub(crate) async fn receive(&mut self) -> Option<String> {
        loop {
            if let Some(end) = self.kept.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.kept.drain(..=end).collect();
                return Some(String::from_utf8(line[..end].to_vec()).unwrap());
            }
            if in_time("an answer", self.stream.read_buf(&mut self.kept)).await.unwrap() == 0 {
                assert_eq!(self.kept, b"", "the server closed within a line");
                return None;
            }
        }
    }

    /// The next lines must be these.
    pub(crate) async fn expect_lines(&mut self, lines: &[&str]) {
        for line in lines {
            assert_eq!(self.receive().await.as_deref(), Some(*line));
        }
    }

    /// Sends bytes that must be answered by these lines.
    pub(crate) async fn request(&mut self, bytes: impl AsRef<[u8]>, lines: &[&str]) {
        self.send(bytes).await;
        self.expect_lines(lines).await;
    }
}
