//! The socket's task: connects, reads and writes frames, and connects again.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use hubbub_ws::{Event, HandshakeError, Reader, Role, handshake};
use hyper::header::{CONTENT_LENGTH, HeaderName};
use hyper::{HeaderMap, StatusCode};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, WriteHalf};
use tokio::time::MissedTickBehavior;

use crate::address::Stream;
use crate::error::Error;
use crate::http::{escape, in_time};
use crate::random;
use crate::refusal::{is_of_the_moment, problem_of};
use crate::socket::Socket;

const LOST: u16 = 1006;
const GOING_AWAY: u16 = 1001;
const UNAUTHORIZED: u16 = 4401;
/// What stands for a handshake that no repetition makes better.
const REFUSED: u16 = 4400;
/// Longest part of a refused handshake that is read.
const REFUSAL_BYTES_MAX: usize = 64 << 10;
/// Close codes of a server that has too much to do.
const OVERLOAD: [u16; 2] = [1013, 4429];
/// Longest wait that a server may ask for.
const GIVEN_WAIT_MAX: Duration = Duration::from_secs(60);
/// Longest frame that is read: 16 MiB of text with every byte escaped, and its envelope.
const FRAME_BYTES_MAX: usize = 100 << 20;
/// Bytes read at once.
const READ_BYTES: usize = 64 << 10;
/// Longest pause between two looks at whether the connection is dead.
const WATCH_MAX: Duration = Duration::from_secs(2);

/// How the connection of rooms is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConnectionState {
    /// There was none yet.
    Connecting,
    /// It is open.
    Open,
    /// It was lost, or could not be opened; it stays so until there is another one. Another attempt follows, unless the
    /// server refused for good: then whatever waits for the connection is told so. What waits and is given up was waiting
    /// for this: a certificate that is not trusted, for instance.
    Lost {
        /// Why, for people.
        reason: String,
        /// The same for programs, as of [`Error`].
        code: String,
        /// Status of the answer that refused the connection; 0 if there was none.
        status: u16,
    },
}

/// How a connection ended.
#[derive(Debug)]
pub(crate) struct Ended {
    /// As of RFC 6455.
    pub(crate) code: u16,
    pub(crate) reason: String,
    /// Of the answer to the handshake; 0 if there was none.
    status: u16,
    /// How long that asked to wait.
    pub(crate) retry_after: Duration,
    /// Why nothing can be sent, or what a handshake was answered that no repetition makes better.
    refusal: Option<Error>,
}

impl Ended {
    fn lost(reason: impl Into<String>) -> Self {
        Self::closed(LOST, reason)
    }

    fn closed(code: u16, reason: impl Into<String>) -> Self {
        Self { code, reason: reason.into(), status: 0, retry_after: Duration::ZERO, refusal: None }
    }

    /// The code of the error after which reconnecting is pointless; see docs/protocol.md.
    fn final_code(&self) -> Option<&str> {
        if let Some(refusal) = &self.refusal {
            return Some(&refusal.code);
        }
        match self.code {
            1002 | 1003 | 1007 | 1008 | 4400 => Some("protocol"),
            UNAUTHORIZED => Some("unauthorized"),
            4403 => Some("forbidden"),
            _ => None,
        }
    }

    pub(crate) fn state(&self) -> ConnectionState {
        let code = self.final_code().unwrap_or(if self.is_overload() { "overloaded" } else { "unreachable" });
        ConnectionState::Lost { reason: self.reason.clone(), code: code.to_owned(), status: self.status }
    }

    pub(crate) fn is_overload(&self) -> bool {
        OVERLOAD.contains(&self.code)
    }

    /// What a server that shuts down says to each client, so that they do not return all at once.
    pub(crate) fn given_wait(&self) -> Option<Duration> {
        let (_, wait) = self.reason.split_once("reconnect after ").filter(|_| self.code == GOING_AWAY)?;
        let ms = wait.split_once(" ms")?.0.parse().ok()?;
        Some(Duration::from_millis(ms).min(GIVEN_WAIT_MAX))
    }
}

/// Whether a handshake that is answered so never succeeds. Of a token that is refused, its close code says more.
const fn is_final(status: u16) -> bool {
    matches!(status, 300..500) && !matches!(status, 401 | 403) && !is_of_the_moment(status)
}

