//! `/openapi.json`, `/asyncapi.json` and `docs/protocol.md` are well-formed, and everything they show happens: each
//! example is said to a fresh server, and its answer held against the example and the schema.

mod asyncapi;
mod openapi;
mod protocol;

use std::collections::BTreeMap;

use serde_json::Value;

use crate::harness::likeness::differences;
use crate::harness::{Server, Ws};

/// A string as it is, any other value as JSON.
fn text_of(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Calls `visit` with every object in the document that has `key`.
fn each(document: &Value, key: &str, visit: &mut impl FnMut(&Value)) {
    match document {
        Value::Object(members) => {
            if let Some(value) = members.get(key) {
                visit(value);
            }
            members.values().for_each(|member| each(member, key, visit));
        }
        Value::Array(items) => items.iter().for_each(|item| each(item, key, visit)),
        _ => {}
    }
}

/// Every reference leads somewhere.
fn check_references(document: &Value) {
    each(document, "$ref", &mut |reference| {
        let pointer = reference.as_str().unwrap().strip_prefix('#').unwrap();
        assert!(document.pointer(pointer).is_some(), "{reference} leads nowhere");
    });
}

/// Something said over a socket.
struct Line {
    /// Whose socket it is.
    socket: String,
    /// The path it is opened at, when this is the first thing said over it.
    path: String,
    is_from_client: bool,
    payload: Value,
}

/// Holds a conversation word for word; gives every line with what was really said.
async fn converse(server: &Server, lines: &[Line]) -> Vec<Value> {
    let mut sockets: BTreeMap<&str, Ws> = BTreeMap::new();
    let mut heard = Vec::new();
    while let Some(line) = lines.get(heard.len()) {
        if !sockets.contains_key(line.socket.as_str()) {
            sockets.insert(&line.socket, server.ws(&line.path).await);
        }
        let socket = sockets.get_mut(line.socket.as_str()).unwrap();
        if line.is_from_client {
            socket.send(&line.payload).await;
            heard.push(line.payload.clone());
            continue;
        }
        // What the server says to one socket in a row may come in another order, if the kinds differ.
        let rest = &lines[heard.len()..];
        let run =
            rest.iter().take_while(|other| !other.is_from_client && other.socket == line.socket).count();
        let mut said = socket.receive_many(run).await;
        for line in &rest[..run] {
            let same_kind = |said: &&Value| said["type"] == line.payload["type"];
            let found = said.iter().find(same_kind).cloned();
            let Some(found) = found else {
                panic!("to {}: {} is shown, {said:?} was said", line.socket, line.payload)
            };
            said.remove(said.iter().position(|one| *one == found).unwrap());
            let differences = differences(&line.payload, &found);
            assert!(differences.is_empty(), "to {}: {found} was said: {differences:?}", line.socket);
            heard.push(found);
        }
    }
    for (name, mut socket) in sockets {
        assert!(socket.try_send(tokio_tungstenite::tungstenite::Message::Close(None)).await);
        while let Ok(said) = socket.next().await {
            // Those who closed before are said to have left.
            assert_eq!(said["type"], "presence", "to {name}: {said} is not shown");
        }
    }
    heard
}
