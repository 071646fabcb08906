//! Parses commands, without I/O. The same bytes give the same commands wherever reads cut them.

use super::arguments::{Malformed, Terms, looks_like_terms};

pub(super) const LINE_BYTES_MAX: usize = 64 * 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Command<'a> {
    /// Says who calls.
    Auth {
        token: &'a str,
    },
    Register {
        client: u64,
    },
    Unregister,
    CreateQueue,
    DeleteQueue {
        queue: u64,
    },
    ListUsers,
    ListQueues,
    ListHolding {
        receiver: u64,
    },
    Send {
        queue: u64,
        sender: u64,
        receiver: Option<u64>,
        content: &'a str,
    },
    Get(Selection),
    Read(Selection),
    Ping,
    /// The beginning of another protocol, HTTP or TLS. What follows is not meant for this port.
    Foreign,
    /// Something else, answered `Bad Request`.
    Bad,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Selection {
    pub(super) queue: Option<u64>,
    pub(super) sender: Option<u64>,
    /// Not needed where the connection has registered.
    pub(super) receiver: Option<u64>,
    pub(super) newest_first: bool,
}

/// The commands that have a second line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verb {
    Auth,
    Register,
    DeleteQueue,
    ListHolding,
    Send,
    Get,
    Read,
    Ping,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum State {
    #[default]
    Command,
    Terms(Verb),
    /// A command is next, or the terms of one that was refused already, which are not answered again.
    AfterRefusal,
    /// The rest of a line that is too long comes first; it was refused already.
    Skipping {
        terms_may_follow: bool,
    },
}

impl State {
    fn after_refusal(terms_may_follow: bool) -> Self {
        if terms_may_follow { Self::AfterRefusal } else { Self::Command }
    }
}

#[derive(Debug, Default)]
pub(super) struct Parser {
    state: State,
    /// Bytes of the unfinished line that were searched for its end.
    searched: usize,
}

impl Parser {
    /// Takes the next command from the front of `input`: how many bytes were used, and the command, or `None` when more
    /// input is needed. What was not used must stand at the front of the input of the next call.
    pub(super) fn next<'a>(&mut self, input: &'a [u8]) -> (usize, Option<Command<'a>>) {
        let mut used = 0;
        loop {
            let rest = input.get(used..).unwrap_or_default();
            let fresh = rest.get(self.searched..).unwrap_or_default();
            let Some(found) = memchr::memchr(b'\n', fresh) else {
                let (skipped, command) = self.unfinished(rest);
                return (used + skipped, command);
            };
            let line = rest.get(..self.searched + found).unwrap_or_default();
            used += line.len() + 1;
            self.searched = 0;
            if let Some(command) = self.line(line.strip_suffix(b"\r").unwrap_or(line)) {
                return (used, Some(command));
            }
        }
    }

    /// Looks at the beginning of a line whose end has not come.
    fn unfinished<'a>(&mut self, line: &[u8]) -> (usize, Option<Command<'a>>) {
        let could_end =
            line.len() <= LINE_BYTES_MAX || (line.len() == LINE_BYTES_MAX + 1 && line.last() == Some(&b'\r'));
        if matches!(self.state, State::Skipping { .. }) {
            return (line.len(), None);
        }
        if could_end {
            self.searched = line.len();
            return (0, None);
        }
        self.searched = 0;
        let (command, terms_may_follow) = self.too_long(line);
        self.state = State::Skipping { terms_may_follow };
        (line.len(), command)
    }

    /// What a line that is too long is answered, and whether terms that follow it belong to it.
    fn too_long<'a>(&self, line: &[u8]) -> (Option<Command<'a>>, bool) {
        match self.state {
            State::Terms(_) => (Some(Command::Bad), false),
            State::AfterRefusal if looks_like_terms(line) => (None, false),
            State::Command | State::AfterRefusal if is_foreign(line) => (Some(Command::Foreign), false),
            State::Command | State::AfterRefusal | State::Skipping { .. } => (Some(Command::Bad), true),
        }
    }

    fn line<'a>(&mut self, line: &'a [u8]) -> Option<Command<'a>> {
        if line.len() > LINE_BYTES_MAX && !matches!(self.state, State::Skipping { .. }) {
            let (command, terms_may_follow) = self.too_long(line);
            self.state = State::after_refusal(terms_may_follow);
            return command;
        }
        match std::mem::take(&mut self.state) {
            State::Skipping { terms_may_follow } => {
                self.state = State::after_refusal(terms_may_follow);
                None
            }
            // A token is no list of terms; it may hold what separates them.
            State::Terms(Verb::Auth) => {
                let token = std::str::from_utf8(line).ok().and_then(|line| line.strip_prefix("token:"));
                Some(token.map_or(Command::Bad, |token| Command::Auth { token }))
            }
            State::Terms(verb) => {
                let terms = std::str::from_utf8(line).map_err(|_| Malformed).and_then(Terms::read);
                Some(terms.and_then(|terms| verb.with(&terms)).unwrap_or(Command::Bad))
            }
            State::AfterRefusal if looks_like_terms(line) => None,
            State::Command | State::AfterRefusal => self.command(line),
        }
    }

    fn command<'a>(&mut self, line: &[u8]) -> Option<Command<'a>> {
        let verb = match line {
            b"send msg" => Verb::Send,
            b"get msg" => Verb::Get,
            b"read msg" => Verb::Read,
            b"list queues" => Verb::ListHolding,
            b"delete queue" => Verb::DeleteQueue,
            b"register" => Verb::Register,
            b"ping" => Verb::Ping,
            b"auth" => Verb::Auth,
            b"un_register" => return Some(Command::Unregister),
            b"create queue" => return Some(Command::CreateQueue),
            b"list users" => return Some(Command::ListUsers),
            b"list all queues" => return Some(Command::ListQueues),
            _ if is_foreign(line) => return Some(Command::Foreign),
            _ => {
                self.state = State::AfterRefusal;
                return Some(Command::Bad);
            }
        };
        self.state = State::Terms(verb);
        None
    }

    /// Whether a command waits for its terms.
    pub(super) fn waits_for_arguments(&self) -> bool {
        matches!(self.state, State::Terms(_))
    }

    /// Refuses the command that waits for its terms; should they come after all, they are swallowed.
    pub(super) fn give_up(&mut self) {
        self.state = State::AfterRefusal;
    }
}

