//! What became of a message is told by each server that had to do with it, and nothing else is.

use serde_json::{Value, json};

use crate::harness::{Postgres, Server, Setup, hubbub_aside, until};

async fn timeline(server: &Server, room: &str, id: &str) -> Value {
    server.get(&format!("/v1/rooms/{room}/messages/{id}/timeline")).await.json()
}

fn stages(timeline: &Value) -> Vec<&str> {
    timeline["events"].as_array().unwrap().iter().map(|event| event["stage"].as_str().unwrap()).collect()
}

fn event<'a>(timeline: &'a Value, stage: &str) -> &'a Value {
    let mut events = timeline["events"].as_array().unwrap().iter();
    events.find(|event| event["stage"] == stage).unwrap_or_else(|| panic!("no {stage} in {timeline}"))
}

fn missing(timeline: &Value) -> Vec<(&str, &str)> {
    let all = timeline["missing"].as_array().unwrap().iter();
    all.map(|one| (one["stage"].as_str().unwrap(), one["because"].as_str().unwrap())).collect()
}

/// Sends messages until `is_so` holds of the timeline of the last one at `told`, and returns that: a subscription is live a
/// moment after it was answered.
async fn sent_until(sent_at: &Server, told: &Server, is_so: impl Fn(&Value) -> bool) -> Value {
    let mut last = Value::Null;
    let mut count = 0;
    until("the timeline is whole", async || {
        count += 1;
        let id = format!("m-{count}");
        let message = json!({"userId": "ada", "message": "x", "messageId": id});
        let status = sent_at.post("/v1/rooms/r/messages", &message).await.status;
        assert!([201, 202].contains(&status), "{status}");
        // Publishing follows the answer; a broker's committer follows later.
        for _ in 0..20 {
            last = timeline(told, "r", &id).await;
            if last["events"].is_array() && is_so(&last) {
                return true;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        false
    })
    .await;
    last
}

fn is_delivered_to(count: u64) -> impl Fn(&Value) -> bool {
    move |timeline| {
        let mut events = timeline["events"].as_array().unwrap().iter();
        events.any(|event| event["stage"] == "delivered" && event["count"] == count)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn timeline_of_a_message() {
    let mut server = Server::start();
    let nobody = server.send("alone", "x").await;
    let id = nobody["messageId"].as_str().unwrap();
    let mut told = Value::Null;
    // It is recorded right after the answer.
    until("the batch is on record", async || {
        told = timeline(&server, "alone", id).await;
        stages(&told).len() > 1
    })
    .await;
    assert_eq!(stages(&told), ["received", "queued", "committing", "stored", "answered"]);
    assert_eq!((&told["seq"], missing(&told)), (&json!(1), vec![("published", "notHere")]));
    let sockets = [server.subscriber("r", json!({})).await, server.subscriber("r", json!({})).await];
    let told = sent_until(&server, &server, is_delivered_to(2)).await;
    let expected = ["received", "queued", "committing", "stored", "answered", "published", "delivered"];
    assert_eq!((stages(&told), missing(&told)), (expected.to_vec(), vec![]));
    assert_eq!(
        (&event(&told, "queued")["count"], &event(&told, "published")["count"]),
        (&json!(1), &json!(2))
    );
    assert_eq!(event(&told, "published")["from"], "commit");
    let times: Vec<&str> =
        told["events"].as_array().unwrap()[1..].iter().map(|e| e["at"].as_str().unwrap()).collect();
    assert!(times.is_sorted() && told["recordedSince"].as_str().unwrap() <= times[0], "{told}");
    let id = told["messageId"].as_str().unwrap();
    // The command says the same.
    let trace = |server: &Server, json: &[&str]| {
        let mut arguments: Vec<String> =
            ["trace", id, "r", "--server", &server.url()].map(str::to_owned).into();
        arguments.extend(json.iter().map(|&argument| argument.to_owned()));
        hubbub_aside(arguments, String::new())
    };
    let said: Value = serde_json::from_str(&trace(&server, &["--json"]).await.success()).unwrap();
    assert_eq!(said["events"].as_array().unwrap().len(), expected.len());
    let text = trace(&server, &[]).await.success();
    assert!(text.contains("delivered ") && text.contains("for 2 live subscribers"), "{text}");
    let name = told["server"].as_str().unwrap();
    assert!(
        name.ends_with(server.url().rsplit(':').next().unwrap()) && text.contains(name),
        "{name}: {text}"
    );
    let unknown = server.get(&format!("/v1/rooms/alone/messages/{id}/timeline")).await;
    unknown.problem(404, "unknown_message");
    drop(sockets);
    // What a server did before it was restarted is not on its record, and not made up.
    server.restart();
    let told = timeline(&server, "r", id).await;
    assert_eq!(
        (stages(&told), missing(&told)),
        (vec!["received"], vec![("stored", "tooOld"), ("published", "tooOld")])
    );
    assert!(trace(&server, &[]).await.success().contains("not known any more"));
}

#[tokio::test]
async fn a_server_without_records_says_so() {
    let server = Setup::new().set("timeline.memory=0B").start();
    let id = server.send("r", "x").await["messageId"].as_str().unwrap().to_owned();
    let told = timeline(&server, "r", &id).await;
    assert_eq!(
        (missing(&told), &told["recordedSince"]),
        (vec![("stored", "off"), ("published", "off")], &Value::Null)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_server_of_a_database_tells_its_part() {
    let postgres = Postgres::start("");
    let setup = || Setup::new().store(&postgres.url("postgres"));
    let (here, there) = (setup().set("server.name=here").start(), setup().start());
    let _socket = there.subscriber("r", json!({})).await;
    let told = sent_until(&here, &there, is_delivered_to(1)).await;
    assert_eq!(
        (stages(&told), missing(&told)),
        (vec!["received", "published", "delivered"], vec![("stored", "notHere")])
    );
    assert_eq!(event(&told, "published")["from"], "store");
    let told = timeline(&here, "r", told["messageId"].as_str().unwrap()).await;
    assert_eq!((&told["server"], missing(&told)), (&json!("here"), vec![("published", "notHere")]));
    assert_eq!(stages(&told), ["received", "queued", "committing", "stored", "answered"]);
}

#[cfg(feature = "kafka")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_kafka_the_committer_and_the_others_tell_their_parts() {
    let (kafka, postgres) = (crate::harness::Kafka::shared(), Postgres::start(""));
    let setup = || kafka.setup(&postgres.url("postgres"), 2);
    let committer = setup().start();
    let gateway = setup().set("server.role=gateway").start();
    let _socket = gateway.subscriber("r", json!({})).await;
    let from_bus = |told: &Value| is_delivered_to(1)(told) && event(told, "published")["from"] == "bus";
    let told = sent_until(&gateway, &gateway, from_bus).await;
    assert_eq!(missing(&told), [("stored", "notHere")]);
    let told = timeline(&committer, "r", told["messageId"].as_str().unwrap()).await;
    assert_eq!(stages(&told), ["received", "queued", "committing", "stored", "answered", "bus"]);
}