impl From<Error> for Ended {
    /// Answers to the handshake mean the same as some close codes. What is invalid here stays so.
    fn from(error: Error) -> Self {
        let code = match error.status {
            401 => UNAUTHORIZED,
            403 => 4403,
            408 => LOST,
            429 => 4429,
            503 => 1013,
            status if is_final(status) => REFUSED,
            _ if error.is("invalid") => REFUSED,
            _ => LOST,
        };
        let (reason, status) = (error.detail.clone(), error.status);
        let retry_after = error.retry_after.min(GIVEN_WAIT_MAX);
        let refusal = (code == REFUSED).then(|| error.with(|problem| problem.retryable = false));
        Self { code, reason, status, retry_after, refusal }
    }
}

/// One connection after another, until the server refuses for good. The socket ends the task otherwise.
pub(crate) async fn run(socket: Arc<Socket>) {
    loop {
        let token = socket.http.token();
        let ended = connection(&socket, token.as_deref()).await;
        // What is said of the handshake's token says nothing about a newer one.
        let is_outdated = ended.code == UNAUTHORIZED && socket.http.token() != token;
        if let Some(code) = ended.final_code().filter(|_| !is_outdated) {
            socket.connection.send_replace(ended.state());
            let told = Error::new(code, &ended.reason).with(|problem| problem.status = ended.status);
            return socket.end(ended.refusal.as_ref().unwrap_or(&told));
        }
        socket.on_lost(&ended);
        tokio::time::sleep(socket.pause_after(&ended)).await;
    }
}

/// The handshake names the token.
async fn connection(socket: &Socket, token: Option<&str>) -> Ended {
    let (stream, mut input) = match in_time(socket.options().answer_max, open(socket, token)).await {
        Ok(opened) => opened,
        Err(error) => return error.into(),
    };
    socket.on_open(token);
    let (mut reading, mut writing) = tokio::io::split(stream);
    let mut reader = Reader::new(Role::Client, FRAME_BYTES_MAX);
    let (mut out, mut written, mut is_flushed, mut is_held_up) = (Vec::new(), 0, true, false);
    let every = socket.options().silence_max.min(socket.options().answer_max).min(WATCH_MAX) / 2;
    let mut watch = tokio::time::interval(every.max(Duration::from_millis(1)));
    watch.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        if let Some(ended) = read_frames(socket, &mut reader, &mut input) {
            return ended;
        }
        input.clear();
        input.reserve(READ_BYTES);
        if written == out.len() {
            out.clear();
            written = 0;
            socket.take_out(&mut out);
        }
        let unwritten = out.get(written..).unwrap_or_default();
        let due = socket.next_due();
        tokio::select! {
            read = reading.read_buf(&mut input) => match read {
                Ok(0) => return Ended::lost("the server closed the connection"),
                Ok(_) => socket.on_life(),
                Err(error) => return Ended::lost(format!("the connection was lost: {error}")),
            },
            wrote = poll_fn(|context| write_some(&mut writing, unwritten, &mut is_held_up, context)),
                if !unwritten.is_empty() || !is_flushed => match wrote {
                Ok(bytes) => {
                    written += bytes;
                    is_flushed = bytes == 0;
                    // What the system has space for says nothing of the peer; that there is space again does.
                    if std::mem::take(&mut is_held_up) {
                        socket.on_life();
                    }
                }
                Err(error) => return Ended::lost(format!("the connection was lost: {error}")),
            },
            () = socket.work.notified() => {}
            () = tokio::time::sleep_until(due.unwrap_or_else(Instant::now).into()), if due.is_some() => {
                socket.on_due();
            }
            _ = watch.tick() => if socket.is_dead() {
                return Ended::lost("the server does not answer");
            },
        }
    }
}

/// Writes a part; flushes if there is nothing to write, since what is encrypted may wait in a buffer. How much it wrote.
/// Notes in `is_held_up` when it has to wait for the peer.
fn write_some(
    writing: &mut WriteHalf<Stream>,
    bytes: &[u8],
    is_held_up: &mut bool,
    context: &mut Context<'_>,
) -> Poll<io::Result<usize>> {
    let writing = Pin::new(writing);
    let polled = match bytes {
        [] => writing.poll_flush(context).map_ok(|()| None),
        bytes => writing.poll_write(context, bytes).map_ok(Some),
    };
    *is_held_up |= polled.is_pending();
    Poll::Ready(match ready!(polled)? {
        Some(0) => Err(io::ErrorKind::WriteZero.into()),
        written => Ok(written.unwrap_or(0)),
    })
}