/// Whether a line is what a browser begins with, which a page of any site can have it do: with commands in the body of a request, or
/// in a session ticket of TLS, which the site chose. A target may be so long that the end of its line is not seen.
fn is_foreign(line: &[u8]) -> bool {
    const TLS_HANDSHAKE: u8 = 22;
    const METHODS: [&[u8]; 9] =
        [b"GET ", b"POST ", b"HEAD ", b"PUT ", b"OPTIONS ", b"PATCH ", b"DELETE ", b"CONNECT ", b"TRACE "];
    line.first() == Some(&TLS_HANDSHAKE)
        || [b" HTTP/1.1", b" HTTP/1.0"].iter().any(|end| line.ends_with(*end))
        || line.len() > LINE_BYTES_MAX && METHODS.iter().any(|method| line.starts_with(method))
}

impl Verb {
    fn with<'a>(self, terms: &Terms<'a>) -> Result<Command<'a>, Malformed> {
        Ok(match self {
            // Its line is not read as terms.
            Self::Auth => return Err(Malformed),
            // 0 stands for nobody.
            Self::Register => match terms.id()? {
                0 => return Err(Malformed),
                client => Command::Register { client },
            },
            Self::DeleteQueue => Command::DeleteQueue { queue: terms.id()? },
            Self::ListHolding => Command::ListHolding { receiver: terms.maybe_receiver()?.ok_or(Malformed)? },
            Self::Send => Command::Send {
                queue: terms.queue()?,
                sender: terms.sender()?,
                receiver: terms.maybe_receiver()?.filter(|receiver| *receiver > 0),
                content: terms.content.ok_or(Malformed)?,
            },
            Self::Get => Command::Get(selection(terms)?),
            Self::Read => Command::Read(selection(terms)?),
            Self::Ping => Command::Ping,
        })
    }
}

fn selection(terms: &Terms<'_>) -> Result<Selection, Malformed> {
    let (queue, sender) = (terms.maybe_queue()?, terms.maybe_sender()?);
    if queue.is_none() && sender.is_none() {
        return Err(Malformed);
    }
    let (receiver, newest_first) = (terms.maybe_receiver()?, terms.is_newest_first()?);
    Ok(Selection { queue, sender, receiver, newest_first })
}

#[cfg(test)]
mod tests;
