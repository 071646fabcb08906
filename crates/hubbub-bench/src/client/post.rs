//! `POST /v1/rooms/{room}/messages` over keep-alive connections, one request after another.

use hubbub_core::message::write_u64;
use serde::Deserialize;

use super::refusal::is_retryable;
use super::{Cause, Codec, Target};
use crate::client::chat::leading_number;
use crate::client::wire::{Wire, take_whole};
use crate::load::in_flight::{Answer, InFlight};
use crate::load::message_plan::{Job, Shape};

/// More header or body than this is no answer to our request.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

#[derive(Debug)]
pub(crate) struct Post {
    path: Vec<u8>,
    headers: Vec<u8>,
    json: Vec<u8>,
    /// An answer that a read cut off.
    held: Vec<u8>,
}

impl Codec for Post {
    const HAS_TIME: bool = false;
    const HAS_ROOM: bool = false;

    async fn connect(target: &Target, _room: &str, _seed: u64) -> Result<(Wire, Self), Cause> {
        let wire = target.open().await.map_err(|_| Cause::Connect)?;
        let path = format!("POST {}/v1/rooms/", target.prefix).into_bytes();
        let headers = format!(
            "/messages HTTP/1.1\r\nHost: {}\r\n{}Content-Type: application/json\r\nContent-Length: ",
            target.host, &*target.headers
        );
        Ok((wire, Self { path, headers: headers.into_bytes(), json: Vec::new(), held: Vec::new() }))
    }

    fn write(&mut self, shape: &Shape, job: &Job, _now: &[u8], out: &mut Vec<u8>) {
        self.json.clear();
        shape.write_post(job, &mut self.json);
        out.extend_from_slice(&self.path);
        shape.write_room(job.room, out);
        out.extend_from_slice(&self.headers);
        write_u64(self.json.len() as u64, out);
        out.extend_from_slice(b"\r\n\r\n");
        out.extend_from_slice(&self.json);
    }

    fn goodbye(&mut self, _out: &mut Vec<u8>) {}

    fn read(&mut self, bytes: &mut [u8], _out: &mut Vec<u8>, in_flight: &mut InFlight) -> Result<(), Cause> {
        take_whole(&mut self.held, bytes, |bytes| {
            Ok::<_, Cause>(bytes.len() - read_answers(bytes, in_flight)?.len())
        })?;
        if self.held.len() > ANSWER_BYTES_MAX { Err(Cause::Protocol) } else { Ok(()) }
    }
}

/// Gives each complete answer to `in_flight`; what is left over is returned.
fn read_answers<'b>(mut bytes: &'b [u8], in_flight: &mut InFlight) -> Result<&'b [u8], Cause> {
    while let Some((response, rest)) = split_response(bytes)? {
        in_flight.on_answer(&read_answer(response.status, response.body))?;
        if response.last {
            return Err(Cause::Closed);
        }
        bytes = rest;
    }
    Ok(bytes)
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Response<'a> {
    pub(crate) status: u16,
    pub(crate) body: &'a [u8],
    /// The body comes in chunks: see [`Response::whole`].
    is_chunked: bool,
    /// The server closes the connection after it.
    pub(crate) last: bool,
}

impl Response<'_> {
    /// The body without the marks of its chunks.
    pub(crate) fn whole(&self) -> Vec<u8> {
        let mut whole = Vec::new();
        if !self.is_chunked || chunks(self.body, |chunk| whole.extend_from_slice(chunk)).is_err() {
            whole.extend_from_slice(self.body);
        }
        whole
    }
}

/// Shows `take` the chunks of a body; how many bytes it has with their marks, or `None` while it is incomplete. Nothing is
/// read behind the last chunk.
fn chunks(bytes: &[u8], mut take: impl FnMut(&[u8])) -> Result<Option<usize>, Cause> {
    let mut used = 0;
    loop {
        let rest = bytes.get(used..).unwrap_or_default();
        let Some(mark) = memchr::memmem::find(rest, b"\r\n") else { return Ok(None) };
        let length = rest.get(..mark).and_then(|digits| std::str::from_utf8(digits).ok());
        let length = length.and_then(|digits| usize::from_str_radix(digits, 16).ok());
        let end = length.and_then(|length| length.checked_add(mark + 2)).ok_or(Cause::Protocol)?;
        let Some(b"\r\n") = rest.get(end..).and_then(|after| after.get(..2)) else { return Ok(None) };
        take(rest.get(mark + 2..end).unwrap_or_default());
        used += end + 2;
        if length == Some(0) {
            return Ok(Some(used));
        }
    }
}

/// How each response begins.
const VERSION: &str = "HTTP/1.1 ";

