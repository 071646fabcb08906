//! The cases of the Autobahn test suite (typedef int GmbH, Apache 2.0) against both dialects of WebSocket, by the numbers
//! of the suite.
//!
//! The suite expects an echo of everything. Here a text is JSON whose answer shows it: a `ping` of `/v1/ws`, a message of
//! `/chat/{room}?echo=1`; an empty text is answered with an error, and a binary message is closed with 4400.
//! Left out: compression (12, 13), which is never negotiated, and the measurements of latency (9.7, 9.8).

mod closing;
mod framing;
mod sizes;
mod utf8;

use std::collections::HashSet;
use std::net::SocketAddr;

use futures_util::StreamExt;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::harness::{Dialect, PATIENCE, RawFrame, RawWs, Setup, masked};

/// Cases of sections 1 to 7, 9 (but for 9.7 and 9.8) and 10.
const CASES: usize = 289;
const BINARY_REFUSED: u16 = 4400;
/// Sent at the end of each case, and expected by none: a server that goes on where it should not answers it.
const NOT_ENDED: u16 = 4123;
/// Cases under way at the same time.
const AT_ONCE: usize = 8;
/// How much of a frame a failure shows, in bytes.
const SHOWN_BYTES: usize = 80;

impl Dialect {
    fn path(self) -> &'static str {
        match self {
            Self::Api => "/v1/ws",
            Self::Chat => "/chat/r?echo=1&pad=0",
        }
    }

    /// A text whose answer shows `payload`.
    fn text(self, payload: &str) -> String {
        self.text_of(payload, 0)
    }

    /// The same, filled up to `bytes`.
    fn text_of(self, payload: &str, bytes: usize) -> String {
        let members = match self {
            Self::Api => "\"type\":\"ping\"",
            Self::Chat => {
                "\"userId\":7,\"username\":\"ada\",\"message\":\"x\",\
                \"timestamp\":\"2026-01-31T12:00:00Z\",\"messageType\":\"TEXT\""
            }
        };
        let begin = format!("{{{members},\"ref\":{},\"pad\":\"", Value::from(payload));
        let pad = bytes.saturating_sub(begin.len() + 2);
        format!("{begin}{}\"}}", "*".repeat(pad))
    }

    /// Whether `answer` is the answer to the text `sent`.
    fn echoes(self, answer: &Value, sent: &Value) -> bool {
        match self {
            Self::Api => *answer == json!({"type": "pong", "ref": sent["ref"]}),
            Self::Chat => answer["status"] == "success" && answer["originalMessage"] == *sent,
        }
    }
}

/// What the server is to send.
enum Reply {
    Pong(Vec<u8>),
    /// The answer to this text.
    Echo(String),
    /// The answer to a text that is not JSON.
    Malformed,
}

impl Reply {
    fn is(&self, dialect: Dialect, (first, payload): &RawFrame) -> bool {
        match self {
            Self::Pong(sent) => (*first, payload) == (0x8A, sent),
            Self::Echo(sent) => {
                let json = |text: &[u8]| serde_json::from_slice::<Value>(text).ok();
                *first == 0x81
                    && json(payload).zip(json(sent.as_bytes())).is_some_and(|(a, s)| dialect.echoes(&a, &s))
            }
            Self::Malformed => {
                *first == 0x81 && String::from_utf8_lossy(payload).contains("\"code\":\"malformed\"")
            }
        }
    }
}

/// How bytes are cut into writes.
#[derive(Debug, Clone, Copy)]
enum Chop {
    /// All at once.
    Whole,
    /// Frame by frame.
    Frames,
    /// In chops of so many bytes.
    Octets(usize),
}

impl Chop {
    fn cut(self, frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
        match self {
            Self::Whole => vec![frames.concat()],
            Self::Frames => frames.to_vec(),
            Self::Octets(bytes) => frames.concat().chunks(bytes).map(<[u8]>::to_vec).collect(),
        }
    }
}

/// Frames that are sent, and what comes back before anything else is sent.
struct Round {
    frames: Vec<Vec<u8>>,
    replies: Vec<Reply>,
}

struct Case {
    number: String,
    chop: Chop,
    rounds: Vec<Round>,
    /// The codes of which the server's close frame has one; the stream ends behind it.
    codes: Vec<u16>,
}

impl Case {
    fn new(number: impl Into<String>, chop: Chop) -> Self {
        Self { number: number.into(), chop, rounds: Vec::new(), codes: Vec::new() }
    }

    fn round(mut self, frames: impl Into<Vec<Vec<u8>>>, replies: impl Into<Vec<Reply>>) -> Self {
        self.rounds.push(Round { frames: frames.into(), replies: replies.into() });
        self
    }

