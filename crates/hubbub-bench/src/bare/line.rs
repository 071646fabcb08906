//! The line protocol without queues: each command is read and answered, with as many bytes as the real server would.

use std::io;

use tokio::net::TcpStream;

use crate::wire::Wire;

/// A longer line is no command of ours.
const INPUT_BYTES_MAX: usize = 64 * 1024;

pub(super) async fn serve(stream: TcpStream) -> anyhow::Result<()> {
    let mut connection = Connection { held: Vec::new(), content: Vec::new() };
    super::converse(Wire::new(stream)?, |bytes, out| connection.take(bytes, out)).await
}

struct Connection {
    held: Vec<u8>,
    /// Of the last message sent, which every take gets.
    content: Vec<u8>,
}

impl Connection {
    fn take(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
        if self.held.is_empty() {
            let used = self.answer(bytes, out);
            self.held.extend_from_slice(bytes.get(used..).unwrap_or_default());
        } else {
            let mut held = std::mem::take(&mut self.held);
            held.extend_from_slice(bytes);
            let used = self.answer(&held, out);
            self.held.extend_from_slice(held.get(used..).unwrap_or_default());
        }
        if self.held.len() > INPUT_BYTES_MAX { Err(io::ErrorKind::InvalidData.into()) } else { Ok(()) }
    }

    /// Answers whole commands; how many bytes they had.
    fn answer(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> usize {
        let mut used = 0;
        let line = |from: usize| {
            let rest = bytes.get(from..)?;
            rest.get(..memchr::memchr(b'\n', rest)?)
        };
        while let Some(command) = line(used) {
            let next = used + command.len() + 1;
            let fixed: Option<&[u8]> = match command {
                b"create queue" => Some(b"OK\nid:1\n"),
                b"list users" => Some(b"OK\nusers:[1]\n"),
                // As many as a workload may want, so that it makes none.
                b"list all queues" => Some(QUEUES),
                _ => None,
            };
            if let Some(answer) = fixed {
                out.extend_from_slice(answer);
                used = next;
                continue;
            }
            let Some(terms) = line(next) else { break };
            used = next + terms.len() + 1;
            match command {
                b"send msg" => {
                    let content = memchr::memmem::find(terms, b"content:").and_then(|at| terms.get(at..));
                    self.content.clear();
                    self.content.extend_from_slice(content.unwrap_or_default());
                    out.extend_from_slice(b"OK\n");
                }
                b"get msg" | b"read msg" => {
                    out.extend_from_slice(b"OK\nid:1000000;sender:50;receiver:50;queue:10;");
                    if self.content.is_empty() {
                        out.extend_from_slice(b"content:");
                    }
                    out.extend_from_slice(&self.content);
                    out.push(b'\n');
                }
                b"list queues" => out.extend_from_slice(b"OK\nqueues:[1]\n"),
                b"register" => {
                    out.extend_from_slice(b"OK\n");
                    out.extend_from_slice(terms);
                    out.push(b'\n');
                }
                _ => out.extend_from_slice(b"Bad Request\n"),
            }
        }
        used
    }
}

const QUEUES: &[u8] = b"OK\nqueues:[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20]\n";