/// Splits off the first response, or says `None` while it is incomplete.
pub(crate) fn split_response(bytes: &[u8]) -> Result<Option<(Response<'_>, &[u8])>, Cause> {
    let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
        // The end of a header in another protocol would be waited for in vain.
        let is_http = bytes.iter().zip(VERSION.as_bytes()).all(|(byte, expected)| byte == expected);
        return if is_http { Ok(None) } else { Err(Cause::Protocol) };
    };
    let (head, body) = bytes.split_at_checked(end).ok_or(Cause::Protocol)?;
    let body = body.get(4..).ok_or(Cause::Protocol)?;
    let head = std::str::from_utf8(head).map_err(|_| Cause::Protocol)?;
    let mut lines = head.split("\r\n");
    let status = lines.next().and_then(|line| line.strip_prefix(VERSION)).and_then(leading_number);
    let (status, _) = status.ok_or(Cause::Protocol)?;
    let (mut length, mut last, mut is_chunked) = (None, false, false);
    for (name, value) in lines.filter_map(|line| line.split_once(':')) {
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse::<usize>().ok();
        } else if name.eq_ignore_ascii_case("connection") {
            last = value.trim().eq_ignore_ascii_case("close");
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            is_chunked = value.trim().eq_ignore_ascii_case("chunked");
        }
    }
    let status = u16::try_from(status).map_err(|_| Cause::Protocol)?;
    let length = if is_chunked {
        let Some(length) = chunks(body, |_| {})? else { return Ok(None) };
        length
    } else {
        // 204 says by itself that there is no body.
        if status == 204 { 0 } else { length.ok_or(Cause::Protocol)? }
    };
    let response = |(body, rest)| (Response { status, body, is_chunked, last }, rest);
    Ok(body.split_at_checked(length).map(response))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Receipt<'a> {
    message_id: &'a str,
    seq: Option<u64>,
    #[serde(default)]
    duplicate: bool,
}

pub(crate) fn read_answer(status: u16, body: &[u8]) -> Answer<'_> {
    match status {
        200..=202 => match serde_json::from_slice::<Receipt<'_>>(body) {
            Ok(receipt) => Answer::Accepted {
                id: receipt.message_id.as_bytes(),
                seq: receipt.seq.unwrap_or_default(),
                duplicate: receipt.duplicate,
            },
            Err(_) => Answer::Unreadable,
        },
        _ => Answer::Refused { retryable: is_retryable(status, body) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn responses_are_split_where_they_end() {
        let bytes = b"HTTP/1.1 201 Created\r\ncontent-LENGTH: 2\r\n\r\n{}HTTP/1.1";
        for end in 0..bytes.len() - 8 {
            assert_eq!(split_response(&bytes[..end]), Ok(None));
        }
        let (response, rest) = split_response(bytes).expect("valid").expect("complete");
        assert_eq!((response.status, response.body, rest), (201, &b"{}"[..], &b"HTTP/1.1"[..]));
        let chunked = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\na\r\n0123456789\r\n2\r\n{}\r\n0\r\n\r\nHTTP";
        for end in 0..chunked.len() - 4 {
            assert_eq!(split_response(&chunked[..end]), Ok(None));
        }
        let (response, rest) = split_response(chunked).expect("valid").expect("complete");
        assert_eq!((response.whole(), rest), (b"0123456789{}".to_vec(), &b"HTTP"[..]));
        let wrong = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nx\r\n\r\n";
        assert_eq!(split_response(wrong), Err(Cause::Protocol));
        let empty = b"HTTP/1.1 204 No Content\r\netag: \"7\"\r\n\r\nHTTP/1.1";
        let (response, rest) = split_response(empty).expect("valid").expect("complete");
        assert_eq!((response.status, response.body, rest), (204, &b""[..], &b"HTTP/1.1"[..]));
        for nonsense in [&b"nonsense\r\n\r\n"[..], b"Bad Request\n", b"HTTP/2"] {
            assert_eq!(split_response(nonsense), Err(Cause::Protocol));
        }
    }

    #[test]
    fn receipts_are_understood() {
        let body = br#"{"messageId":"a-1","seq":7,"epoch":"e","receivedAt":"x","duplicate":true}"#;
        assert_eq!(read_answer(200, body), Answer::Accepted { id: b"a-1", seq: 7, duplicate: true });
        assert_eq!(read_answer(503, b""), Answer::Refused { retryable: true });
        assert_eq!(read_answer(422, b""), Answer::Refused { retryable: false });
        let full = br#"{"code":"too_many_rooms","status":429,"retryable":false}"#;
        assert_eq!(read_answer(429, full), Answer::Refused { retryable: false });
    }
}
