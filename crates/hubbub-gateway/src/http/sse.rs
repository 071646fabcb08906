//! Server-Sent Events, resumed by `Last-Event-ID`: `epoch:number`.

use std::time::Duration;

use bytes::Bytes;
use hubbub_core::FieldError;
use hubbub_core::number::parse_digits;
use hyper::header::{CACHE_CONTROL, HeaderName, HeaderValue};
use hyper::{HeaderMap, Response};

use super::streamed::{Gone, Writer, streamed};
use super::{Body, stream_response};
use crate::Gateway;
use crate::json::write_number;
use crate::problem::Problem;

/// A comment this often keeps proxies from closing an idle stream.
pub(super) const HEARTBEAT: Duration = Duration::from_secs(15);
pub(super) const COMMENT: &[u8] = b": \n\n";
/// What every stream begins with, in front of its first event: after how many milliseconds to come back. `EventSource` keeps the
/// last number it was told, also that of a server that stopped.
const RETRY: &[u8] = b"retry: 3000\n";
/// Shortest pause of a reader that is sent away, in milliseconds: nobody answers yet.
const AWAY_MIN_MS: u64 = 1_000;
/// Chunks that may wait for a slow reader: each may be a page of messages.
const CHUNKS_MAX: usize = 1;
/// A reader that takes no chunk for this long is disconnected; it resumes from its last event.
const STALLED_MAX: Duration = Duration::from_secs(30);
/// Time for a slow reader to take the last event.
const LAST_EVENT_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) fn event_stream() -> (Writer, Response<Body>) {
    let (writer, body) = streamed(CHUNKS_MAX);
    writer.begin(RETRY);
    let mut response = stream_response("text/event-stream", body);
    let headers = response.headers_mut();
    // Neither stored nor recompressed nor buffered on the way: each would hold events back.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
    headers.insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    (writer, response)
}

/// Appends events; fails when nobody reads them.
pub(super) async fn write_events(writer: &Writer, events: impl Into<Bytes>) -> Result<(), Gone> {
    writer.write_within(STALLED_MAX, events).await
}

/// Ends a stream with the reason.
pub(super) async fn end(problem: &Problem, writer: &Writer) {
    let mut out = Vec::new();
    write_error(problem, &mut out);
    write_last(out, writer).await;
}

/// Ends a stream because the server stops, and says when to reconnect.
pub(super) async fn send_away(gateway: &Gateway, writer: &Writer) {
    let retry = format!("retry: {}\n\n", gateway.reconnect_after_ms().saturating_add(AWAY_MIN_MS));
    write_last(retry.into_bytes(), writer).await;
}

/// Whether or not it is read: the stream ends here.
async fn write_last(out: Vec<u8>, writer: &Writer) {
    let _ = writer.write_within(LAST_EVENT_TIMEOUT, out).await;
}

/// Epoch and number of the last event the client has. `rule` says what an id must be.
pub(super) fn last_event(headers: &HeaderMap, rule: &'static str) -> Result<Option<(String, u64)>, Problem> {
    let Some(id) = headers.get("last-event-id") else { return Ok(None) };
    let parts = id.to_str().ok().and_then(|id| id.split_once(':'));
    let cursor = parts.and_then(|(epoch, number)| Some((epoch.to_owned(), parse_digits(number)?)));
    cursor.map(Some).ok_or_else(|| Problem::invalid(vec![FieldError::new("Last-Event-ID", rule)]))
}

pub(super) fn write_id(epoch: &str, number: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(b"id: ");
    out.extend_from_slice(epoch.as_bytes());
    write_number(":", number, out);
    out.push(b'\n');
}

/// Appends an event without data, which only moves the cursor of its reader.
pub(super) fn write_cursor(epoch: &str, number: u64, out: &mut Vec<u8>) {
    write_id(epoch, number, out);
    out.push(b'\n');
}

/// Appends the last event of a stream that the server ends.
pub(super) fn write_error(problem: &Problem, out: &mut Vec<u8>) {
    out.extend_from_slice(b"event: error\ndata: {");
    problem.write_members(out);
    out.extend_from_slice(b"}\n\n");
}
