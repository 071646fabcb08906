//! The conversations of `/asyncapi.json`.

use serde_json::Value;

use super::{Line, check_references, converse};
use crate::harness::Server;
use crate::harness::schema::{Schemas, Unknown};

fn line(address: &str, line: &Value) -> Line {
    let socket = line["socket"].as_str().unwrap().to_owned();
    let path = if socket == "client" { address.to_owned() } else { format!("{address}?user={socket}") };
    Line { socket, path, is_from_client: line["from"] == "client", payload: line["payload"].clone() }
}

#[tokio::test]
async fn every_conversation_happens() {
    let document = Server::start().get("/asyncapi.json").await.json();
    assert_eq!(document["asyncapi"], "3.0.0");
    check_references(&document);
    for (name, channel) in document["channels"].as_object().unwrap() {
        let shown = channel["x-conversation"].as_array().unwrap();
        let address = channel["address"].as_str().unwrap().replace("{room}", "lobby");
        let lines: Vec<Line> = shown.iter().map(|one| line(&address, one)).collect();
        // A fresh server for each: the conversations begin at the beginning.
        let server = Server::start();
        for request in channel["x-before"].as_array().unwrap() {
            let text = |name: &str| request[name].as_str().unwrap();
            let method = text("method").parse().unwrap();
            let answer = server.call(text("user"), method, text("path"), Value::Null).await;
            assert!((200..300).contains(&answer.status), "{request}: {}", answer.text());
        }
        let heard = converse(&server, &lines).await;
        for (index, (shown, said)) in shown.iter().zip(&heard).enumerate() {
            // What is answered with an error need not be what the schema describes.
            let answer = lines[index..]
                .iter()
                .find(|other| !other.is_from_client && other.socket == lines[index].socket);
            let is_refused = answer.is_some_and(|answer| answer.payload.get("code").is_some());
            if !lines[index].is_from_client {
                check_frame(&document, shown, said, Unknown::Refused);
            } else if !is_refused {
                check_frame(&document, shown, said, Unknown::Allowed);
            }
        }
        // Whatever can be said is said at least once.
        for kind in channel["messages"].as_object().unwrap().keys() {
            assert!(shown.iter().any(|line| line["message"] == *kind), "{name}: nobody says {kind}");
        }
    }
}

fn check_frame(document: &Value, line: &Value, payload: &Value, unknown: Unknown) {
    let message = &document["components"]["messages"][line["message"].as_str().unwrap()];
    let faults = Schemas { document, unknown }.faults(&message["payload"], payload);
    assert!(faults.is_empty(), "{line}: {faults:?}");
}

#[tokio::test]
async fn every_operation_names_its_messages() {
    let document = Server::start().get("/asyncapi.json").await.json();
    for (name, operation) in document["operations"].as_object().unwrap() {
        assert!(["send", "receive"].contains(&operation["action"].as_str().unwrap()), "{name}");
        let channel = operation["channel"]["$ref"].as_str().unwrap();
        for message in operation["messages"].as_array().unwrap() {
            assert!(message["$ref"].as_str().unwrap().starts_with(&format!("{channel}/messages/")), "{name}");
        }
    }
}
