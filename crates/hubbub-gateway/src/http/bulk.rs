//! `POST /v1/messages`: many messages as NDJSON in, their receipts as NDJSON out, in the same order, streamed.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use http_body_util::BodyExt;
use hubbub_core::draft::{MessageDraft, Rules};
use hubbub_core::{ErrorCode, Op, OpBatch, Outcome};
use hubbub_pipeline::{Ticket, Waiter};
use hyper::body::Frame;

use super::endpoint::Call;
use super::request_body::too_slow;
use super::send::{refuse_idempotency_key, write_receipt};
use super::streamed::{Gone, Writer, streamed};
use super::{Answer, RequestBody, stream_response};
use crate::Gateway;
use crate::auth::caller::Caller;
use crate::auth::session::Session;
use crate::json;
use crate::problem::{Problem, Sent, sent};
use crate::rates::{Charged, REFUSED_MAX};
use crate::submit::Ingest;
use crate::unfinished::{Full, Share};
use crate::unread::{self, Reader};

/// Answers that may wait for a slow reader, in chunks.
const ANSWERS_MAX: usize = 4;
/// Most messages submitted at once: a share of the queue that leaves room for others.
const SUBMIT_MAX: usize = 1_000;
/// Bytes of messages that are taken before they are submitted.
const SUBMIT_BYTES_MAX: usize = 4 * 1024 * 1024;
/// A buffer of messages that is larger is not kept for the next ones: who sends nothing more may stay for long.
const OPS_KEPT_BYTES: usize = 64 * 1024;

pub(super) async fn send_bulk(call: Call) -> Answer {
    refuse_idempotency_key(&call)?;
    let gateway = call.gateway();
    let caller = call.caller()?;
    let charged = call.charged();
    let (writer, answers) = streamed(ANSWERS_MAX);
    let stream = Stream {
        gateway: gateway.clone(),
        reader: call.peer.reader.clone(),
        session: Session::open(&gateway.auth, &caller),
        caller,
        charged,
        share: Share::new(&gateway.unfinished),
        searched: 0,
        must_submit: false,
        waiter: Arc::new(Waiter::default()),
        ops: OpBatch::default(),
        lines: Vec::new(),
        out: Vec::new(),
        refused_by: None,
        refused: 0,
    };
    let mut body = call.request.into_body();
    let (body_timeout, mut ahead) = (stream.gateway.server.body_timeout, None);
    if body.is_to_be_asked_for() {
        // Once the answer begins, it is not asked for any more.
        ahead = next_frame(&mut None, &mut body, body_timeout).await;
        if ahead.is_none() {
            body.give_up();
            return Err(too_slow(body_timeout));
        }
    }
    tokio::spawn(stream.run(body, ahead, writer));
    Ok(stream_response("application/x-ndjson", answers))
}

/// What reading on in a body gave; `None` is its end.
type Read = Option<Result<Frame<Bytes>, hyper::Error>>;

/// The frame that was read `ahead`, or the next one; `None` if that does not come in time.
async fn next_frame(
    ahead: &mut Option<Read>,
    body: &mut RequestBody,
    body_timeout: Duration,
) -> Option<Read> {
    if ahead.is_some() {
        return ahead.take();
    }
    tokio::time::timeout(body_timeout, body.frame()).await.ok()
}

struct Stream {
    gateway: Arc<Gateway>,
    /// Who takes the answers.
    reader: Arc<Reader>,
    caller: Caller,
    charged: Charged,
    /// What was read and is not submitted.
    share: Share,
    /// Bytes of the line that goes on in which its end was looked for.
    searched: usize,
    /// All connections hold too much for this one to read on before it has submitted.
    must_submit: bool,
    /// Ends with the caller's token, which a long stream may outlive.
    session: Session,
    waiter: Arc<Waiter>,
    /// Checked messages that are not submitted yet.
    ops: OpBatch,
    /// For each line that is not answered yet: the id of its message, or what is wrong with it.
    lines: Vec<Result<String, Problem>>,
    out: Vec<u8>,
    /// Once the queue was full, or a rate exceeded, the rest of the stream is refused too, so that a retry keeps the order.
    refused_by: Option<Problem>,
    /// Lines refused for a rate, or for a token that has ended.
    refused: u32,
}

