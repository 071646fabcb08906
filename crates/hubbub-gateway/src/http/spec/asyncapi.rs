//! The tables of frames and conversations as an AsyncAPI 3.0 document.
//!
//! The examples of each kind of frame are its lines in the conversation of its channel, which is there as a whole as
//! `x-conversation`, because a frame says little without those before it; `x-before` is what was done over HTTP first.

use hubbub_core::limits::Limits;
use serde_json::{Map, Value, json};

use super::examples::{Line, conversations};
use super::frames::{self, Channel, Frame};
use super::schemas;
use crate::ws::CLOSE_CODES;

const ABOUT: &str = "JSON text frames. Unknown members are ignored; what is wrong gets an error frame and the socket \
    stays open. The server pings; who does not answer with a pong is closed with 4408. HTTP is described in \
    `/openapi.json`.";

const CHANNELS: &[(Channel, &str, &str, &str)] = &[
    (
        Channel::Api,
        "api",
        "/v1/ws",
        "Many rooms over one socket; `?user=` or the header `Hubbub-User` says who calls.",
    ),
    (
        Channel::Chat,
        "chat",
        "/chat/{room}",
        "One room, for simple clients: each frame is a message, each is answered by one frame, in order, once durable. Opened with `?live=1` it also carries the room's messages, as `message` frames of `api`.",
    ),
];

pub(super) fn document(limits: &Limits) -> Value {
    let frames = frames::all(limits);
    let mut channels = Map::new();
    let mut operations = Map::new();
    let mut messages = Map::new();
    let said = conversations();
    for (channel, name, address, about) in CHANNELS {
        let lines: Vec<&Line> = said.iter().filter(|line| line.channel == *name).collect();
        let mine: Vec<&Frame> = frames.iter().filter(|frame| frame.channel == *channel).collect();
        let references: Map<String, Value> = mine
            .iter()
            .map(|frame| {
                (frame.name.clone(), json!({"$ref": format!("#/components/messages/{}", frame.name)}))
            })
            .collect();
        let conversation: Vec<Value> = lines
            .iter()
            .map(|line| {
                let known = mine.iter().find(|frame| line.frame.as_ref() == Some(&frame.name));
                let is_from_client = known.is_none_or(|frame| frame.replies.is_some());
                let from = if is_from_client { "client" } else { "server" };
                json!({"socket": line.socket, "from": from, "message": known.map(|frame| &frame.name), "payload": line.payload})
            })
            .collect();
        // Whoever makes a room is its first member.
        let before = match channel {
            Channel::Api => json!([{"method": "PUT", "path": "/v1/rooms/tea", "user": "ada"}]),
            Channel::Chat => json!([]),
        };
        let mut described = json!({
            "address": address,
            "description": about,
            "messages": references,
            "bindings": {"ws": {"method": "GET", "query": query(*channel)}},
            "x-before": before,
            "x-conversation": conversation,
            "x-close-codes": close_codes(),
        });
        if let Some(members) = described.as_object_mut().filter(|_| address.contains("{room}")) {
            members.insert("parameters".into(), json!({"room": {"description": "The room's id."}}));
        }
        channels.insert((*name).to_owned(), described);
        for frame in mine {
            operations.insert(frame.name.clone(), operation(frame, name));
            let examples = lines.iter().filter(|line| line.frame.as_ref() == Some(&frame.name));
            let examples: Vec<Value> = examples.map(|line| json!({"payload": line.payload})).collect();
            messages.insert(
                frame.name.clone(),
                json!({"name": frame.name, "title": frame.summary, "payload": frame.payload, "examples": examples}),
            );
        }
    }
    json!({
        "asyncapi": "3.0.0",
        "info": super::info("Hubbub over WebSocket", ABOUT),
        "defaultContentType": "application/json",
        "channels": channels,
        "operations": operations,
        "components": {"messages": messages, "schemas": schemas::all(limits)},
    })
}

/// What the server does with a frame.
fn operation(frame: &Frame, channel: &str) -> Value {
    let reference = |name: &str| json!({"$ref": format!("#/channels/{channel}/messages/{name}")});
    let here = json!({"$ref": format!("#/channels/{channel}")});
    let mut described = json!({
        "action": if frame.replies.is_some() { "receive" } else { "send" },
        "channel": here,
        "summary": frame.summary,
        "messages": [reference(&frame.name)],
    });
    if let (Some(members), Some(replies)) = (described.as_object_mut(), frame.replies) {
        let replies: Vec<Value> = replies.iter().map(|name| reference(name)).collect();
        members.insert("reply".into(), json!({"channel": here, "messages": replies}));
    }
    described
}

fn query(channel: Channel) -> Value {
    let mut members = json!({"user": {"type": "string", "description": "Who calls."}});
    if let Some(members) = members.as_object_mut().filter(|_| channel == Channel::Chat) {
        let switch = |about| json!({"type": "string", "enum": ["", "1", "true"], "description": about});
        members.insert("echo".into(), switch("Answers carry `originalMessage`."));
        members.insert("live".into(), switch("The room's messages are sent too."));
        let about = "With `0`, answers may cross a multiple of 16,384 bytes of the stream.";
        members.insert("pad".into(), json!({"type": "string", "enum": ["0", "1"], "description": about}));
    }
    json!({"type": "object", "properties": members})
}

fn close_codes() -> Vec<Value> {
    let codes = CLOSE_CODES.iter();
    codes
        .map(|close| json!({"code": close.code, "meaning": close.meaning, "reconnect": close.reconnect}))
        .collect()
}
