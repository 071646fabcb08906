//! What clients of queues ask, in both protocols, and what the answers say.

use clap::ValueEnum;
use hubbub_core::message::write_u64;
use serde::{Deserialize, Serialize};

use crate::client::caller::Caller;
use crate::client::post::split_response;
use crate::client::{Cause, Target};

/// How queues are spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Via {
    /// HTTP, with clients and queues named by numbers.
    Http,
    Line,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum QueueCommand<'a> {
    Register(u64),
    /// Makes the queue of that number; over the line protocol the server picks the number.
    MakeQueue(u64),
    Clients,
    Queues,
    /// Which queues hold something for the client.
    Holding(u64),
    Send {
        sender: u64,
        receiver: Option<u64>,
        queue: u64,
        content: &'a [u8],
    },
    Take {
        queue: u64,
        receiver: u64,
        is_away: bool,
    },
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Said<'b> {
    Done,
    /// Of a queue made over the line protocol.
    Id(u64),
    Numbers(Vec<u64>),
    Content(&'b [u8]),
    Nothing,
    Refused,
}

impl Said<'_> {
    pub(super) fn numbers(self) -> Option<Vec<u64>> {
        if let Self::Numbers(numbers) = self { Some(numbers) } else { None }
    }
}

/// One server, as one protocol reaches it.
#[derive(Debug, Clone)]
pub(super) struct Dialect {
    pub(super) via: Via,
    pub(super) target: Target,
}

impl Dialect {
    pub(super) async fn call<R>(
        &self,
        caller: &mut Caller,
        command: &QueueCommand<'_>,
        mut hear: impl FnMut(Said<'_>) -> R,
    ) -> Result<R, Cause> {
        self.write(command, caller.out());
        let answer = |bytes: &[u8]| Ok(self.read(command, bytes)?.map(|(said, used)| (hear(said), used)));
        caller.answer(answer).await
    }

    pub(super) fn write(&self, command: &QueueCommand<'_>, out: &mut Vec<u8>) {
        match self.via {
            Via::Line => write_line(command, out),
            Via::Http => self.write_http(command, out),
        }
    }

    /// What the bytes say, and how many they are; `None` while they are not all there.
    pub(super) fn read<'b>(
        &self,
        command: &QueueCommand<'_>,
        bytes: &'b [u8],
    ) -> Result<Option<(Said<'b>, usize)>, Cause> {
        match self.via {
            Via::Line => read_line(command, bytes),
            Via::Http => read_http(command, bytes),
        }
    }

    fn write_http(&self, command: &QueueCommand<'_>, out: &mut Vec<u8>) {
        let mut body = Vec::new();
        let (method, path) = match *command {
            QueueCommand::Register(client) => ("PUT", format!("/v1/clients/{client}")),
            QueueCommand::MakeQueue(queue) => {
                body.extend_from_slice(b"{}");
                ("PUT", format!("/v1/queues/{queue}"))
            }
            QueueCommand::Clients => ("GET", "/v1/clients?limit=1000".to_owned()),
            QueueCommand::Queues => ("GET", "/v1/queues?limit=1000".to_owned()),
            QueueCommand::Holding(client) => ("GET", format!("/v1/queues?limit=1000&receiver={client}")),
            QueueCommand::Send { sender, receiver, queue, content } => {
                body.reserve(content.len() + 64);
                body.extend_from_slice(b"{\"sender\":\"");
                write_u64(sender, &mut body);
                if let Some(receiver) = receiver {
                    body.extend_from_slice(b"\",\"receiver\":\"");
                    write_u64(receiver, &mut body);
                }
                // Contents hold nothing that JSON would escape.
                body.extend_from_slice(b"\",\"message\":\"");
                body.extend_from_slice(content);
                body.extend_from_slice(b"\"}");
                ("POST", format!("/v1/queues/{queue}/messages"))
            }
            QueueCommand::Take { queue, receiver, is_away } => {
                body.extend_from_slice(b"{\"receiver\":\"");
                write_u64(receiver, &mut body);
                body.extend_from_slice(b"\",\"order\":\"newest\"}");
                ("POST", format!("/v1/queues/{queue}/{}", if is_away { "get" } else { "read" }))
            }
        };
        let Target { prefix, host, headers, .. } = &self.target;
        for part in [method, " ", prefix, &path, " HTTP/1.1\r\nHost: ", host, "\r\n", headers] {
            out.extend_from_slice(part.as_bytes());
        }
        out.extend_from_slice(b"Content-Type: application/json\r\nContent-Length: ");
        write_u64(body.len() as u64, out);
        out.extend_from_slice(b"\r\n\r\n");
        out.extend_from_slice(&body);
    }
}