impl Stream {
    /// While a piece of the stream is on its way to the store the next one is read, so that a slow store gets large
    /// batches from few clients.
    async fn run(mut self, mut body: RequestBody, mut ahead: Option<Read>, writer: Writer) {
        let (mut rest, mut under_way, mut is_read) = (BytesMut::new(), None, false);
        let body_timeout = self.gateway.server.body_timeout;
        loop {
            if under_way.is_none() {
                under_way = self.submit();
                self.must_submit = false;
                // It is less than before. If that did not fit either, the next frame finds it out.
                let _ = self.share.set(rest.len());
            }
            let is_full =
                self.must_submit || self.lines.len() >= SUBMIT_MAX || self.ops.bytes() >= SUBMIT_BYTES_MAX;
            tokio::select! {
                biased;
                () = arrival(&self.waiter, under_way.as_ref()), if under_way.is_some() => {
                    let Some(piece) = under_way.take() else { continue };
                    if self.answer(piece, &writer).await.is_err() {
                        // It may still read what waits, and must not take that for all of it.
                        return writer.abort(std::io::ErrorKind::TimedOut.into());
                    }
                }
                frame = next_frame(&mut ahead, &mut body, body_timeout), if !is_read && !is_full => {
                    // A client that went away or stalled. What was accepted is durable; a retry finds it by its id.
                    let Ok(taken) = self.take_frame(frame, &mut rest) else {
                        return writer.abort(std::io::ErrorKind::TimedOut.into());
                    };
                    is_read = taken;
                }
                else => return,
            }
        }
    }

    /// Takes the lines of the next frame, or of the end of the body: whether it is read as far as it is of use.
    fn take_frame(&mut self, frame: Option<Read>, rest: &mut BytesMut) -> Result<bool, Gone> {
        let is_read = match frame {
            Some(Some(Ok(frame))) => {
                rest.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
                !self.take_lines(rest) || !self.may_hold(rest)
            }
            Some(None) => true,
            Some(Some(Err(_))) | None => return Err(Gone),
        };
        if is_read {
            self.take_line(&std::mem::take(rest));
        }
        Ok(is_read)
    }

    /// Counts what is held. If all connections hold too much, what is whole is submitted first; a line that alone is too much
    /// is refused, and with it the rest of the stream (`false`).
    fn may_hold(&mut self, rest: &mut BytesMut) -> bool {
        if self.share.set(rest.len() + self.ops.bytes()).is_ok() {
            return true;
        }
        self.must_submit = !self.lines.is_empty();
        if !self.must_submit {
            self.share.count_refusal();
            self.lines.push(Err(Full.into()));
            rest.clear();
        }
        self.must_submit
    }

    /// Takes the whole lines out of what was read; `false` when the rest is of no use: the line that goes on is too long
    /// already, or so many were refused that the client does not seem to read the answers.
    fn take_lines(&mut self, rest: &mut BytesMut) -> bool {
        while let Some(end) = memchr::memchr(b'\n', rest.get(self.searched..).unwrap_or_default()) {
            let line = rest.split_to(self.searched + end);
            self.searched = 0;
            rest.advance(1);
            self.take_line(&line);
            if self.refused >= REFUSED_MAX {
                rest.clear();
                return false;
            }
        }
        self.searched = rest.len();
        rest.len() <= self.gateway.limits.body_bytes
    }

    fn take_line(&mut self, line: &[u8]) {
        let line = line.trim_ascii();
        if !line.is_empty() {
            let checked = self.check(line);
            if let Err(problem) = &checked
                && matches!(problem.code, ErrorCode::TooManyRequests | ErrorCode::Unauthorized)
            {
                self.refused += 1;
            }
            self.lines.push(checked);
        }
    }

