//! `POST /v1/messages`: many messages as NDJSON in, their receipts as NDJSON out, in the same order, streamed.

use std::sync::Arc;

use bytes::{Buf, Bytes, BytesMut};
use http_body_util::channel::{Channel, Sender};
use http_body_util::{BodyExt, Either};
use hubbub_core::draft::{MessageDraft, Rules};
use hubbub_core::{ErrorCode, Op, OpBatch, Outcome};
use hubbub_pipeline::Waiter;
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Request, Response};

use super::query::Query;
use super::send::write_receipt;
use super::{Answer, NOSNIFF};
use crate::Gateway;
use crate::auth::Caller;
use crate::intake::Intake;
use crate::json;
use crate::problem::{Problem, sent};

/// Answers that may wait for a slow reader, in chunks.
const ANSWERS_MAX: usize = 4;
/// Most messages submitted at once: a share of the queue that leaves room for others.
const SUBMIT_MAX: usize = 1_000;

pub(super) fn send_many(gateway: &Arc<Gateway>, request: Request<Incoming>) -> Answer {
    let caller = Caller::of(request.headers(), &Query::parse(request.uri().query()))?;
    let (sender, body) = Channel::new(ANSWERS_MAX);
    let stream = Stream {
        gateway: gateway.clone(),
        caller,
        waiter: Arc::new(Waiter::default()),
        ops: OpBatch::default(),
        lines: Vec::new(),
        out: Vec::new(),
        refused_by: None,
    };
    tokio::spawn(stream.run(request.into_body(), sender));
    let mut response = Response::new(Either::Right(body));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
    response.headers_mut().insert(NOSNIFF.0, NOSNIFF.1);
    Ok(response)
}

/// One request under way.
struct Stream {
    gateway: Arc<Gateway>,
    caller: Caller,
    waiter: Arc<Waiter>,
    /// Checked messages that are not submitted yet.
    ops: OpBatch,
    /// For each line that is not answered yet: the id of its message, or what is wrong with it.
    lines: Vec<Result<String, Problem>>,
    out: Vec<u8>,
    /// Once the queue was full the rest of the stream is refused too, so that a retry keeps the order.
    refused_by: Option<Problem>,
}

impl Stream {
    async fn run(mut self, mut body: Incoming, mut sender: Sender<Bytes, std::io::Error>) {
        let mut rest = BytesMut::new();
        loop {
            let frame = match tokio::time::timeout(self.gateway.server.body_timeout, body.frame()).await {
                Ok(Some(Ok(frame))) => frame,
                Ok(None) => break,
                // The client went away or stalled; what was accepted is durable, whoever sent it asks again by id.
                Ok(Some(Err(_))) | Err(_) => return sender.abort(std::io::ErrorKind::TimedOut.into()),
            };
            rest.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
            while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                let line = rest.split_to(end);
                rest.advance(1);
                self.take_line(&line);
                if self.ops.len() >= SUBMIT_MAX && self.answer(&mut sender).await.is_err() {
                    return;
                }
            }
            // A line that goes on like this is refused now; its end need not be waited for.
            if rest.len() > self.gateway.limits.body_bytes {
                break;
            }
            if self.answer(&mut sender).await.is_err() {
                return;
            }
        }
        self.take_line(&rest);
        // Nobody is left to tell when this fails: the client closed the connection.
        let _ = self.answer(&mut sender).await;
    }

    fn take_line(&mut self, line: &[u8]) {
        let line = line.trim_ascii();
        if !line.is_empty() {
            let checked = self.check(line);
            self.lines.push(checked);
        }
    }

    fn check(&mut self, line: &[u8]) -> Result<String, Problem> {
        let line_bytes_max = self.gateway.limits.body_bytes;
        if line.len() > line_bytes_max {
            let detail = format!("a line may have at most {line_bytes_max} bytes");
            return Err(Problem::new(ErrorCode::TooLarge, detail));
        }
        let draft: MessageDraft<'_> = json::object_of_bytes(line)?;
        let now = self.gateway.now();
        let intake = Intake { rules: Rules::Api, room: None, caller: &self.caller, key: None, now };
        let (ops, refused_by) = (&mut self.ops, &self.refused_by);
        self.gateway.check(&draft, &intake, |sent| {
            let id = sent.id.to_owned();
            if let Some(problem) = refused_by {
                return Err(Problem { message_id: Some(id), ..problem.clone() });
            }
            ops.push(&Op::Send(*sent));
            Ok(id)
        })?
    }

    /// Submits what is checked, waits for it, and answers all lines so far.
    async fn answer(
        &mut self,
        sender: &mut Sender<Bytes, std::io::Error>,
    ) -> Result<(), http_body_util::channel::SendError> {
        if self.lines.is_empty() {
            return Ok(());
        }
        let result = self.commit().await;
        let epoch = self.gateway.store.epoch();
        let mut outcomes = result.as_ref().map(|outcomes| outcomes.iter()).map_err(Clone::clone);
        for line in self.lines.drain(..) {
            let problem = match (line, &mut outcomes) {
                (Err(problem), _) => {
                    self.gateway.metrics.reject(problem.code, 1);
                    problem
                }
                (Ok(id), Ok(outcomes)) => match outcomes.next() {
                    Some(outcome) => match sent(outcome) {
                        Ok(sent) => {
                            self.out.push(b'{');
                            write_receipt(&id, sent, &epoch, &mut self.out);
                            self.out.extend_from_slice(b"}\n");
                            continue;
                        }
                        Err(problem) => Problem { message_id: Some(id), ..problem },
                    },
                    None => Problem::no_outcome(),
                },
                (Ok(id), Err(problem)) => Problem { message_id: Some(id), ..problem.clone() },
            };
            self.out.push(b'{');
            problem.write_members(&mut self.out);
            self.out.extend_from_slice(b"}\n");
        }
        sender.send_data(Bytes::from(std::mem::take(&mut self.out))).await
    }

    async fn commit(&mut self) -> Result<Vec<Outcome>, Problem> {
        if self.ops.is_empty() {
            return Ok(Vec::new());
        }
        let submitted = self.gateway.log.submit(&self.ops, &self.waiter);
        let count = self.ops.len() as u64;
        self.ops.clear();
        let ticket = submitted.map_err(|error| {
            let problem = Problem::from(error);
            self.gateway.metrics.reject(problem.code, count);
            self.refused_by = Some(problem.clone());
            problem
        })?;
        self.waiter.wait(&ticket).await;
        match ticket.outcomes() {
            Some(Ok(outcomes)) => Ok(outcomes.to_vec()),
            Some(Err(error)) => {
                let problem = Problem::from(error);
                self.refused_by = Some(problem.clone());
                Err(problem)
            }
            None => Err(Problem::new(ErrorCode::Internal, "the store gave no outcome")),
        }
    }
}