fn write_line(command: &QueueCommand<'_>, out: &mut Vec<u8>) {
    let mut terms = |command: &str, terms: &[(&str, u64)]| {
        out.extend_from_slice(command.as_bytes());
        for (index, (key, number)) in terms.iter().enumerate() {
            out.extend_from_slice(if index == 0 { b"\n" } else { b";" });
            out.extend_from_slice(key.as_bytes());
            out.push(b':');
            write_u64(*number, out);
        }
    };
    match *command {
        QueueCommand::Register(client) => terms("register", &[("id", client)]),
        QueueCommand::MakeQueue(_) => terms("create queue", &[]),
        QueueCommand::Clients => terms("list users", &[]),
        QueueCommand::Queues => terms("list all queues", &[]),
        QueueCommand::Holding(client) => terms("list queues", &[("receiver", client)]),
        QueueCommand::Send { sender, receiver, queue, content } => {
            // 0 = for whoever takes it first.
            let receiver = receiver.unwrap_or(0);
            terms("send msg", &[("sender", sender), ("receiver", receiver), ("queue", queue)]);
            out.extend_from_slice(b";content:");
            out.extend_from_slice(content);
        }
        QueueCommand::Take { queue, receiver, is_away } => {
            let command = if is_away { "get msg" } else { "read msg" };
            terms(command, &[("queue", queue), ("receiver", receiver)]);
        }
    }
    out.push(b'\n');
}

fn read_line<'b>(command: &QueueCommand<'_>, bytes: &'b [u8]) -> Result<Option<(Said<'b>, usize)>, Cause> {
    let line = |from: usize| {
        let rest = bytes.get(from..)?;
        rest.get(..memchr::memchr(b'\n', rest)?)
    };
    let Some(first) = line(0) else { return Ok(None) };
    let used = first.len() + 1;
    match first {
        b"OK" => {}
        b"Empty queue" => return Ok(Some((Said::Nothing, used))),
        _ => return Ok(Some((Said::Refused, used))),
    }
    if matches!(command, QueueCommand::Send { .. }) {
        return Ok(Some((Said::Done, used)));
    }
    let Some(second) = line(used) else { return Ok(None) };
    let used = used + second.len() + 1;
    let said = match command {
        QueueCommand::Send { .. } | QueueCommand::Register(_) => Said::Done,
        QueueCommand::MakeQueue(_) => {
            let id = second.strip_prefix(b"id:").and_then(|digits| std::str::from_utf8(digits).ok());
            Said::Id(id.and_then(|digits| digits.parse().ok()).ok_or(Cause::Protocol)?)
        }
        QueueCommand::Clients | QueueCommand::Queues | QueueCommand::Holding(_) => {
            let text = std::str::from_utf8(second).map_err(|_| Cause::Protocol)?;
            let list =
                text.split_once(":[").and_then(|(_, list)| list.strip_suffix(']')).ok_or(Cause::Protocol)?;
            Said::Numbers(list.split(", ").filter_map(|number| number.parse().ok()).collect())
        }
        QueueCommand::Take { .. } => {
            // Numbers come first, content is last.
            let mut parts = second.splitn(5, |byte| *byte == b';').skip(4);
            let content = parts.next().and_then(|part| part.strip_prefix(b"content:"));
            Said::Content(content.ok_or(Cause::Protocol)?)
        }
    };
    Ok(Some((said, used)))
}

/// A list of queues or of clients, of which the names matter.
#[derive(Deserialize)]
struct Page<'a> {
    #[serde(borrow, default)]
    queues: Vec<Named<'a>>,
    #[serde(borrow, default)]
    clients: Vec<Named<'a>>,
}

#[derive(Deserialize)]
struct Named<'a> {
    #[serde(alias = "queue", alias = "client")]
    name: &'a str,
}

