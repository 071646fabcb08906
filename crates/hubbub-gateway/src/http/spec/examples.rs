//! Requests and frames with their answers, as a walk: in the order of the files they work, one after another, on a fresh
//! server. The process test `documents_are_true` takes it and compares every answer.
//!
//! Epochs, times and ids the server makes differ from server to server; whatever else an example shows is what is answered.
//! `from` names parameters whose value only the server knows, and where it is in an earlier answer:
//! `beginBackup.first#/backupId`, that is operation, example and JSON pointer.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// One line of `examples.jsonl`: a request, and what a server answers that saw the lines before it and nothing else.
#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
pub(super) struct Example {
    pub(super) operation: String,
    /// Unique within the operation.
    pub(super) name: String,
    #[serde(default)]
    pub(super) parameters: Map<String, Value>,
    #[serde(default)]
    pub(super) from: Map<String, Value>,
    /// Lines of NDJSON are an array here, as in the answer.
    pub(super) body: Option<Value>,
    pub(super) status: u16,
    pub(super) answer: Value,
}

/// One line of `conversations.jsonl`: a frame over a socket.
///
/// Frames that the server sends to one socket in a row may come in another order, if their kinds differ: an `ack` waits
/// for nobody else's `message`.
#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
pub(super) struct Line {
    /// The channel of `/asyncapi.json`.
    pub(super) channel: String,
    /// The socket it goes over, named by its user.
    pub(super) socket: String,
    /// The kind of frame, by its name in [`super::frames`]; none if there is no such kind.
    pub(super) frame: Option<String>,
    pub(super) payload: Value,
}

pub(super) fn examples() -> Vec<Example> {
    // A test reads every line.
    read(include_str!("examples.jsonl")).filter_map(Result::ok).collect()
}

/// What is said over the sockets of each channel, in order.
pub(super) fn conversations() -> Vec<Line> {
    read(include_str!("conversations.jsonl")).filter_map(Result::ok).collect()
}

fn read<T: DeserializeOwned>(lines: &str) -> impl Iterator<Item = serde_json::Result<T>> {
    lines.lines().map(|line| serde_json::from_str(&line.replace("{version}", env!("CARGO_PKG_VERSION"))))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::http::endpoints;

    #[test]
    fn every_line_is_read_and_names_an_operation() {
        let documented = endpoints::all().map(|endpoint| endpoint.document.id);
        let operations: BTreeSet<&str> = documented.filter(|id| !id.is_empty()).collect();
        let mut names = BTreeSet::new();
        for example in read::<Example>(include_str!("examples.jsonl")) {
            let example = example.unwrap();
            assert!(operations.contains(example.operation.as_str()), "{example:?}");
            assert!(names.insert(format!("{}.{}", example.operation, example.name)), "{example:?}");
        }
        let shown: BTreeSet<String> = examples().into_iter().map(|example| example.operation).collect();
        assert_eq!(shown.iter().map(String::as_str).collect::<BTreeSet<_>>(), operations);
        assert!(read::<Line>(include_str!("conversations.jsonl")).all(|line| line.is_ok()));
    }
}