    fn check(&mut self, line: &[u8]) -> Result<String, Problem> {
        let line_bytes_max = self.gateway.limits.body_bytes;
        if line.len() > line_bytes_max {
            let detail = format!("a line may have at most {line_bytes_max} bytes");
            return Err(Problem::new(ErrorCode::TooLarge, detail));
        }
        if !self.charged.is_nobody() && self.refused_by.is_none() {
            let charge = self.gateway.rates.charge(&self.charged, line.len(), self.gateway.clock.monotonic());
            self.refused_by = charge.err().map(Problem::from);
        }
        let draft: MessageDraft<'_> = json::object_of_bytes(line)?;
        let now = self.gateway.now();
        if let Some(ended) = self.session.ended_at(|| now) {
            return Err(ended.problem());
        }
        let ingest = Ingest { rules: Rules::Api, room: None, caller: &self.caller, key: None, now };
        let (ops, refused_by) = (&mut self.ops, &self.refused_by);
        self.gateway.check(&draft, &ingest, |sent| {
            let id = sent.id.to_owned();
            if let Some(problem) = refused_by {
                return Err(Problem { message_id: Some(id), ..problem.clone() });
            }
            ops.push(&Op::Send(*sent));
            Ok(id)
        })?
    }

    fn submit(&mut self) -> Option<Piece> {
        if self.lines.is_empty() {
            return None;
        }
        let lines = std::mem::take(&mut self.lines);
        if self.ops.is_empty() {
            return Some(Piece { lines, ticket: Ok(None) });
        }
        let submitted = self.gateway.log.submit(&self.ops, &self.waiter);
        let count = self.ops.len() as u64;
        if self.ops.bytes() > OPS_KEPT_BYTES {
            self.ops = OpBatch::default();
        } else {
            self.ops.clear();
        }
        let ticket = submitted.map(Some).map_err(|error| {
            let problem = Problem::from(error);
            self.gateway.metrics.reject(problem.code, count);
            problem
        });
        Some(Piece { lines, ticket })
    }

    /// Refuses what was checked while another piece failed, and all that follows.
    fn refuse_rest(&mut self, problem: &Problem) {
        self.ops.clear();
        for line in &mut self.lines {
            if let Ok(id) = line {
                *line = Err(Problem { message_id: Some(std::mem::take(id)), ..problem.clone() });
            }
        }
        self.refused_by = Some(problem.clone());
    }

    async fn answer(&mut self, piece: Piece, writer: &Writer) -> Result<(), Gone> {
        let Piece { lines, ticket } = piece;
        let epoch = self.gateway.epoch_of(ticket.as_ref().ok().and_then(Option::as_ref));
        let result = ticket.and_then(|ticket| match ticket.as_ref().map(Ticket::outcomes) {
            None => Ok(Vec::new()),
            Some(Some(Ok(outcomes))) => Ok(outcomes.to_vec()),
            Some(Some(Err(error))) => Err(Problem::from(error)),
            Some(None) => Err(Problem::new(ErrorCode::Internal, "the store gave no outcome")),
        });
        if let Err(problem) = &result {
            self.refuse_rest(problem);
        }
        let mut outcomes = result.as_ref().map(|outcomes| outcomes.iter()).map_err(Clone::clone);
        for line in lines {
            if let Err(problem) = &line {
                self.gateway.metrics.reject(problem.code, 1);
            }
            self.out.push(b'{');
            match line.and_then(|id| Ok((next_sent(&id, &mut outcomes)?, id))) {
                Ok((sent, id)) => write_receipt(&id, sent, &epoch, &mut self.out),
                Err(problem) => problem.write_members(&mut self.out),
            }
            self.out.extend_from_slice(b"}\n");
        }
        // Who does not read gives up what it holds, as who does not send.
        let answers = unread::counted(&self.reader, std::mem::take(&mut self.out).into());
        writer.write_within(self.gateway.server.write_timeout, answers).await
    }
}

/// The outcome of the next message, whose id this is.
fn next_sent<'a>(
    id: &str,
    outcomes: &mut Result<impl Iterator<Item = &'a Outcome>, Problem>,
) -> Result<Sent<'a>, Problem> {
    let sent = match outcomes {
        Ok(outcomes) => sent(outcomes.next().ok_or_else(Problem::no_outcome)?),
        Err(problem) => Err(problem.clone()),
    };
    sent.map_err(|problem| Problem { message_id: Some(id.to_owned()), ..problem })
}

/// Lines that are on their way together, and the ticket of the messages among them.
struct Piece {
    lines: Vec<Result<String, Problem>>,
    ticket: Result<Option<Ticket>, Problem>,
}

async fn arrival(waiter: &Waiter, piece: Option<&Piece>) {
    if let Some(Piece { ticket: Ok(Some(ticket)), .. }) = piece {
        waiter.wait(ticket).await;
    }
}
