//! The line protocol without queues: each command is read and answered, with as many bytes as the real server would.

use std::io;
use std::sync::Arc;

use tokio::net::TcpStream;

use super::journal::Journal;
use crate::client::wire::{Wire, take_whole};

/// A longer line is no command of ours.
const INPUT_BYTES_MAX: usize = 64 * 1024;

pub(super) async fn serve(stream: TcpStream, journal: Option<Arc<Journal>>) -> anyhow::Result<()> {
    let (mut held, mut last) = (Vec::new(), Vec::new());
    let answer = |bytes: &mut [u8], out: &mut Vec<u8>| {
        take_whole(&mut held, bytes, |bytes| io::Result::Ok(answer(&mut last, bytes, out)))?;
        if held.len() > INPUT_BYTES_MAX { Err(io::ErrorKind::InvalidData.into()) } else { Ok(()) }
    };
    super::converse(Wire::new(stream)?, journal, answer).await
}

/// Answers whole commands; how many bytes they had. `last` is the content of the last message sent, which every take gets.
fn answer(last: &mut Vec<u8>, bytes: &[u8], out: &mut Vec<u8>) -> usize {
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
                last.clear();
                last.extend_from_slice(content.unwrap_or_default());
                out.extend_from_slice(b"OK\n");
            }
            b"get msg" | b"read msg" => {
                out.extend_from_slice(b"OK\nid:1000000;sender:50;receiver:50;queue:10;");
                if last.is_empty() {
                    out.extend_from_slice(b"content:");
                }
                out.extend_from_slice(last);
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

const QUEUES: &[u8] = b"OK\nqueues:[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20]\n";