    /// The server ends the connection behind the last round.
    fn ends(mut self, codes: impl Into<Vec<u16>>) -> Self {
        self.codes = codes.into();
        self
    }

    /// The connection stays open, and ends in order when the client wants it to.
    fn stays(self) -> Self {
        self.round([close(Some(1000), b"")], []).ends([1000])
    }

    /// What is wrong, if anything is.
    async fn fault(&self, server: SocketAddr, dialect: Dialect) -> Option<String> {
        let mut socket = RawWs::open(server, dialect.path()).await;
        for (number, round) in self.rounds.iter().enumerate() {
            let is_last = number + 1 == self.rounds.len();
            let what = format!("{}, round {number}", self.number);
            let (mut writes, mut awaited) = (self.chop.cut(&round.frames), round.replies.len());
            if is_last {
                writes.push(close(Some(NOT_ENDED), b""));
                awaited = usize::MAX;
            }
            let Ok(received) = timeout(PATIENCE, socket.exchange(&writes, awaited)).await else {
                return Some(format!("{what}: nothing happened for {PATIENCE:?}"));
            };
            let expected = round.replies.len() + usize::from(is_last);
            let is_answered =
                round.replies.iter().zip(&received).all(|(reply, frame)| reply.is(dialect, frame));
            let is_closed = !is_last || received.last().is_some_and(|frame| self.is_close(frame));
            if received.len() != expected || !is_answered || !is_closed {
                return Some(format!("{what}: {}", shown(&received)));
            }
        }
        None
    }

    fn is_close(&self, (first, payload): &RawFrame) -> bool {
        let code = payload.first_chunk().map(|code| u16::from_be_bytes(*code));
        *first == 0x88 && code.is_some_and(|code| self.codes.contains(&code))
    }
}

/// The beginnings of frames, for whoever reads why a case fails.
fn shown(frames: &[RawFrame]) -> String {
    let show = |(first, payload): &RawFrame| {
        format!("{first:02x} {}", payload[..payload.len().min(SHOWN_BYTES)].escape_ascii())
    };
    if frames.is_empty() {
        "nothing".to_owned()
    } else {
        frames.iter().map(show).collect::<Vec<_>>().join("; ")
    }
}

fn text(text: &str) -> Vec<u8> {
    masked(0x81, text.as_bytes())
}

fn binary(payload: &[u8]) -> Vec<u8> {
    masked(0x82, payload)
}

fn ping(payload: &[u8]) -> Vec<u8> {
    masked(0x89, payload)
}

fn close(code: Option<u16>, reason: &[u8]) -> Vec<u8> {
    let code = code.map(u16::to_be_bytes);
    masked(0x88, &[code.as_ref().map_or(&[][..], |code| code), reason].concat())
}

/// One message of the given opcode, in these fragments.
fn fragments<'a>(opcode: u8, pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<Vec<u8>> {
    let mut pieces = pieces.into_iter().peekable();
    let (mut frames, mut opcode) = (Vec::new(), opcode);
    while let Some(piece) = pieces.next() {
        let fin = if pieces.peek().is_none() { 0x80 } else { 0 };
        frames.push(masked(fin | opcode, piece));
        opcode = 0;
    }
    frames
}

/// A text in two fragments.
fn halves(text: &str) -> [Vec<u8>; 2] {
    let (first, second) = text.as_bytes().split_at(text.len() / 2);
    [masked(0x01, first), masked(0x80, second)]
}

fn cases(dialect: Dialect) -> impl Iterator<Item = Case> {
    let small =
        framing::cases(dialect).into_iter().chain(utf8::cases(dialect)).chain(closing::cases(dialect));
    small.chain(sizes::cases(dialect))
}

async fn run(dialect: Dialect) {
    let server = sizes::LIMITS.iter().fold(Setup::new(), |setup, limit| setup.set(limit)).start();
    let address = server.address();
    let mut numbers = HashSet::new();
    let cases =
        cases(dialect).inspect(|case| assert!(numbers.insert(case.number.clone()), "{}", case.number));
    let faults: Vec<_> = futures_util::stream::iter(cases)
        .map(async |case| case.fault(address, dialect).await)
        .buffer_unordered(AT_ONCE)
        .filter_map(async |fault| fault)
        .collect()
        .await;
    assert!(faults.is_empty(), "{} cases fail:\n{}", faults.len(), faults.join("\n"));
    assert_eq!(numbers.len(), CASES);
}

#[tokio::test]
async fn the_autobahn_cases_hold_on_v1_ws() {
    run(Dialect::Api).await;
}

#[tokio::test]
async fn the_autobahn_cases_hold_on_chat() {
    run(Dialect::Chat).await;
}