#[derive(Deserialize)]
struct Taken<'a> {
    #[serde(borrow)]
    messages: Vec<Message<'a>>,
}

#[derive(Deserialize)]
struct Message<'a> {
    message: &'a str,
}

fn read_http<'b>(command: &QueueCommand<'_>, bytes: &'b [u8]) -> Result<Option<(Said<'b>, usize)>, Cause> {
    let Some((response, rest)) = split_response(bytes)? else { return Ok(None) };
    let used = bytes.len() - rest.len();
    if response.last {
        return Err(Cause::Closed);
    }
    if !(200..300).contains(&response.status) {
        return Ok(Some((Said::Refused, used)));
    }
    let said = match command {
        QueueCommand::Register(_) | QueueCommand::MakeQueue(_) | QueueCommand::Send { .. } => Said::Done,
        QueueCommand::Clients | QueueCommand::Queues | QueueCommand::Holding(_) => {
            let page: Page<'_> = serde_json::from_slice(response.body).map_err(|_| Cause::Protocol)?;
            let names = page.queues.iter().chain(&page.clients).filter_map(|entry| entry.name.parse().ok());
            Said::Numbers(names.collect())
        }
        QueueCommand::Take { .. } => {
            let taken: Taken<'_> = serde_json::from_slice(response.body).map_err(|_| Cause::Protocol)?;
            taken.messages.first().map_or(Said::Nothing, |message| Said::Content(message.message.as_bytes()))
        }
    };
    Ok(Some((said, used)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TAKE: QueueCommand<'_> = QueueCommand::Take { queue: 2, receiver: 3, is_away: true };

    fn dialect(via: Via) -> Dialect {
        Dialect { via, target: Target::parse("127.0.0.1:1/x").expect("address") }
    }

    #[test]
    fn lines_are_those_of_the_protocol() {
        let send = QueueCommand::Send { sender: 1, receiver: None, queue: 2, content: b"a b" };
        for (command, text) in [
            (QueueCommand::Register(7), "register\nid:7\n"),
            (QueueCommand::MakeQueue(1), "create queue\n"),
            (QueueCommand::Holding(2), "list queues\nreceiver:2\n"),
            (send, "send msg\nsender:1;receiver:0;queue:2;content:a b\n"),
            (TAKE, "get msg\nqueue:2;receiver:3\n"),
        ] {
            let mut out = Vec::new();
            dialect(Via::Line).write(&command, &mut out);
            assert_eq!(String::from_utf8_lossy(&out), text);
        }
    }

    #[test]
    fn answers_are_read_once_they_are_whole() {
        let http = |body: &str| format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        let message = "OK\nid:3;sender:1;receiver:2;queue:2;content:a;b\n".to_owned();
        let messages = http("{\"messages\":[{\"id\":\"3\",\"message\":\"a;b\"}]}");
        let queues = http("{\"queues\":[{\"queue\":\"2\",\"ready\":5},{\"queue\":\"x\"}],\"next\":null}");
        for (via, command, text, said) in [
            (Via::Line, TAKE, message, Said::Content(b"a;b")),
            (Via::Line, TAKE, "Empty queue\n".to_owned(), Said::Nothing),
            (Via::Line, TAKE, "Error\n".to_owned(), Said::Refused),
            (Via::Line, QueueCommand::Queues, "OK\nqueues:[1, 2]\n".to_owned(), Said::Numbers(vec![1, 2])),
            (Via::Line, QueueCommand::Clients, "OK\nusers:[]\n".to_owned(), Said::Numbers(vec![])),
            (Via::Line, QueueCommand::MakeQueue(9), "OK\nid:4\n".to_owned(), Said::Id(4)),
            (Via::Http, TAKE, messages, Said::Content(b"a;b")),
            (Via::Http, TAKE, http("{\"messages\":[]}"), Said::Nothing),
            (Via::Http, QueueCommand::Queues, queues, Said::Numbers(vec![2])),
        ] {
            let dialect = dialect(via);
            for end in 0..text.len() {
                assert_eq!(dialect.read(&command, &text.as_bytes()[..end]), Ok(None), "{text}");
            }
            assert_eq!(dialect.read(&command, text.as_bytes()), Ok(Some((said, text.len()))));
        }
    }
}