/// Gives each frame to the socket; how the connection ended, if it did.
fn read_frames(socket: &Socket, reader: &mut Reader, input: &mut [u8]) -> Option<Ended> {
    let mut frames = reader.feed(input);
    loop {
        match frames.next() {
            Ok(Some(Event::Text(text))) => socket.on_frame(text),
            Ok(Some(Event::Ping(payload))) => socket.on_ping(payload),
            Ok(Some(Event::Close { code, reason })) => {
                let code = code.unwrap_or(LOST);
                let reason = format!("the server closed the connection: {code} {reason}");
                return Some(Ended::closed(code, reason.trim_end()));
            }
            Ok(Some(Event::Pong(_) | Event::Binary(_))) => {}
            Ok(None) => return None,
            Err(error) => return Some(Ended::lost(format!("what the server sent is no WebSocket: {error}"))),
        }
    }
}

/// Opens a connection that speaks WebSocket; what came behind the handshake.
async fn open(socket: &Socket, token: Option<&str>) -> Result<(Stream, Vec<u8>), Error> {
    let address = &socket.http.address;
    let caller = socket.http.caller(token)?;
    let headers: String = caller.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let mut stream = address.connect().await?;
    let query = socket.options().user.as_ref().map(|user| format!("?user={}", escape(user)));
    let path = format!("{}/v1/ws{}", address.prefix(), query.unwrap_or_default());
    let rest = upgrade(&mut stream, &address.host_header(), &path, &headers, random::bits_128()).await?;
    Ok((stream, rest))
}

/// Asks the server at `host` to speak WebSocket at `path`, with further lines of `headers`, each with its end of line. What
/// came behind the answer. No time limit.
///
/// # Errors
/// `unreachable`, with the status of a refusal; what no repetition makes better has the code of the answer.
pub async fn upgrade(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    host: &str,
    path: &str,
    headers: &str,
    random: u128,
) -> Result<Vec<u8>, Error> {
    let lost = |error: io::Error| Error::unreachable(format!("the connection was lost: {error}"));
    let key = handshake::client_key(random.to_be_bytes());
    let mut request = handshake::request(host, path, &key);
    // Before the empty line.
    request.insert_str(request.len() - "\r\n".len(), headers);
    stream.write_all(request.as_bytes()).await.map_err(lost)?;
    stream.flush().await.map_err(lost)?;
    let mut response = Vec::new();
    loop {
        match handshake::parse_response(&response, &key) {
            Ok(Some(end)) => return Ok(response.split_off(end)),
            Ok(None) => {}
            Err(HandshakeError::Status(status)) => {
                let refused = refusal(stream, response, status).await;
                if is_final(status) {
                    return Err(refused);
                }
                let lost = if matches!(status, 300..400) {
                    refused.detail.clone()
                } else {
                    format!("upgrading to WebSocket: {}", HandshakeError::Status(status))
                };
                return Err(Error::unreachable(lost).with(|problem| {
                    problem.status = status;
                    problem.retry_after = refused.retry_after;
                }));
            }
            Err(error) => return Err(Error::unreachable(format!("upgrading to WebSocket: {error}"))),
        }
        if stream.read_buf(&mut response).await.map_err(lost)? == 0 {
            return Err(Error::unreachable("the server closed the connection during the handshake"));
        }
    }
}

/// The refusal of a handshake whose head has come, with as much of its body as comes.
async fn refusal(stream: &mut (impl AsyncRead + Unpin), mut response: Vec<u8>, status: u16) -> Error {
    let head = response.windows(4).position(|four| four == b"\r\n\r\n").map_or(response.len(), |at| at + 4);
    let text = String::from_utf8_lossy(response.get(..head).unwrap_or_default()).into_owned();
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    let headers: HeaderMap = lines
        .filter_map(|(name, value)| Some((name.parse::<HeaderName>().ok()?, value.trim().parse().ok()?)))
        .collect();
    let length = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok()).unwrap_or(0);
    let end = head + REFUSAL_BYTES_MAX.min(length);
    while response.len() < end {
        // What is cut off is no problem of the server's: then the status alone tells.
        if stream.read_buf(&mut response).await.unwrap_or(0) == 0 {
            break;
        }
    }
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_REQUEST);
    problem_of(status, &headers, response.get(head..).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_that_a_server_gives_is_taken() {
        let wait = |code, reason: &str| Ended::closed(code, reason).given_wait();
        let reason = "the server closed the connection: 1001 shutting down; reconnect after 2317 ms";
        assert_eq!(wait(1001, reason), Some(Duration::from_millis(2_317)));
        assert_eq!(wait(1001, "reconnect after 999999999 ms"), Some(GIVEN_WAIT_MAX));
        assert_eq!((wait(1001, "bye"), wait(1006, reason)), (None, None));
    }
}
